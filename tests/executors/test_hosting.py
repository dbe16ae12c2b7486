"""Services of an object that several tasks enter: they run as long as anybody is in, whoever that is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError
from adescent.executors.hosting import Hosting

pytestmark = pytest.mark.anyio

BOUND = 5.0


class Pulse:
    """A service that can be asked whether it runs, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self._ask: anyio.Event = anyio.Event()
        self._answer: anyio.Event = anyio.Event()

    async def run(self) -> None:
        self.begun += 1
        while True:
            await self._ask.wait()
            self._ask = anyio.Event()
            self._answer.set()

    async def beats(self) -> bool:
        self._answer = anyio.Event()
        self._ask.set()
        with anyio.move_on_after(BOUND):
            await self._answer.wait()
            return True
        return False


async def nothing() -> None:
    await checkpoint()


@asynccontextmanager
async def entered(hosting: Hosting) -> AsyncIterator[None]:
    await hosting.enter()
    try:
        yield
    finally:
        await hosting.leave(nothing, BOUND)


@pytest.fixture
def hosting() -> Hosting:
    return Hosting("the thing")


async def test_a_service_runs_until_the_last_has_left(hosting: Hosting) -> None:
    pulse = Pulse()
    closed: list[bool] = []

    async def close() -> None:
        closed.append(await pulse.beats())

    with anyio.fail_after(BOUND):
        await hosting.enter()
        async with entered(hosting):
            hosting.start(pulse.run, "pulse")
            assert await pulse.beats()
        assert await pulse.beats()
        assert closed == []
        await hosting.leave(close, BOUND)
    assert closed == [True]  # closing has the services it needs
    assert not hosting.is_open


async def test_a_service_moves_on_when_its_host_leaves_first(hosting: Hosting) -> None:
    pulse = Pulse()
    second_is_in, first_is_out = anyio.Event(), anyio.Event()

    async def second() -> None:
        async with entered(hosting):
            second_is_in.set()
            await first_is_out.wait()
            assert await pulse.beats()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            async with entered(hosting):
                hosting.start(pulse.run, "pulse")
                assert await pulse.beats()
                group.start_soon(second)
                await second_is_in.wait()
            first_is_out.set()
    assert pulse.begun >= 2


async def test_a_service_moves_on_when_its_host_is_cancelled_and_slow_to_go(hosting: Hosting) -> None:
    pulse = Pulse()
    beaten = anyio.Event()

    async def first(scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with scope:
            async with entered(hosting):
                hosting.start(pulse.run, "pulse")
                task_status.started()
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await beaten.wait()  # it has been cancelled and is still in

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()
            await group.start(first, scope)
            async with entered(hosting):
                assert await pulse.beats()
                scope.cancel()
                await checkpoint()
                assert await pulse.beats()
                beaten.set()


async def test_a_service_without_a_host_waits_for_the_next(hosting: Hosting) -> None:
    pulse = Pulse()
    with anyio.fail_after(BOUND):
        async with entered(hosting):
            hosting.start(pulse.run, "pulse")
        before = pulse.begun
        async with entered(hosting):
            assert await pulse.beats()
    assert pulse.begun > before


async def test_a_service_that_returns_is_over(hosting: Hosting) -> None:
    runs: list[int] = []

    async def once() -> None:
        runs.append(1)

    with anyio.fail_after(BOUND):
        async with entered(hosting):
            hosting.start(once, "once")
            await anyio.wait_all_tasks_blocked()
        async with entered(hosting):
            await anyio.wait_all_tasks_blocked()
    assert runs == [1]


async def test_the_error_of_the_block_comes_out_bare_and_so_does_cancellation(hosting: Hosting) -> None:
    pulse = Pulse()
    with anyio.fail_after(BOUND):
        with pytest.raises(LookupError):
            async with entered(hosting):
                hosting.start(pulse.run, "pulse")
                raise LookupError
        with anyio.move_on_after(0) as scope:
            async with entered(hosting):
                await anyio.sleep_forever()
        assert scope.cancelled_caught


async def test_closing_is_shielded_and_bounded(hosting: Hosting) -> None:
    closing: list[str] = []

    async def close() -> None:
        closing.append("begun")
        await checkpoint()
        closing.append("went on")
        await anyio.sleep_forever()

    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:
            await hosting.enter()
            scope.cancel()
            await hosting.leave(close, 0.05)
    assert closing == ["begun", "went on"]
    assert not hosting.is_open


async def test_who_comes_while_another_closes_closes_for_itself(hosting: Hosting) -> None:
    closed: list[str] = []

    async def close_first() -> None:
        with pytest.raises(ContractError, match="is not running"):
            hosting.check_open()
        async with anyio.create_task_group() as group:
            group.start_soon(come_and_go)
        closed.append("first")

    async def close_second() -> None:
        closed.append("second")

    async def come_and_go() -> None:
        await hosting.enter()
        hosting.check_open()
        await hosting.leave(close_second, BOUND)

    with anyio.fail_after(BOUND):
        await hosting.enter()
        await hosting.leave(close_first, BOUND)
    assert closed == ["second", "first"]
    assert not hosting.is_open


async def test_who_has_not_entered_is_told(hosting: Hosting) -> None:
    with pytest.raises(ContractError, match="async with"):
        hosting.check_open()

    async def stranger() -> None:
        with pytest.raises(ContractError, match="has not entered"):
            await hosting.leave(nothing, BOUND)

    with anyio.fail_after(BOUND):
        async with entered(hosting), anyio.create_task_group() as group:
            group.start_soon(stranger)

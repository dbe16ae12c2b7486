"""What actors make of cancellations: the scope, or the host, gets its own back, and the rest is a failed rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.executors import collect_rollouts
from adescent.executors.local import LocalExecutor
from adescent.policies import Actors
from adescent.tasks import Task
from adescent.workspec import RolloutSpec

BOUND = 10.0
SPEC = RolloutSpec("rules", Task("t1", "?"))


def full(task: Task, output: object) -> float:
    return 1.0


class CleanupError(Exception):
    pass


@pytest.mark.anyio
async def test_what_an_actor_raises_when_it_is_cancelled_does_not_outlive_the_scope(
    local_executor: LocalExecutor, caplog: pytest.LogCaptureFixture, anyio_backend: Any
) -> None:
    async def fails() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise CleanupError

    async def run(rendered: str, task: Task) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            await anyio.sleep_forever()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            with anyio.move_on_after(0.01) as scope:
                await view.rollout(SPEC)
                pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught
    assert "CleanupError" in caplog.text


ASYNCIO = [("asyncio", {"debug": False})]


def cancel_own_task() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()


async def and_waits() -> None:
    cancel_own_task()
    await asyncio.sleep(0)


async def and_raises() -> None:
    cancel_own_task()
    raise asyncio.CancelledError


async def and_fails() -> None:
    cancel_own_task()
    raise CleanupError


async def and_groups() -> None:
    try:
        await and_waits()
    except asyncio.CancelledError as error:
        raise BaseExceptionGroup("both", [CleanupError(), error]) from None


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ASYNCIO, ids=["asyncio"])
@pytest.mark.parametrize("misbehave", [and_waits, and_raises, and_fails, and_groups])
async def test_an_actor_that_cancels_its_own_task_is_one_failed_rollout(
    local_executor: LocalExecutor, misbehave: Callable[[], Any]
) -> None:
    calls = 0

    async def run(rendered: str, task: Task) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            await misbehave()
        await checkpoint()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            results = await collect_rollouts(view, [SPEC] * 6, concurrency=2)
    assert [result.error is None for result in results].count(False) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ASYNCIO, ids=["asyncio"])
@pytest.mark.parametrize("grouped", [False, True], ids=["fresh", "in a group"])
async def test_a_scope_knows_its_cancellation_again_whatever_the_actor_made_of_it(
    local_executor: LocalExecutor, grouped: bool
) -> None:
    async def run(rendered: str, task: Task) -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            pass
        fresh = asyncio.CancelledError("as some clients do")
        raise BaseExceptionGroup("both", [CleanupError(), fresh]) if grouped else fresh

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            with anyio.move_on_after(0.01) as scope:
                await view.rollout(SPEC)
    assert scope.cancelled_caught
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ASYNCIO, ids=["asyncio"])
async def test_a_native_cancellation_that_an_actor_groups_is_plain_again(local_executor: LocalExecutor) -> None:
    begun = asyncio.Event()

    async def run(rendered: str, task: Task) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise BaseExceptionGroup("both", [CleanupError(), error]) from None

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            task = asyncio.get_running_loop().create_task(view.rollout(SPEC))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("trio", {})], ids=["trio"])
async def test_ctrl_c_in_a_group_is_not_lost_in_a_cancellation(local_executor: LocalExecutor) -> None:
    async def run(rendered: str, task: Task) -> None:
        scope.cancel()
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            raise BaseExceptionGroup("both", [KeyboardInterrupt(), error]) from None

    with anyio.fail_after(BOUND), pytest.raises(BaseExceptionGroup) as raised:
        async with local_executor.attach_actors(Actors(run, full)) as view:
            with anyio.CancelScope() as scope:
                await view.rollout(SPEC)
    assert raised.value.subgroup(KeyboardInterrupt) is not None

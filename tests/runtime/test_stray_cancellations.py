"""Cancellations that no scope asked for: one failed rollout where an actor made them, never an end without a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from adescent.cancellation import StrayCancellation
from adescent.executors import InlineExecutor
from adescent.policies import Policies
from adescent.runtime.rounds import Rounds
from adescent.runtime.stream import Stream

BOUND = 30.0
ASYNCIO = [("asyncio", {"debug": False})]


async def cancel_own_task() -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(0)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ASYNCIO, ids=["asyncio"])
@pytest.mark.parametrize("nth", [1, 12, 30])
@pytest.mark.parametrize("actor", ["run", "reward"])
async def test_actor_that_cancels_its_task_fails_one_rollout(world: Any, schedule: str, actor: str, nth: int) -> None:
    async def strike() -> None:
        if world.calls[actor] == nth:
            await cancel_own_task()

    setattr(world, f"before_{actor}", strike)
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=6, n_workers=3)
    assert (result.stop_reason, result.error) == ("rounds", "")
    assert sum(result.causes.values()) == 1


class Reckless(InlineExecutor):
    """Cancels the task of whoever calls it for the ``nth`` time."""

    def __init__(self, nth: int, actors: Any = None, threads: Any = None) -> None:
        super().__init__(actors, threads=threads)
        self.left = nth

    def attach_actors(self, actors: Any) -> Reckless:
        return Reckless(self.left, actors, self.threads)

    async def rollout(self, spec: Any) -> Any:
        self.left -= 1
        if not self.left:
            await cancel_own_task()
        return await super().rollout(spec)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ASYNCIO, ids=["asyncio"])
@pytest.mark.parametrize("nth", [1, 12, 30])
async def test_task_that_no_scope_cancelled_ends_the_run_in_an_error(world: Any, schedule: str, nth: int) -> None:
    try:
        with anyio.fail_after(BOUND):
            result = await world.evolve(schedule, rounds=6, n_workers=3, policies=Policies(executor=Reckless(nth)))
    except StrayCancellation:  # before there was anything to report
        assert nth == 1
    else:
        assert result.stop_reason == "error"
        assert "StrayCancellation" in result.error


@pytest.mark.anyio
async def test_search_that_ends_without_a_reason_ends_in_an_error(
    world: Any, schedule: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    async def ends(self: Any) -> None:
        return

    monkeypatch.setattr(Rounds if schedule == "rounds" else Stream, "run", ends)
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=6)
    assert result.stop_reason == "error"
    assert result.error


@pytest.mark.anyio
async def test_hosts_timeout_is_bare_though_the_actors_cleanup_fails(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    async def fails() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("the cleanup failed")

    async def strike() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            await anyio.sleep_forever()

    world.before_run = strike
    with pytest.raises(TimeoutError), anyio.fail_after(0.1):
        await world.evolve(schedule)


def test_asyncios_shutdown_ends_a_run_at_once(world: Any, schedule: str) -> None:
    """The loop cancels all tasks natively, the run's own among them, in any order."""
    tasks: list[asyncio.Task[Any]] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def strike() -> None:
            begun.set()
            await anyio.sleep_forever()

        world.before_run = strike
        tasks.append(asyncio.get_running_loop().create_task(world.evolve(schedule, n_workers=3)))
        with anyio.fail_after(BOUND):
            await begun.wait()

    asyncio.run(main())
    assert tasks[0].cancelled()

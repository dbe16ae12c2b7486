"""What wakes a task of the loop once."""

from __future__ import annotations

import anyio
import pytest
from anyio import create_task_group, fail_after

from adescent.executors.wakeup import one_shots

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("anyio_backend")]

BOUND = 10.0


async def test_who_waits_goes_on_when_it_is_set_and_who_comes_later_does_not_wait() -> None:
    made = one_shots()
    shot, awake = made(), anyio.Event()

    async def wait() -> None:
        await shot.wait()
        awake.set()

    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not awake.is_set()
            shot.set()
            shot.set()
        await shot.wait()
    assert awake.is_set()


async def test_each_is_set_alone() -> None:
    made = one_shots()
    first, second = made(), made()
    first.set()
    with fail_after(BOUND):
        await first.wait()
    with anyio.move_on_after(0) as scope:
        await second.wait()
    assert scope.cancelled_caught


async def test_it_may_be_set_when_whoever_waited_was_cancelled() -> None:
    shot = one_shots()()
    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(shot.wait)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        shot.set()


async def test_a_wait_for_what_is_set_lets_others_run_and_can_be_cancelled() -> None:
    shot = one_shots()()
    shot.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await shot.wait()
    assert scope.cancelled_caught

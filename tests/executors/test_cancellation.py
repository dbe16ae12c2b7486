"""Cancelling: prompt on the loop, patient within the grace in threads, and never swallowed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from adescent.executors.local import LocalExecutor
from adescent.executors.threads import ThreadPool
from adescent.executors.wakeup import LoopBell
from adescent.policies import Actors
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec

BOUND = 10.0
SPEC = RolloutSpec("rules", Task("t1", "?"))
STEPS = 6


def full(task: Task, output: object) -> float:
    return 1.0


class Gate:
    """A blocking actor: says that it has begun, then waits until the test lets it go."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.go = threading.Event()
        self.calls = 0
        self._bell = LoopBell()

    def __call__(self, rendered: str, task: Task) -> str:
        self.calls += 1
        self._bell.ring(self.begun)
        self.go.wait(BOUND)
        return rendered


class Countdown:
    """Cancels a scope at the n-th step that is counted."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.scope = anyio.CancelScope()

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("at", range(1, 4 * STEPS + 4, 3))
async def test_cancelled_at_every_checkpoint_it_ends_at_once_and_can_be_used_again(
    local_executor: LocalExecutor, at: int
) -> None:
    countdown = Countdown(at)
    results: list[Result] = []

    async def steps(first: object, second: object) -> float:
        for _ in range(STEPS):
            countdown.step()
            await checkpoint()
        return 1.0

    async def rollout(view: LocalExecutor) -> None:
        results.append(await view.rollout(SPEC))
        countdown.step()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(steps, steps)) as view:
            with countdown.scope:
                async with anyio.create_task_group() as group:
                    for _ in range(2):
                        group.start_soon(rollout, view)
            assert countdown.scope.cancelled_caught == (len(results) < 2)
            assert (await view.rollout(SPEC)).kind == "ok"
    assert {result.kind for result in results} <= {"ok"}


@pytest.mark.anyio
async def test_the_callers_timeout_is_raised(local_executor: LocalExecutor) -> None:
    async def run(rendered: str, task: Task) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            with pytest.raises(TimeoutError), anyio.fail_after(0.01):
                await view.rollout(SPEC)


@pytest.mark.anyio
async def test_a_call_under_way_is_waited_for_and_its_thread_kept(local_executor: LocalExecutor) -> None:
    gate = Gate()
    ended = anyio.Event()

    async def cancelled() -> None:
        with scope:
            await view.rollout(SPEC)
        ended.set()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(gate, full)) as view, anyio.create_task_group() as group:
            scope = anyio.CancelScope()
            group.start_soon(cancelled)
            await gate.begun.wait()
            scope.cancel()
            await wait_all_tasks_blocked()
            assert not ended.is_set()
            gate.go.set()
            await ended.wait()
            assert scope.cancelled_caught
            assert local_executor.counters() == {"abandoned_threads": 0}
            assert local_executor.threads.statistics().idle == 1


@pytest.mark.anyio
@pytest.mark.parametrize("grace", [0.0, 0.02])
async def test_a_blocked_thread_is_left_after_the_grace_counted_and_replaced(
    make: Callable[[float], LocalExecutor], grace: float
) -> None:
    local_executor = make(grace)
    gates = [Gate() for _ in range(local_executor.threads.size)]
    try:
        with anyio.fail_after(BOUND):
            async with local_executor:
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as group:
                        for gate in gates:
                            group.start_soon(local_executor.attach_actors(Actors(gate, full)).rollout, SPEC)
                        for gate in gates:
                            await gate.begun.wait()
                        scope.cancel()
                assert scope.cancelled_caught
                assert local_executor.counters() == {"abandoned_threads": len(gates)}
                view = local_executor.attach_actors(Actors(lambda rendered, task: "still here", full))
                assert (await view.rollout(SPEC)).output == "still here"
    finally:
        for gate in gates:
            gate.go.set()


@pytest.mark.anyio
async def test_calls_without_a_thread_yet_are_withdrawn_at_once() -> None:
    pool = ThreadPool(1, grace=30.0)
    gate = Gate()
    ran: list[int] = []
    with anyio.fail_after(BOUND):
        async with pool, anyio.create_task_group() as group:
            group.start_soon(pool.run, gate, "", SPEC.task)
            await gate.begun.wait()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as queued:
                    for number in range(100):
                        queued.start_soon(pool.run, ran.append, number)
                    await wait_all_tasks_blocked()
                    assert pool.statistics().queued == 100
                    scope.cancel()
            assert pool.statistics().queued == 0
            gate.go.set()
            await pool.run(ran.append, -1)
    assert ran == [-1]


@pytest.mark.anyio
async def test_calls_that_wait_for_an_abandoned_thread_get_its_successor() -> None:
    pool = ThreadPool(1, grace=0.0)
    gate = Gate()
    scope = anyio.CancelScope()
    came: list[str] = []

    async def cancelled() -> None:
        with scope:
            await pool.run(gate, "", SPEC.task)

    async def waiting() -> None:
        came.append(await pool.run(str, "came"))

    try:
        with anyio.fail_after(BOUND):
            async with pool, anyio.create_task_group() as group:
                group.start_soon(cancelled)
                await gate.begun.wait()
                group.start_soon(waiting)
                await wait_all_tasks_blocked()
                scope.cancel()
    finally:
        gate.go.set()
    assert came == ["came"]
    assert pool.statistics().abandoned == 1


@pytest.mark.anyio
async def test_a_dropped_coroutine_is_closed(make: Callable[[float], LocalExecutor]) -> None:
    gate = Gate()

    async def later() -> str:
        return "never awaited"

    def run(rendered: str, task: Task) -> Any:
        gate(rendered, task)
        return later()  # Python warns, and so fails this test, if it is neither awaited nor closed

    scope = anyio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await view.rollout(SPEC)

    with anyio.fail_after(BOUND):
        async with make(30.0).attach_actors(Actors(run, full)) as view, anyio.create_task_group() as group:
            group.start_soon(cancelled)
            await gate.begun.wait()
            scope.cancel()
            gate.go.set()


# Whose cancellation it is ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
async def test_a_keyboard_interrupt_counts_only_where_ctrl_c_can_arrive(
    local_executor: LocalExecutor, blocking: bool
) -> None:
    def sync(rendered: str, task: Task) -> None:
        raise KeyboardInterrupt

    async def on_loop(rendered: str, task: Task) -> None:
        raise KeyboardInterrupt

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(sync if blocking else on_loop, full)) as view:
            if blocking:
                error = (await view.rollout(SPEC)).error
                assert error is not None
                assert (error.kind, error.type) == ("model", "KeyboardInterrupt")
            else:
                with pytest.raises(KeyboardInterrupt):
                    await view.rollout(SPEC)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"])
@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
async def test_a_cancellation_of_the_actors_own_is_its_failure(local_executor: LocalExecutor, blocking: bool) -> None:
    def sync(rendered: str, task: Task) -> None:
        raise asyncio.CancelledError

    async def on_loop(rendered: str, task: Task) -> None:
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        broken.cancel()
        await broken

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(sync if blocking else on_loop, full)) as view:
            error = (await view.rollout(SPEC)).error
    assert error is not None
    assert (error.kind, error.stage, error.type) == ("model", "run", "CancelledError")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"])
async def test_a_native_cancellation_goes_through(local_executor: LocalExecutor) -> None:
    begun = asyncio.Event()

    async def run(rendered: str, task: Task) -> None:
        begun.set()
        await asyncio.Event().wait()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            task = asyncio.get_running_loop().create_task(view.rollout(SPEC))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"])
async def test_a_second_native_cancellation_ends_the_grace(local_executor: LocalExecutor) -> None:
    gate = Gate()
    try:
        with anyio.fail_after(BOUND):
            async with local_executor.attach_actors(Actors(gate, full)) as view:
                task = asyncio.get_running_loop().create_task(view.rollout(SPEC))
                await gate.begun.wait()
                for _ in range(2):
                    task.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert local_executor.counters() == {"abandoned_threads": 1}
    finally:
        gate.go.set()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"])
async def test_a_coroutine_that_is_closed_leaves_its_thread(local_executor: LocalExecutor) -> None:
    gate = Gate()
    try:
        with anyio.fail_after(BOUND):
            async with local_executor.attach_actors(Actors(gate, full)) as view:
                rollout = view.rollout(SPEC)
                rollout.send(None)
                await gate.begun.wait()
                rollout.close()
                assert local_executor.counters() == {"abandoned_threads": 1}
    finally:
        gate.go.set()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"])
async def test_a_cancelled_scope_counts_even_when_the_actor_took_the_native_mark_off(
    local_executor: LocalExecutor,
) -> None:
    async def run(rendered: str, task: Task) -> None:
        scope.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            current = asyncio.current_task()
            while current is not None and current.uncancel():
                pass
            raise

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            with anyio.CancelScope() as scope:
                await view.rollout(SPEC)
                pytest.fail("the cancellation was swallowed")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("trio", {})], ids=["trio"])
async def test_a_group_of_cancellations_goes_through(local_executor: LocalExecutor) -> None:
    trio = pytest.importorskip("trio")

    async def run(rendered: str, task: Task) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            with anyio.CancelScope() as scope:
                await view.rollout(SPEC)
    assert scope.cancelled_caught


def test_a_coroutine_may_be_closed_after_its_loop_has_ended() -> None:
    left: list[Any] = []

    async def leave() -> None:
        gate = Gate()
        async with ThreadPool(1, grace=0.0) as pool:
            left.append((gate, pool.run(gate, "", SPEC.task)))
            left[0][1].send(None)
            await gate.begun.wait()

    anyio.run(leave)
    gate, call = left.pop()
    call.close()
    gate.go.set()

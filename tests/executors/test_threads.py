"""The pool of daemon threads."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError, OptionError, WrongThread
from adescent.executors import ThreadExecutor
from adescent.executors.threads import ThreadPool, ThreadStatistics
from adescent.executors.wakeup import LoopBell

BOUND = 10.0


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("adescent thread")]


@pytest.mark.anyio
async def test_threads_start_on_demand_and_are_used_again() -> None:
    with anyio.fail_after(BOUND):
        async with ThreadPool(8) as pool:
            assert pool_threads() == []
            used = {await pool.run(threading.get_ident) for _ in range(20)}
            assert len(used) == len(pool_threads()) == 1
            assert all(thread.daemon for thread in pool_threads())


@pytest.mark.anyio
async def test_leaving_ends_and_joins_the_idle_threads() -> None:
    together = threading.Barrier(8)
    with anyio.fail_after(BOUND):
        async with ThreadPool(8) as pool, anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(pool.run, together.wait, BOUND)
        assert pool_threads() == []


@pytest.mark.anyio
async def test_there_are_never_more_threads_than_asked_for() -> None:
    seen: set[int] = set()
    with anyio.fail_after(BOUND):
        async with ThreadPool(3) as pool, anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(pool.run, lambda: seen.add(threading.get_ident()))
            await wait_all_tasks_blocked()
            assert len(pool_threads()) <= 3
    assert 1 <= len(seen) <= 3


@pytest.mark.anyio
async def test_the_statistics_say_what_the_threads_do() -> None:
    go = threading.Event()
    begun = [anyio.Event() for _ in range(2)]
    bell = LoopBell()

    def blocked(event: anyio.Event) -> None:
        bell.ring(event)
        go.wait(BOUND)

    with anyio.fail_after(BOUND):
        async with ThreadPool(2) as pool:
            async with anyio.create_task_group() as group:
                for event in begun:
                    group.start_soon(pool.run, blocked, event)
                for event in begun:
                    await event.wait()
                for _ in range(3):
                    group.start_soon(pool.run, int)
                await wait_all_tasks_blocked()
                assert pool.statistics() == ThreadStatistics(size=2, busy=2, idle=0, queued=3, abandoned=0)
                go.set()
            assert pool.statistics() == ThreadStatistics(size=2, busy=0, idle=2, queued=0, abandoned=0)
    assert pool.statistics() == ThreadStatistics(size=2, busy=0, idle=0, queued=0, abandoned=0)


@pytest.mark.anyio
async def test_what_a_function_raises_comes_out_and_nothing_keeps_it_alive() -> None:
    class Heavy(Exception):
        pass

    def heavy() -> None:
        raise Heavy

    async def remembered() -> weakref.ref[Heavy]:
        try:
            await pool.run(heavy)
        except Heavy as error:
            return weakref.ref(error)
        raise AssertionError("it did not raise")

    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as pool:
            gc.disable()
            try:
                assert (await remembered())() is None
            finally:
                gc.enable()


@pytest.mark.anyio
async def test_an_idle_thread_keeps_nothing_alive() -> None:
    class Heavy:
        pass

    async def used() -> weakref.ref[Heavy]:
        heavy = Heavy()
        assert await pool.run(id, heavy) == id(heavy)
        return weakref.ref(heavy)

    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as pool:
            heavy = await used()
            while heavy() is not None:  # the thread tells of the end before it lets go
                await checkpoint()


@pytest.mark.anyio
async def test_a_pool_that_is_not_open_says_so() -> None:
    pool = ThreadPool(1)
    with pytest.raises(ContractError, match="async with"):
        await pool.run(int)
    async with pool:
        pass
    with pytest.raises(ContractError, match="async with"):
        await pool.run(int)


@pytest.mark.anyio
async def test_another_loop_may_not_use_an_open_pool() -> None:
    async def use() -> None:
        await pool.run(int)

    async def enter() -> None:
        async with pool:
            pass

    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as pool:
            for misuse in (use, enter):
                with pytest.raises(WrongThread):
                    await anyio.to_thread.run_sync(anyio.run, misuse)
            assert await pool.run(int) == 0


def test_one_pool_serves_one_loop_after_the_other() -> None:
    pool = ThreadPool(2)

    async def use() -> int:
        async with pool:
            return await pool.run(int, "7")

    assert [anyio.run(use, backend=backend) for backend in ("asyncio", "trio", "asyncio")] == [7, 7, 7]


@pytest.mark.anyio
async def test_a_system_short_of_threads_is_borne_once_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    go = threading.Event()
    with anyio.fail_after(BOUND):
        async with ThreadPool(2) as pool:
            with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="new thread"):
                patched.setattr(threading.Thread, "start", refuse)
                await pool.run(int)
            assert pool.statistics().queued == 0
            async with anyio.create_task_group() as group:
                group.start_soon(pool.run, go.wait, BOUND)
                await wait_all_tasks_blocked()
                monkeypatch.setattr(threading.Thread, "start", refuse)
                group.start_soon(pool.run, go.set)
                go.set()
    assert pool_threads() == []


@pytest.mark.parametrize(
    ("size", "grace"), [(0, 1.0), (-1, 1.0), (True, 1.0), (1.5, 1.0), (1, -0.1), (1, float("nan")), (1, "1"), (1, True)]
)
def test_sizes_and_graces_that_mean_nothing_are_refused(size: Any, grace: float) -> None:
    with pytest.raises(OptionError):
        ThreadPool(size, grace)


@pytest.mark.parametrize(
    ("options", "words"), [({"n": 0}, r"ThreadExecutor\(n=0\)"), ({"thread_grace": -1}, "thread_grace=-1")]
)
def test_an_executor_names_them_as_it_calls_them(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ThreadExecutor(**{"n": 1} | options)


@pytest.mark.anyio
async def test_many_events_need_few_wake_ups() -> None:
    bell = LoopBell()
    wake_ups = 0
    call_soon = bell._call_soon

    def counted(callback: Any) -> object:
        nonlocal wake_ups
        wake_ups += 1
        return call_soon(callback)

    bell._call_soon = counted
    events = [anyio.Event() for _ in range(1000)]
    for event in events:
        bell.ring(event)
    with anyio.fail_after(BOUND):
        for event in events:
            await event.wait()
    assert wake_ups == 1


def test_ringing_for_a_loop_that_has_ended_does_nothing() -> None:
    async def leave() -> tuple[LoopBell, anyio.Event]:
        return LoopBell(), anyio.Event()

    for backend in ("asyncio", "trio"):
        bell, event = anyio.run(leave, backend=backend)
        bell.ring(event)
        assert not event.is_set()

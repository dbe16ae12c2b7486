from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio import from_thread, to_thread

from adescent.own_thread import Unwanted, in_own_thread, stop_if_unwanted

BOUND = 30.0

said: ContextVar[str] = ContextVar("said", default="nothing")


@pytest.mark.anyio
async def test_a_call_returns_and_raises_what_it_would_here(anyio_backend: Any) -> None:
    said.set("something")
    with anyio.fail_after(BOUND):
        assert await in_own_thread(divmod, 7, 2) == (3, 1)
        assert await in_own_thread(said.get) == "something"
        assert await in_own_thread(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await in_own_thread(divmod, 7, 0)


@pytest.mark.anyio
async def test_it_needs_none_of_the_hosts_threads(anyio_backend: Any) -> None:
    """Who holds the last one waits for us."""
    limiter = to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    answers = []

    def endpoint() -> None:
        answers.append(from_thread.run(in_own_thread, int, "5"))

    with anyio.fail_after(BOUND):
        await to_thread.run_sync(endpoint)
    assert answers == [5]


@pytest.mark.anyio
@pytest.mark.parametrize("pure", [True, False])
async def test_only_what_is_pure_is_left_behind(pure: bool, anyio_backend: Any) -> None:
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        let_go.wait(BOUND)
        ended.set()

    async def cancel(scope: anyio.CancelScope) -> None:
        await to_thread.run_sync(begun.wait, BOUND)
        scope.cancel()
        if not pure:  # else nobody waits for it, and it goes on after the caller did
            let_go.set()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:
            with anyio.CancelScope() as scope:
                host.start_soon(cancel, scope)
                await in_own_thread(work, pure=pure)
            assert scope.cancelled_caught is pure
            assert ended.is_set() is not pure
            let_go.set()
            await to_thread.run_sync(ended.wait, BOUND)


def test_a_host_that_cancels_natively_waits_too() -> None:
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        let_go.wait(BOUND)
        ended.set()

    async def host() -> None:
        call = asyncio.create_task(in_own_thread(work))  # noqa: TID251 - as a host would
        await to_thread.run_sync(begun.wait, BOUND)
        call.cancel()
        await asyncio.sleep(0)
        assert not call.done()
        let_go.set()
        with anyio.fail_after(BOUND), pytest.raises(asyncio.CancelledError):
            await call
        assert ended.is_set()

    asyncio.run(host())


def test_here_everything_is_wanted() -> None:
    stop_if_unwanted()


@pytest.mark.anyio
@pytest.mark.parametrize("pure", [True, False])
async def test_what_is_left_behind_ends_when_it_asks(pure: bool, anyio_backend: Any) -> None:
    begun, let_go, ended = threading.Event(), threading.Event(), threading.Event()
    ends: list[type[BaseException] | None] = []

    def work() -> None:
        stop_if_unwanted()
        begun.set()
        let_go.wait(BOUND)
        try:
            stop_if_unwanted()
            ends.append(None)
        except Unwanted:
            ends.append(Unwanted)
            raise
        finally:
            ended.set()

    async def cancel(scope: anyio.CancelScope) -> None:
        await to_thread.run_sync(begun.wait, BOUND)
        scope.cancel()
        if not pure:
            let_go.set()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:
            with anyio.CancelScope() as scope:
                host.start_soon(cancel, scope)
                await in_own_thread(work, pure=pure)
            let_go.set()
            await to_thread.run_sync(ended.wait, BOUND)
    assert ends == [Unwanted if pure else None]

"""A thread for one call: away from the event loop, and never from the host's share of threads."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event, Lock
from typing import TypeVar, TypeVarTuple, Unpack

from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class
from anyio.to_thread import run_sync

from adescent.errors import AdescentError

__all__ = ["Unwanted", "in_own_thread", "stop_if_unwanted"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_left: ContextVar[Event | None] = ContextVar("adescent_left", default=None)


class Unwanted(AdescentError):
    """Ends a call in a thread that was left to itself; nobody ever gets to see it."""


async def in_own_thread(function: Callable[[Unpack[Arguments]], T], *args: *Arguments, pure: bool = False) -> T:
    """What ``function(*args)`` returns, computed in a thread.

    A call that is cancelled is waited for, unless it is ``pure``: then its thread is left to itself and ends at the
    next `stop_if_unwanted`, which only something that changes nothing may do.
    """
    left, ended = Event(), Event()
    turn = Lock()
    begun = False

    def call() -> T:
        nonlocal begun
        with turn:
            if left.is_set():
                raise Unwanted
            begun = True
        _left.set(left if pure else None)  # in the thread's own copy of the context
        try:
            return function(*args)
        finally:
            ended.set()

    try:
        # A limiter of the call's own. The tokens of the loop's default one may all be held by the host's own threads,
        # each waiting for the very run that asks here. And it is gone with the call, so that a thread left to itself,
        # whose token anyio takes back at once, lets nobody over a limit.
        return await run_sync(call, abandon_on_cancel=pure, limiter=CapacityLimiter(1))
    except get_cancelled_exc_class():
        with turn:
            left.set()
        if begun and not pure and not ended.is_set():  # what the host cancels natively no shield of anyio's waits for
            with CancelScope(shield=True):
                await run_sync(ended.wait, limiter=CapacityLimiter(1))
        raise
    finally:
        left.set()


def stop_if_unwanted() -> None:
    """To be called every now and then by what may take long: raises in a thread that nobody waits for any more."""
    left = _left.get()
    if left is not None and left.is_set():
        raise Unwanted

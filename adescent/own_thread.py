"""A thread for one call: away from the event loop, and never from the host's share of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

__all__ = ["in_own_thread"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_own_thread(function: Callable[[Unpack[Arguments]], T], *args: *Arguments, pure: bool = False) -> T:
    """What ``function(*args)`` returns, computed in a thread.

    A call that is cancelled is waited for, unless it is ``pure``: then its thread is left to finish for nobody, which
    only something that changes nothing and ends soon by itself may do.
    """
    # A limiter of the call's own. The tokens of the loop's default one may all be held by the host's own threads, each
    # waiting for the very run that asks here. And it is gone with the call, so that an abandoned thread, whose token
    # anyio takes back at once, lets nobody over a limit.
    return await run_sync(function, *args, abandon_on_cancel=pure, limiter=CapacityLimiter(1))

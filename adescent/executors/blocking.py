"""Running async code to its end from a script, and telling whether that is possible here."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TypeVar

import anyio
import sniffio

from adescent.errors import LoopRunning

__all__ = ["run_blocking"]

Returned = TypeVar("Returned")


def run_blocking(function: Callable[[], Awaitable[Returned]], *, name: str, instead: str) -> Returned:
    """Await ``function()`` in an event loop of its own and return what it returns.

    Raises LoopRunning, which says that ``name`` blocks and ``instead`` can be awaited, when this thread runs a loop.
    """
    if _loop_runs_here():
        raise LoopRunning(name, instead)
    context = copy_context()
    # A thread that a host has started may have inherited the context of the host's loop, and with it that loop's name.
    context.run(sniffio.current_async_library_cvar.set, None)
    return context.run(anyio.run, function)


def _loop_runs_here() -> bool:
    """Of this thread, not of its context, and also in a callback, where a loop runs and no task does."""
    if sniffio.thread_local.name is not None:
        return True
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

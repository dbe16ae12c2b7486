"""Waking tasks of the event loop: from other threads, many in one go, and from the loop itself, at little cost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import anyio
from anyio.lowlevel import checkpoint, current_token

__all__ = ["LoopBell", "OneShot", "one_shots"]


class LoopBell:
    """Sets events of the loop it was made in, from any thread.

    Waking a loop costs a system call, so events that are set while a wake-up is already on its way ride along with it.
    """

    def __init__(self) -> None:
        native: Any = current_token().native_token
        # The loops' own thread-safe entries; anyio's portal also waits for an answer, and costs a thread switch more.
        self._call_soon: Callable[[Callable[[], None]], object] = (
            native.call_soon_threadsafe if hasattr(native, "call_soon_threadsafe") else native.run_sync_soon
        )
        self._lock = threading.Lock()
        self._rung: list[anyio.Event] = []

    def ring(self, event: anyio.Event) -> None:
        """Set ``event`` soon. Once the loop has ended this does nothing: nobody waits there any more."""
        with self._lock:
            on_its_way = bool(self._rung)
            self._rung.append(event)
        if not on_its_way:
            try:
                self._call_soon(self._set_all)
            except RuntimeError:  # both loops say so when they are closed
                pass

    def _set_all(self) -> None:
        with self._lock:
            rung, self._rung = self._rung, []
        for event in rung:
            event.set()


class OneShot(Protocol):
    """Set once or more, in the thread of the loop; at most one task waits for that."""

    def set(self) -> None:
        """Wake whoever waits, now or later."""

    async def wait(self) -> None:
        """Wait until it is set."""


def one_shots() -> Callable[[], OneShot]:
    """What makes them for the loop that runs here: anyio's events, or on asyncio futures.

    An event there looks up twice which loop runs, and keeps a line of waiters, which is felt with every rollout.
    """
    native: Any = current_token().native_token
    return partial(_Future, native) if hasattr(native, "create_future") else anyio.Event


class _Future:
    __slots__ = ("_future",)

    def __init__(self, loop: Any) -> None:
        self._future = loop.create_future()

    def set(self) -> None:
        if not self._future.done():  # set before, or cancelled with the task that waited
            self._future.set_result(None)

    async def wait(self) -> None:
        if self._future.done():
            await checkpoint()
        else:
            await self._future

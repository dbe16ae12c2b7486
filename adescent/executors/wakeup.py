"""Waking tasks of the event loop from other threads, many in one go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import current_token

__all__ = ["LoopBell"]


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

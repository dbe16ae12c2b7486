"""How a worker's event loop has plain functions called in the main thread, where they are at home."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import anyio
from anyio import CancelScope
from sniffio import current_async_library_cvar

from adescent.executors.child.copies import Original
from adescent.executors.results import contained
from adescent.executors.wakeup import LoopBell

__all__ = ["Desk"]


class _Call:
    """One call of a plain function; ``finished`` once it has returned or raised."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.finished = anyio.Event()
        self._function = function
        self._args = args
        self._context = copy_context()
        self._context.run(current_async_library_cvar.set, None)  # there is no loop where it will be called
        self._returned: Any = None
        self._error: Exception | None = None

    def perform(self) -> None:
        try:
            self._returned = self._context.run(contained, self._function, *self._args)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            self._error = error

    def result(self) -> Any:
        if self._error is None:
            return self._returned
        try:
            raise self._error
        finally:
            self._error = None  # or error and traceback would hold each other


class Desk:
    """Made in the main thread, which serves it; asked from the loop that another thread runs.

    Plain functions may use signals, which only the main thread can, and start event loops, which they can only where
    none runs. They are called one at a time, in the order in which they were asked for.
    """

    def __init__(self, original: Original) -> None:
        self._original = original
        self._calls: SimpleQueue[tuple[_Call, LoopBell] | None] = SimpleQueue()
        self._bell: LoopBell | None = None
        self._turn = anyio.Lock(fast_acquire=True)

    def serve(self) -> None:
        """Make calls until there will be no more."""
        while (asked := self._calls.get()) is not None:
            call, bell = asked
            call.perform()
            self._original.end_copy()  # it has no loop that could be answered
            bell.ring(call.finished)
            del asked, call  # while nothing is asked, nothing is kept alive

    def close(self) -> None:
        """End `serve`; whatever is asked from now on gets no answer."""
        self._calls.put(None)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function returns, or raises. Raises Exceptions only, but for a cancellation before it begins."""
        async with self._turn:
            self._bell = self._bell or LoopBell()
            call = _Call(function, args)
            self._calls.put((call, self._bell))
            with CancelScope(shield=True):  # the function cannot be stopped; who cannot wait ends the process
                await call.finished.wait()
            return call.result()

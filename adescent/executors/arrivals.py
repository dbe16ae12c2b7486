"""A stream of results in which only whoever has to wait does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import anyio
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import ObjectReceiveStream

from adescent.workspec import Result

__all__ = ["ReaderLeft", "ResultStream"]


class ReaderLeft(BrokenResourceError):
    """Nobody reads the results any more: told from what an executor, or whatever makes the specs, may raise."""


class ResultStream(ObjectReceiveStream[Result]):
    """Results in the order in which they came. Holds at most ``room`` of them that nobody has taken.

    An anyio memory stream does the same and gives up the loop for every item, which costs as much as the rest of a
    rollout that does nothing. Here a reader takes what is there, never more than ``room`` without a wait.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._results: deque[Result] = deque()
        self._changed = anyio.Event()
        self._ended = False
        self._closed = False

    async def put(self, results: Iterable[Result]) -> None:
        """Add results, each as soon as there is room for it. Raises ReaderLeft once the stream is closed."""
        for result in results:
            while len(self._results) >= self._room and not self._closed:
                await self._change()
            if self._closed:
                raise ReaderLeft
            self._results.append(result)
            self._changed.set()

    def end(self) -> None:
        """There will be no more."""
        self._ended = True
        self._changed.set()

    async def receive(self) -> Result:
        """The next result. Raises EndOfStream after the last one, ClosedResourceError on a closed stream."""
        while not self._closed:
            if self._results:
                result = self._results.popleft()
                self._changed.set()
                return result
            if self._ended:
                raise EndOfStream
            await self._change()
        raise ClosedResourceError

    async def aclose(self) -> None:
        """Read no more."""
        self.close()

    def close(self) -> None:
        """Read no more: what is still there is dropped, and whoever adds is told."""
        self._closed = True
        self._results.clear()
        self._changed.set()

    async def _change(self) -> None:
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()

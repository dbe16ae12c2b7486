"""Delivers events to whoever watches, without ever waiting for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from adescent.telemetry.events import Event

__all__ = ["EventHub"]

BUFFER = 4096
"""Events a subscriber may lag behind before the newest are dropped for it."""


class EventHub:
    """Fan-out to bounded streams, one a subscriber. A slow subscriber loses events, which are counted; the run goes on."""

    def __init__(self, buffer: int = BUFFER) -> None:
        self._buffer = buffer
        self._streams: list[MemoryObjectSendStream[Event]] = []
        self._closed = False
        self.dropped = 0

    @property
    def watched(self) -> bool:
        """Whether anyone is listening: where nobody is, no event need be made."""
        return bool(self._streams)

    def emit(self, make: Callable[[], Event]) -> None:
        """Deliver ``make()`` to every subscriber that has room. It is not called when nobody listens."""
        if not self._streams:
            return
        event = make()
        for stream in tuple(self._streams):
            try:
                stream.send_nowait(event)
            except anyio.WouldBlock:
                self.dropped += 1
            except anyio.BrokenResourceError:
                self._streams.remove(stream)
                stream.close()

    def open(self) -> MemoryObjectReceiveStream[Event]:
        """A new receive stream from now on; it ends when the run does. The caller closes it."""
        send, receive = anyio.create_memory_object_stream[Event](self._buffer)
        if self._closed:
            send.close()
        else:
            self._streams.append(send)
        return receive

    @asynccontextmanager
    async def subscription(self) -> AsyncIterator[MemoryObjectReceiveStream[Event]]:
        """`open` as a context manager."""
        receive = self.open()
        with receive:
            yield receive

    def close(self) -> None:
        """End every stream. Events already buffered can still be read."""
        self._closed = True
        for stream in self._streams:
            stream.close()
        self._streams.clear()

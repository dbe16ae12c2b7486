"""Delivers events to whoever watches, without ever waiting for them."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from adescent.telemetry.events import Event

__all__ = ["Emit", "EventHub"]

Emit = Callable[[Callable[[float], Event]], None]
"""Takes a maker of an event, which is called with the seconds since the run began, or not at all."""

BUFFER = 4096
"""Events a subscriber may lag behind before the newest are dropped for it."""


class EventHub:
    """Fan-out to bounded streams, one a subscriber, and the clock of the run they report on.

    A slow subscriber loses events, which are counted in ``dropped``; the run goes on.
    """

    def __init__(self, buffer: int = BUFFER) -> None:
        self._buffer = buffer
        self._streams: list[MemoryObjectSendStream[Event]] = []
        self._began = time.monotonic()
        self._closed = False
        self.dropped = 0

    def elapsed(self) -> float:
        """Seconds since the hub was made, which is when its run began."""
        return time.monotonic() - self._began

    def emit(self, make: Callable[[float], Event]) -> None:
        """Deliver ``make(elapsed)`` to every subscriber that has room. It is not called when nobody listens."""
        if not self._streams:
            return
        event = make(self.elapsed())
        for stream in tuple(self._streams):
            try:
                stream.send_nowait(event)
            except anyio.WouldBlock:
                self.dropped += 1
            except anyio.BrokenResourceError:
                self._streams.remove(stream)
                stream.close()

    def open(self) -> MemoryObjectReceiveStream[Event]:
        """A new receive stream of what happens from now on; it ends when the run does. The caller closes it."""
        send, receive = anyio.create_memory_object_stream[Event](self._buffer)
        if self._closed:
            send.close()
        else:
            self._streams.append(send)
        return receive

    def close(self) -> None:
        """End every stream. Events already buffered can still be read."""
        self._closed = True
        for stream in self._streams:
            stream.close()
        self._streams.clear()

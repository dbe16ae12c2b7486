"""A worker's end of the two pipes that lead to its parent."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Iterator

from adescent.executors.child.copies import Original
from adescent.executors.framing import FrameDecoder, frame
from adescent.executors.wire import Message, decode, encode

__all__ = ["Channel"]

FEW_BYTES, MANY_BYTES = 2**16, 2**20
"""To ask for many costs, even if only few come: that is done after a read that got all it asked for."""


class Channel:
    """Messages from and to the parent. Receives in one thread, sends from any. A copy of the process ends instead."""

    def __init__(self, receiving: int, sending: int) -> None:
        self.receiving = receiving
        self.original = Original()
        self._sending = sending
        self._arriving = select.poll()
        self._arriving.register(receiving, select.POLLIN)
        self._decoder = FrameDecoder()
        self._at_once = FEW_BYTES
        self._unsent: deque[tuple[bytes, bytes]] = deque()
        self._at_the_pipe = threading.Lock()
        os.register_at_fork(after_in_child=self._close)  # a copy of this process must not speak or listen for it

    def receive(self) -> Iterator[Message]:
        """Wait until something arrives; the messages that it completes, of which there may be none.

        Raises EOFError when there will be no more, WireError for what is no message.
        """
        self.original.end_copy()
        data = os.read(self.receiving, self._at_once)
        if not data:
            raise EOFError
        self._at_once = MANY_BYTES if len(data) == self._at_once else FEW_BYTES
        return map(decode, self._decoder.feed(data))

    def arrived(self) -> Iterator[Message]:
        """What can be had without waiting. Raises as `receive` does."""
        while self._arriving.poll(0):
            yield from self.receive()

    def send(self, message: Message) -> None:
        """Put a message on its way, and wait until the pipe has taken it unless somebody else is at the pipe.

        Whoever is there writes this one too: so no message is cut in two by another thread, nor by a signal's handler
        that prints. Raises WireError when the message cannot be sent, OSError when the parent is gone.
        """
        self.original.end_copy()
        self._unsent.append(frame(encode(message)))
        while self._unsent and self._at_the_pipe.acquire(blocking=False):
            try:
                while self._unsent:
                    self._write(*self._unsent.popleft())
            finally:
                self._at_the_pipe.release()

    def _write(self, header: bytes, message: bytes) -> None:
        size = len(header) + len(message)
        written = os.writev(self._sending, (header, message))
        if written < size:
            rest = memoryview(header + message)[written:]
            while rest:
                rest = rest[os.write(self._sending, rest) :]

    def _close(self) -> None:
        os.close(self.receiving)
        os.close(self._sending)

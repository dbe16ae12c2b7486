"""Frames on a pipe, without the pipe: four bytes of length (big-endian), then that many bytes of message."""

from __future__ import annotations

from collections.abc import Iterator

from adescent.errors import WireError

__all__ = ["MAX_FRAME", "FrameDecoder", "frame"]

HEADER = 4
MAX_FRAME = 64 * 2**20
"""Bytes of the largest message. A length beyond it is refused before anything of the message is kept."""


def frame(message: bytes, limit: int = MAX_FRAME) -> tuple[bytes, bytes]:
    """The header and the message, apart, so that a large one is not copied. Raises WireError beyond ``limit``."""
    if len(message) > limit:
        raise WireError(f"a message of {len(message)} bytes is too large to be sent: the limit is {limit}.")
    return len(message).to_bytes(HEADER, "big"), message


class FrameDecoder:
    """Cuts a stream of bytes into messages, however it arrives in pieces."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in what was read; the messages that it completes. Raises WireError for a frame beyond the limit."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= HEADER:
                size = int.from_bytes(buffer[start : start + HEADER], "big")
                if size > self._limit:
                    raise WireError(f"a frame announces {size} bytes: the limit is {self._limit}.")
                end = start + HEADER + size
                if len(buffer) < end:
                    break
                message = bytes(memoryview(buffer)[start + HEADER : end])
                start = end
                yield message
        finally:
            del buffer[:start]

    def finish(self) -> None:
        """The stream has ended. Raises WireError when it did so in the middle of a frame."""
        if self._buffer:
            raise WireError(f"the stream ended in the middle of a frame, {len(self._buffer)} bytes into it.")

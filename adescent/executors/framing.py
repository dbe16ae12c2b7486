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
    """Cuts a stream of bytes into messages, however it arrives in pieces.

    A message that arrives whole is not copied; of one that does not, each byte is, once.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._wanted = HEADER
        self._in_message = False
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The messages that ``data`` completes; to be read to the end, since reading is what takes the data in.

        What comes back looks into the data that was fed, and keeps all of it while it is held. Raises WireError for a
        frame beyond the limit, in its place among the messages.
        """
        rest = memoryview(data)
        while rest:
            if not self._kept and len(rest) >= self._wanted:
                part, rest = rest[: self._wanted], rest[self._wanted :]
            else:
                missing = self._wanted - len(self._kept)
                self._kept += rest[:missing]
                if len(self._kept) < self._wanted:
                    return
                part, rest = memoryview(self._kept), rest[missing:]
                self._kept = bytearray()
            if not self._in_message:
                self._expect(int.from_bytes(part, "big"))
                if self._wanted:
                    continue
                part = part[:0]
            self._in_message, self._wanted = False, HEADER
            yield part

    def _expect(self, size: int) -> None:
        if size > self._limit:
            raise WireError(f"a frame announces {size} bytes: the limit is {self._limit}.")
        self._in_message, self._wanted = True, size

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
        self._kept = bytearray()
        """The beginning of a frame whose end has not come yet."""

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The messages that ``data`` completes; to be read to the end, since reading is what takes the data in.

        What comes back looks into the data that was fed, and keeps all of it while it is held. Raises WireError for a
        frame beyond the limit, in its place among the messages.
        """
        rest = memoryview(data)
        if self._kept:
            rest = self._complete(HEADER, rest)
            if len(self._kept) >= HEADER:
                end = self._end_of_frame(self._kept, 0)
                rest = self._complete(end, rest)
                if len(self._kept) == end:
                    whole, self._kept = self._kept, bytearray()
                    yield memoryview(whole)[HEADER:]
        start, size = 0, len(rest)
        while size - start >= HEADER:
            end = self._end_of_frame(rest, start)
            if end > size:
                break
            yield rest[start + HEADER : end]
            start = end
        self._kept += rest[start:]

    def _complete(self, size: int, rest: memoryview) -> memoryview:
        """Move what is missing to that size, as far as it has come; what is left of the rest."""
        missing = max(0, size - len(self._kept))
        self._kept += rest[:missing]
        return rest[missing:]

    def _end_of_frame(self, data: bytearray | memoryview, start: int) -> int:
        size = int.from_bytes(data[start : start + HEADER], "big")
        if size > self._limit:
            raise WireError(f"a frame announces {size} bytes: the limit is {self._limit}.")
        return start + HEADER + size

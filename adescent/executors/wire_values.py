"""How many values a message holds, found out before any of them is made.

A byte on the wire can become an object of seventy: frames of the size that is let through could fill the memory of
whoever receives them, and keep its event loop busy for half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["MAX_VALUES", "holds_too_many"]

MAX_VALUES = 2**18
"""Values in one message: texts, numbers, true, false, null, and the arrays and objects that hold them."""

_LENGTH_FOLLOWS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""By first byte: how many bytes say the length of what follows (bytes, extensions, texts)."""
_EXTENSIONS = (0xC7, 0xC8, 0xC9)


def holds_too_many(data: bytes | memoryview) -> bool:
    """Whether there are more than `MAX_VALUES`. A small message cannot, so only a large one is walked through."""
    if len(data) <= MAX_VALUES:
        return False
    sizes, at, end = _SIZES, 0, len(data)
    for _ in range(MAX_VALUES):
        if at >= end:
            return False
        first = data[at]
        at += sizes[first] or _size_of_long(data, at, first)
    return at < end


def _size_of_long(data: bytes | memoryview, at: int, first: int) -> int:
    width = _LENGTH_FOLLOWS[first]
    length = int.from_bytes(data[at + 1 : at + 1 + width], "big")
    return 1 + width + length + (first in _EXTENSIONS)


def _sizes() -> Iterator[int]:
    """Bytes of each value by the first of them, of arrays and objects their head alone; 0: it says so itself.

    See https://github.com/msgpack/msgpack/blob/master/spec.md.
    """
    fixed = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    fixed |= {0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18, 0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
    for first in range(256):
        if 0xA0 <= first < 0xC0:
            yield 1 + (first & 0x1F)  # a short text
        elif first in _LENGTH_FOLLOWS:
            yield 0
        else:
            yield fixed.get(first, 1)


_SIZES = tuple(_sizes())

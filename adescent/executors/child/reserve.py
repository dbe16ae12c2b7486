"""Memory put aside, so that a rollout which has used up all there was can still be told of."""

from __future__ import annotations

import gc
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

__all__ = ["Reserve"]

BYTES = 4 * 2**20
"""Enough to put a traceback into words: the interpreter itself asks for a mebibyte at a time."""


class Reserve:
    """Counts against the limit on memory and takes none, since nothing is ever written to it."""

    def __init__(self) -> None:
        self._held = _mapped()

    def release(self) -> None:
        """There is that much room now."""
        self._held.close()

    def renew(self) -> None:
        """Put it aside again if it was released. Raises OSError when there is no room for it."""
        if self._held.closed:
            gc.collect()  # what has filled the memory may be part of a cycle
            self._held = _mapped()


def _mapped() -> mmap:
    return mmap(-1, BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)

"""One writer at a time, among threads and processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["file_lock"]


@contextmanager
def file_lock(path: str) -> Iterator[None]:
    """Hold an exclusive lock on a file, made if need be; waits for whoever holds it.

    Every use opens the file anew, since a lock belongs to an open file: two threads exclude each other as two processes
    do, and the lock of a killed process is gone with it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

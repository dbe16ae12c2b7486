"""Named pipes as locks of one process at a time: they end with their holder, and their end can be waited for.

Whoever has the pipe open for writing and locked holds it. When the kernel closes that file, because it was told to or
because the process is gone, it drops the lock first and only then tells those who have the pipe open for reading that
nobody writes to it any more. So whoever opens it for reading, then finds it held and waits, misses nothing.

A watch on a file (inotify) promises no such thing: it is told of the closing *before* the lock is dropped (the order is
that of ``__fput`` in the kernel's ``fs/file_table.c``).
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

from anyio import wait_readable

__all__ = ["PipeWatch", "hold_pipe", "is_held"]

HOLDING = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
WATCHING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

# Locks of an open file and not of a process, so that two parts of one process exclude each other too; and of this
# kind, because one can look whether they are held without taking them, which would be in the way of others.
_LOCK = struct.Struct("hhqqi4x")  # type, whence, start, length (0: all), process (0)
_TO_HOLD = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_TO_LOOK = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


def hold_pipe(path: Path) -> int | None:
    """The open file that holds the pipe until it is closed; None where it is held already."""
    holding = os.open(path, HOLDING)
    try:
        fcntl.fcntl(holding, fcntl.F_OFD_SETLK, _TO_HOLD)
    except BlockingIOError:
        os.close(holding)
        return None
    except BaseException:
        os.close(holding)
        raise
    return holding


def is_held(watching: int) -> bool:
    """Whether somebody holds the pipe that is open for reading."""
    kind: int = _LOCK.unpack(fcntl.fcntl(watching, fcntl.F_OFD_GETLK, _TO_LOOK))[0]
    return kind != fcntl.F_UNLCK


class PipeWatch:
    """Pipes of which one waits for the next to be let go."""

    def __init__(self) -> None:
        self._watching: list[int] = []

    def __enter__(self) -> Self:
        self._changes = select.epoll()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._changes.close()
        for watching in self._watching:
            os.close(watching)

    def add(self, path: Path) -> int:
        """Open a pipe for `is_held`, until the watch ends. Raises FileNotFoundError."""
        watching = os.open(path, WATCHING)
        self._watching.append(watching)
        # Each letting go is told once: one that is of no use to who waits would else be told without an end.
        self._changes.register(watching, select.EPOLLIN | select.EPOLLET)
        return watching

    async def change(self) -> None:
        """Wait until a pipe has been let go since it was added, or since this returned last."""
        await wait_readable(self._changes.fileno())
        self._changes.poll(0)

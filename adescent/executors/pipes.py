"""The pipes between this process and a worker, and the one by which the worker hears of this process's end."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Sequence

__all__ = ["PIPE_BYTES", "close_all", "pipe_from", "pipe_to", "tie"]

PIPE_BYTES = 2**20
"""What a pipe holds, where the system allows so much."""

_lifelines: set[int] = set()


def pipe_to(theirs: list[int], mine: list[int]) -> int:
    """A pipe to a worker: its two ends are added to the lists, and this process's end is returned."""
    read, write = _pipe()
    theirs.append(read)
    mine.append(write)
    os.set_blocking(write, False)
    return write


def pipe_from(theirs: list[int], mine: list[int]) -> int:
    """As `pipe_to`, in the other direction."""
    read, write = _pipe()
    theirs.append(write)
    mine.append(read)
    os.set_blocking(read, False)
    return read


def close_all(ends: Sequence[int]) -> None:
    """Close these descriptors. What is left of a group whose lifeline is among them is killed."""
    _lifelines.difference_update(ends)
    for end in ends:
        os.close(end)


def tie(mine: int, theirs: int, group: int) -> None:
    """Have the kernel kill a process group when ``mine``, an end of a pipe whose other end is ``theirs``, is closed.

    A worker does that for itself as well, where it has a group of another number; this is for one that hangs before.
    """
    fcntl.fcntl(theirs, fcntl.F_SETOWN, -group)
    fcntl.fcntl(theirs, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(theirs, fcntl.F_SETFL, fcntl.fcntl(theirs, fcntl.F_GETFL) | os.O_ASYNC)
    _lifelines.add(mine)


def _cut_in_a_copy() -> None:
    while _lifelines:
        os.close(_lifelines.pop())


# Or a copy of this process, forked by whoever else uses it, would keep the workers alive when this process has ended.
os.register_at_fork(after_in_child=_cut_in_a_copy)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    try:
        fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:  # the user's share of large pipes is used up: the usual size does as well
        pass
    return ends

"""What a worker process does with its descriptors before anything else runs in it.

It lives no longer than its parent, and what user code reads from or writes to the standard descriptors is no message.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal

__all__ = ["StandardDescriptors", "out_of_reach", "tie_to_parent"]

OUT_OF_REACH = 200
"""Descriptors from here on: those of a program that opens a few files, or tidies up the low ones, are below.

Where no more than twice as many may be open, from half of those on."""


def tie_to_parent() -> None:
    """Have the kernel kill this process group when descriptor 0, a pipe to which nothing is written, is closed.

    That reaches code which holds the interpreter's lock for ever, and what it has started, which a thread of this
    process would not. The pipe is then moved aside, and 0 reads nothing.
    """
    if os.getpgid(0) != os.getpid():  # in a pid namespace the group may be one that has no number there
        os.setpgid(0, 0)
    fcntl.fcntl(0, fcntl.F_SETOWN, -os.getpgid(0))
    fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    ended = select.poll()
    ended.register(0, select.POLLHUP)
    if ended.poll(0):  # it came before the kernel knew whom to tell
        os.killpg(0, signal.SIGKILL)
    _moved(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def out_of_reach(descriptor: int) -> int:
    """The new number of a descriptor that is moved to where nobody stumbles over it, and that no program inherits."""
    moved = _moved(descriptor)
    os.close(descriptor)
    return moved


class StandardDescriptors:
    """What 0, 1 and 2 are, kept: the next file that is opened has the number of one that user code has closed."""

    def __init__(self) -> None:
        self._kept = [_moved(number) for number in range(3)]

    def restore(self) -> None:
        """Put them back. Whether that is needed would cost more to find out."""
        for number, kept in enumerate(self._kept):
            os.dup2(kept, number)


def _moved(descriptor: int) -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = OUT_OF_REACH if most == resource.RLIM_INFINITY else min(OUT_OF_REACH, most // 2)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)

"""What a worker does to itself before it runs anything of anyone: its resource limits, and what its level adds.

A limit counts for each process: children inherit it and count anew. So none of them bounds what many processes take
together, nor shared memory; and a process that runs as root with its capabilities may lift them (at ``limits``).
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Sequence
from pathlib import Path

from adescent.errors import SandboxUnavailable
from adescent.workspec import Level

__all__ = ["allow_cpu", "confine"]

FILE_BYTES = 256 << 20
"""The largest file that can be written."""
OPEN_FILES, MOST_OPEN_FILES = 1024, 4096
MOST_SECONDS, MOST = 2.0**31, 2**62
"""What the kernel can count with."""
PROCESSES = 512
"""Processes and threads of one sandbox; where they cannot be told from others of the same user, on top of those."""


def confine(level: Level, *, workspace: str, memory_mb: int | None, network: bool, readable: Sequence[str]) -> Level:
    """Confine this process, and what it starts later, to ``level``; for good. Returns the level.

    Call it before there is a second thread. From ``landlock`` on ``readable`` are the files and directories that may be
    read, the `interpreter_paths` among them, and what is written is written in ``workspace``. Raises OSError when the
    system refuses a step, and SandboxUnavailable when the level is not what it is called.
    """
    if level == "none":
        return level
    _limit_resources(memory_mb, own_count=level == "bubblewrap")
    if level == "landlock":
        from adescent.sandbox.landlock import restrict

        restrict(workspace=workspace, network=network, readable=readable)
    elif level == "bubblewrap":
        _complete_bubblewrap(network=network)
    return level


def allow_cpu(seconds: float | None) -> None:
    """Let this process use ``seconds`` of processor time from now on (at least one, rounded up), then SIGXCPU ends it.

    None: as much as it could at first. May be called again and again, to allow more or less. That is for code that runs
    away; code that means to can ignore the signal or raise the limit, and meets the rollout's deadline.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    if seconds is None:
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    allowed = math.ceil(used.ru_utime + used.ru_stime + min(max(1.0, seconds), MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_CPU, (_lesser(allowed, most), most))


def _limit_resources(memory_mb: int | None, *, own_count: bool) -> None:
    _lower(resource.RLIMIT_CORE, 0, 0)
    _lower(resource.RLIMIT_FSIZE, FILE_BYTES, FILE_BYTES)
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES, MOST_OPEN_FILES)
    if memory_mb is not None:
        # Not the address space (RLIMIT_AS): numeric libraries reserve much more of it than they ever use.
        _lower(resource.RLIMIT_DATA, memory_mb << 20, memory_mb << 20)
    processes = PROCESSES if own_count else _running() + PROCESSES
    _lower(resource.RLIMIT_NPROC, processes, processes)


def _lower(which: int, soft: int, hard: int) -> None:
    soft_now, hard_now = resource.getrlimit(which)
    resource.setrlimit(which, (_lesser(soft, soft_now), _lesser(hard, hard_now)))


def _lesser(limit: int, other: int) -> int:
    return min(limit, MOST if other == resource.RLIM_INFINITY else other)


def _running() -> int:
    """How many processes and threads the machine runs: at least as many as the kernel counts for this user."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):  # no /proc: then the most a user has by default
        return 4096


def _complete_bubblewrap(*, network: bool) -> None:
    # What bwrap starts is the child of its namespace's first process. The session's leader is outside, and so has no
    # number here; that alone would also be true deep in a container that was entered without a session of its own.
    if os.getppid() != 1 or os.getsid(0) != 0:
        raise SandboxUnavailable("bubblewrap", "limits", "start the worker by what bubblewrap_command() returns.")
    from adescent.sandbox.privileges import drop_privileges, leave_root
    from adescent.sandbox.seccomp import INTERNET, UNIX, filter_calls

    if os.getuid() == 0:
        leave_root()
    drop_privileges()
    # Without a network all there is are its own sockets; with it, unix sockets may be those of programs outside.
    filter_calls(families=INTERNET if network else INTERNET + UNIX)

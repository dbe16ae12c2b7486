"""Landlock: the kernel keeps this process to the files it was given, and what it starts.

=====  ======  ==============================================================
ABI    Linux   what it adds
=====  ======  ==============================================================
1      5.13    files: read, write, execute, make, remove
2, 3   6.2     renaming between directories; truncating
4      6.7     TCP: binding and connecting
5      6.10    ioctl on devices
6      6.12    abstract unix sockets of, and signals to, processes outside
=====  ======  ==============================================================

Not covered: sockets other than TCP's (the filter of system calls refuses them); what a file is called, its size and
age; and changing mode and times of a file that belongs to the same user.
See https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from stat import S_ISDIR

from adescent.errors import SandboxUnavailable
from adescent.sandbox import seccomp
from adescent.sandbox.privileges import drop_privileges
from adescent.sandbox.reading import NETWORK, SYSTEM
from adescent.sandbox.syscalls import syscall

__all__ = ["missing", "restrict"]

LEAST_ABI = 3
"""Before it, any file can be emptied."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_FILE_RIGHTS = {3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All that the ABI knows; it has brought none since."""
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 1 | 1 << 1
_SIGNALS_AND_ABSTRACT_SOCKETS = 1 | 1 << 1

_DEVICES = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_THREADS = Path("/proc/self/task")
_PROC = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime")


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def restrict(*, workspace: str, network: bool, readable: Sequence[str]) -> None:
    """Keep this process to reading ``readable`` and what programs need, and to writing in ``workspace``.

    Unless ``network``, it makes no socket but pairs of them. Of the directories on ``sys.path`` names may be listed:
    imports look there. As root it gives up all capabilities: they reach around. Raises SandboxUnavailable without
    Landlock, or beside another thread, whom none of this would bind; OSError when the kernel refuses.
    """
    abi = _abi()
    if wanting := _wanting(abi):
        raise SandboxUnavailable("landlock", "limits", wanting)
    if len(list(_THREADS.iterdir())) > 1:
        raise SandboxUnavailable("landlock", "limits", "confine the worker before it has a second thread.")
    rights = _FILE_RIGHTS[min(abi, max(_FILE_RIGHTS))]
    ruleset = _new_ruleset(abi, rights, network=network)
    try:
        shown = [*SYSTEM, *(NETWORK if network else ()), *_DEVICES, *_PROC, *readable]
        _allow(ruleset, shown, _READ)
        _allow(ruleset, sys.path, _READ_DIR)
        _allow(ruleset, ["/dev/null"], _READ_FILE | _WRITE_FILE | _TRUNCATE)
        _allow(ruleset, [workspace], rights & ~_MAKE_DEVICES)
        _enforce(ruleset, network=network)
    finally:
        os.close(ruleset)


@cache
def missing() -> str:
    """What this machine lacks for the level, in words; empty when a trial has shown that it works."""
    if wanting := _wanting(_abi()):
        return wanting
    if not _THREADS.is_dir():
        return "there is no /proc to count threads in: mount it."
    outcome: list[str] = []
    # A thread's restrictions end with it: no process is needed to try them.
    trial = threading.Thread(target=lambda: outcome.append(_trial()), name="trial of Landlock")
    trial.start()
    trial.join()
    return outcome[0] if outcome else "Landlock could not be tried out."


def _trial() -> str:
    try:
        ruleset = _new_ruleset(LEAST_ABI, _FILE_RIGHTS[LEAST_ABI], network=False)
        try:
            _enforce(ruleset, network=False)
        finally:
            os.close(ruleset)
    except OSError as error:
        return f"Landlock cannot be applied ({error.strerror}): let the container's seccomp profile pass it."
    try:
        os.scandir("/").close()
    except PermissionError:
        return ""
    return "Landlock is applied without effect; use a kernel that enforces it."


def _wanting(abi: int) -> str:
    if abi >= LEAST_ABI:
        return seccomp.missing()
    if abi:
        return f"the kernel has Landlock's ABI {abi} and {LEAST_ABI} is needed: use Linux 6.2 or newer (best 6.12)."
    return "the kernel has no Landlock: use Linux 6.2 or newer with `landlock` among its security modules (lsm=…)."


@cache
def _abi() -> int:
    try:
        return syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except (OSError, AttributeError):  # not built in, not enabled, or filtered; or no Linux at all
        return 0


def _new_ruleset(abi: int, rights: int, *, network: bool) -> int:
    attr = _RulesetAttr(rights)
    if abi >= 4 and not network:
        attr.handled_access_net = _TCP
    if abi >= 6:
        attr.scoped = _SIGNALS_AND_ABSTRACT_SOCKETS
    # What an older kernel does not know stays zero: then it takes the longer record.
    return syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in dict.fromkeys(paths):
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # what is not there needs no permission
            continue
        try:
            allowed = rights if S_ISDIR(os.fstat(parent).st_mode) else rights & _OF_A_FILE
            if allowed:
                attr = _PathBeneathAttr(allowed, parent)
                syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(attr), 0)
        finally:
            os.close(parent)


def _enforce(ruleset: int, *, network: bool) -> None:
    drop_privileges()
    syscall(_RESTRICT_SELF, ruleset, 0)
    seccomp.filter_calls(families=seccomp.INTERNET if network else ())

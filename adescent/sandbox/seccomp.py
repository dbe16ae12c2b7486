"""A filter of system calls: it closes what goes around namespaces and Landlock.

=================================  ============================================================================
refused                            because
=================================  ============================================================================
``socket`` of other families       Landlock knows TCP's bind and connect only: UDP, multipath TCP and a fast open would
than those that are named          pass, and so would the sockets of other programs (containers, desktop) and of the
                                   machine that runs this one. Pairs of sockets are no matter of it, they work
``prlimit64`` of others            the parent's own limits could be lowered until it is killed
``io_uring_setup``                 a ring makes sockets, and the filter does not see it
key rings                          those of the session hold what nobody handed in
``ptrace`` and its kin             a sandbox ends with its first process, which is the same user's where there is no
                                   root: as its debugger one could have it live on, with all that runs in there
System V's shared memory and       those of other programs have no file that could be closed to it, and what is left
queues, POSIX queues               in them stays
new user namespaces                there a process may try everything that root may
=================================  ============================================================================

The filter stays with this thread and all it starts. See ``Documentation/userspace-api/seccomp_filter.rst`` of Linux.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

from adescent.sandbox.syscalls import prctl

__all__ = ["INTERNET", "UNIX", "filter_calls", "missing"]

INTERNET = (2, 10, 16)
"""The families of sockets that reach other machines by TCP and UDP; and netlink, which says by what addresses."""
UNIX = (1,)

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_CLONE_NEWUSER = 0x10000000
_OTHER_NUMBERS = 0x40000000
"""From here on x86-64 has a second set of numbers for the same calls."""


class _Machine(NamedTuple):
    architecture: int
    socket: int
    clone: int
    unshare: int
    prlimit64: int
    keys: tuple[int, ...]
    tracing: tuple[int, ...]
    ipc: tuple[int, ...]


_IO_URING_SETUP, _CLONE3, _PIDFD_GETFD = 425, 435, 438
_OF_X86_64 = _Machine(
    0xC000003E, 41, 56, 272, 302, (248, 249, 250), (101, 310, 311), (*range(29, 32), *range(64, 72), 220, 240, 241)
)
_OF_MOST = _Machine(0, 198, 220, 97, 261, (217, 218, 219), (117, 270, 271), (180, 181, *range(186, 198)))
_MACHINES = {
    "x86_64": _OF_X86_64,
    "aarch64": _OF_MOST._replace(architecture=0xC00000B7),
    "riscv64": _OF_MOST._replace(architecture=0xC00000F3),
}
_Instruction = tuple[int, int, int, int]
_Test = tuple[int, int, bool]
"""Of an argument: how it is compared and with what, and which outcome is the harmless one."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(*, families: Sequence[int]) -> None:
    """Refuse, from now on, what the table lists; sockets are made of ``families`` only. Raises OSError.

    The thread must have given up new privileges before.
    """
    code = b"".join(struct.pack("HBBI", *each) for each in _instructions(_MACHINES[platform.machine()], families))
    program = _Program(len(code) // 8, code)
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))


def missing() -> str:
    """What this machine lacks for the filter, in words; empty when its system calls are known here."""
    bits = 8 * struct.calcsize("P")
    if sys.platform == "linux" and platform.machine() in _MACHINES and bits == 64:
        return ""
    known = ", ".join(_MACHINES)
    return f"system calls are filtered on Linux only, on {known}: this is {platform.machine()}, with {bits} bits."


def _instructions(machine: _Machine, families: Sequence[int]) -> list[_Instruction]:
    # A jump says how many instructions to skip: when it is so, and when not.
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, machine.architecture),
        _refuse(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _OTHER_NUMBERS),
        _refuse(errno.ENOSYS),
        *_refused(_IO_URING_SETUP, errno.ENOSYS),
        # Its flags lie in memory, where a filter cannot look; told that it does not exist, everyone takes clone.
        *_refused(_CLONE3, errno.ENOSYS),
        *(each for call in (*machine.keys, *machine.ipc) for each in _refused(call, errno.ENOSYS)),
        *(each for call in (*machine.tracing, _PIDFD_GETFD) for each in _refused(call, errno.EPERM)),
        *_refused(machine.socket, errno.EACCES, *((_EQUAL, family, True) for family in families)),
        *_refused(machine.prlimit64, errno.EPERM, (_EQUAL, 0, True)),
        *_refused(machine.clone, errno.EPERM, (_ANY_BIT, _CLONE_NEWUSER, False)),
        *_refused(machine.unshare, errno.EPERM, (_ANY_BIT, _CLONE_NEWUSER, False)),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _refuse(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _REFUSE | number)


def _refused(call: int, number: int, *harmless: _Test) -> list[_Instruction]:
    """Answer ``call`` with the error ``number``, unless its first argument passes one of the ``harmless`` tests."""
    if not harmless:
        return [(_EQUAL, 0, 1, call), _refuse(number)]
    to_allowed = range(len(harmless), 0, -1)
    tests = [
        (compared, distance if wanted else 0, 0 if wanted else distance, operand)
        for distance, (compared, operand, wanted) in zip(to_allowed, harmless, strict=True)
    ]
    answer = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *tests, _refuse(number), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(answer), call), *answer]

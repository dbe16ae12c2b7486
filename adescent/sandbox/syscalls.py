"""System calls that the standard library does not offer."""

from __future__ import annotations

import ctypes
import os

__all__ = ["capset", "prctl", "syscall"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_VERSION = 0x20080522


def syscall(number: int, *arguments: object) -> int:
    """Make the system call ``number`` with integers, pointers or None. Raises OSError."""
    return _checked(_LIBC.syscall(ctypes.c_long(number), *map(_as_word, arguments)))


def prctl(option: int, *arguments: int) -> int:
    """Change a setting of this thread. Raises OSError."""
    words = [*arguments, 0, 0, 0, 0][:4]
    return _checked(_LIBC.prctl(option, *map(ctypes.c_ulong, words)))


def capset(effective: int, permitted: int, inheritable: int) -> None:
    """Set this thread's capabilities, each a set of 32 of them as bits; all others are given up. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(effective, permitted, inheritable, 0, 0, 0)
    _checked(_LIBC.capset(header, sets))


def _as_word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

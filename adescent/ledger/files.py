"""Files that are there whole or not at all, and, where asked for, still there after a power cut.

A ledger would create and remove three small files a commit, and on some file systems that makes both slower and slower
(ext4 passes over recently freed inodes, and may tell the device of every freed block at once). So files that have
served are written over, provided nobody has them open; the system tells that by granting a lease or not.

Paths are plain strings: a commit handles a dozen of them, and ``pathlib`` would take longer than the disk.
"""

from __future__ import annotations

import fcntl
import os
import signal

__all__ = ["read_small", "remove", "rename", "sync_folder", "write_unseen"]

SMALL_BYTES = 4096


def write_unseen(path: str, data: bytes, *, sync: bool) -> None:
    """Write a file under a name that nobody looks at, to be given its real one by a link or a rename.

    A file that has this name already is written over if this is its only name and nobody has it open, else replaced.
    """
    handle = _reopened(path)
    if handle is None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.ftruncate(handle, len(data))
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def _reopened(path: str) -> int | None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if os.fstat(handle).st_nlink == 1 and _nobody_else_has(handle):
        return handle
    os.close(handle)
    remove(path)
    return None


def _nobody_else_has(handle: int) -> bool:
    """Whether no other open file and no memory map anywhere stands on this one: only then is a write lease granted."""
    try:
        # Whoever opens the file while the lease is held makes it break: with a signal that is ignored by default.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:  # somebody has, or the file system has no leases
        return False
    return True


def read_small(path: str) -> bytes:
    """The first few KiB of a file. Raises FileNotFoundError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, SMALL_BYTES)
    finally:
        os.close(handle)


def rename(old: str, new: str) -> None:
    """Give a file another name, in place of whatever has that."""
    os.rename(old, new)  # noqa: PTH104 - see the module's first words


def remove(path: str) -> None:
    """Let a file be gone, if it is there."""
    try:
        os.unlink(path)  # noqa: PTH108 - see the module's first words
    except FileNotFoundError:
        pass


def sync_folder(path: str) -> None:
    """Make what was created, renamed or removed in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

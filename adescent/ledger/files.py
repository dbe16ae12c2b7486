"""Files that are there whole or not at all, and, where asked for, still there after a power cut.

Paths are plain strings: a commit handles a dozen of them, and ``pathlib`` would take longer than the disk.
"""

from __future__ import annotations

import os

__all__ = ["read_small", "remove", "rename", "sync_folder", "write_new"]

SMALL_BYTES = 4096


def write_new(path: str, data: bytes, *, sync: bool, mode: int = 0o444) -> None:
    """Write a file that nobody sees yet, in place of one that was left behind under its name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, mode)
    except FileExistsError:
        remove(path)
        handle = os.open(path, flags, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


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

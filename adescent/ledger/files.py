"""Files that are there whole or not at all, and, where asked for, still there after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_folder", "write_new"]


def write_new(path: Path, data: bytes, *, sync: bool, mode: int = 0o444) -> None:
    """Write a file of this name, in place of one that was left behind half-written. Not visible under another name."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

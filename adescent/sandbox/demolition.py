"""Removing a directory, whatever somebody has left in it on purpose."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["demolish"]

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OURS = 0o700
PASSES = 3
"""How often a directory is tried that is not empty after it was emptied: a process may still be writing there."""


class _OutOfTimeError(Exception):
    """The time is up, and there is more to remove."""


def demolish(parent: int, name: str, heap: str, until: float) -> bool:
    """Remove the directory ``name`` of the open directory ``parent``, and tell whether nothing is left of it.

    Links are removed and never followed, modes are no obstacle, and neither depth nor number costs more descriptors or
    stack: what lies deeper is moved to ``heap``, another name in ``parent``, and taken from there. At ``until``
    (seconds of `time.monotonic`) the rest is left where it is, for a further call to go on with. Raises OSError when
    all that could be removed has been, and something could not.
    """
    try:
        os.rmdir(name, dir_fd=parent)  # most are empty
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        os.unlink(name, dir_fd=parent)
    except OSError:
        _create(heap, parent)
    try:
        with _opened(heap, parent) as folder:
            _Heap(folder).clear(name, parent, until)
        os.rmdir(heap, dir_fd=parent)
    except FileNotFoundError:
        return True
    except _OutOfTimeError:
        return False
    return True


class _Heap:
    """Directories side by side that wait to be emptied and removed; each has a number for a name."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._waiting = [int(name) for name in os.listdir(folder) if name.isdecimal()]
        self._last = max(self._waiting, default=0)
        self._refusal: OSError | None = None

    def clear(self, name: str, parent: int, until: float) -> None:
        """Take in ``name`` of ``parent`` if it is there, and remove everything."""
        try:
            self._take(name, parent)
        except FileNotFoundError:
            pass
        for _ in range(PASSES):
            left = []
            while self._waiting:
                number = self._waiting.pop()
                if not self._remove(str(number), until):
                    left.append(number)
            self._waiting = left
        if self._refusal is not None and self._waiting:
            raise self._refusal

    def _take(self, name: str, parent: int) -> None:
        number = self._last + 1
        try:
            os.rename(name, str(number), src_dir_fd=parent, dst_dir_fd=self._folder)
        except PermissionError:  # a directory that moves is written to itself, since ".." is in it
            _make_ours(name, parent)
            os.rename(name, str(number), src_dir_fd=parent, dst_dir_fd=self._folder)
        self._last = number
        self._waiting.append(number)

    def _remove(self, name: str, until: float) -> bool:
        try:
            with _opened(name, self._folder) as folder:
                self._empty(folder, until)
            os.rmdir(name, dir_fd=self._folder)
        except OSError as error:
            self._refusal = self._refusal or error
            return False
        return True

    def _empty(self, folder: int, until: float) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if time.monotonic() > until:
                    raise _OutOfTimeError
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._take(entry.name, folder)
                    else:
                        os.unlink(entry.name, dir_fd=folder)
                except OSError as error:
                    self._refusal = self._refusal or error


def _create(name: str, parent: int) -> None:
    try:
        os.mkdir(name, OURS, dir_fd=parent)
    except FileExistsError:  # an earlier call did not get to the end
        pass


@contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    """A directory that can be read and written, for as long as the block lasts."""
    try:
        folder = os.open(name, DIRECTORY, dir_fd=parent)
    except PermissionError:
        _make_ours(name, parent)
        folder = os.open(name, DIRECTORY, dir_fd=parent)
    try:
        if os.fstat(folder).st_mode & OURS != OURS:
            os.fchmod(folder, OURS)
        yield folder
    finally:
        os.close(folder)


def _make_ours(name: str, parent: int) -> None:
    """Give the owner all rights to a directory that may not even be opened; a link in its place is not followed."""
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{folder}").chmod(OURS)
    finally:
        os.close(folder)

"""The working directory of a worker, and how it is left to the next rollout."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from adescent.executors.child.descriptors import out_of_reach

__all__ = ["OwnDirectory", "SharedDirectory", "WorkingDirectory"]

SECONDS_TO_EMPTY = 30.0
CLOCK_TICK = 50_000_000
"""Nanoseconds within which a file system may give two changes the same time."""
HEAP = ".adescent-heap"
"""Where what is to be removed is collected; it is removed as well."""


class WorkingDirectory(Protocol):
    """Where rollouts run."""

    def restore(self) -> None:
        """Make it what it was before a rollout. Raises OSError when that is not to be had."""


class SharedDirectory:
    """The directory in which the worker was started: it belongs to somebody else, and is left alone."""

    def __init__(self) -> None:
        # By descriptor: it may have no name any more.
        self._folder = _held(".")

    def restore(self) -> None:
        """Go back there."""
        os.fchdir(self._folder)


class OwnDirectory:
    """A directory in which nobody else works, at ``path``, an absolute one: what rollouts leave in it is removed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder = _held(path)
        self._empty_since = 0
        """When it was last changed (the kernel says, and nobody else can), if it was seen to be empty after that.

        To be moved or removed is a change, too."""

    def restore(self) -> None:
        """Make sure that it is there, is the same, current, and empty."""
        os.fchdir(self._folder)
        if os.fstat(self._folder).st_ctime_ns == self._empty_since:  # most rollouts write nothing, and a look is dear
            return
        changed = self._found().st_ctime_ns
        os.fchdir(self._folder)
        with os.scandir(self._path) as entries:
            names = [entry.name for entry in entries]
        if names:
            self._remove(names)
        is_over = time.time_ns() - changed > CLOCK_TICK
        self._empty_since = changed if is_over and not names else 0

    def _found(self) -> os.stat_result:
        """What is at its path, where it is made again if there is nothing."""
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            Path(self._path).mkdir(0o700)
            os.close(self._folder)
            self._folder = _held(self._path)
            found = os.lstat(self._path)
        if not os.path.samestat(found, os.fstat(self._folder)):  # to empty what a link leads to could be a disaster
            raise OSError(f"something else has taken the place of the workspace {self._path}")
        return found

    def _remove(self, names: list[str]) -> None:
        from adescent.sandbox.demolition import demolish  # most workers never need it

        until = time.monotonic() + SECONDS_TO_EMPTY
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not all(demolish(folder, name, HEAP, until) for name in names):
                raise OSError(f"the workspace {self._path} holds more than can be removed in {SECONDS_TO_EMPTY} s")
        finally:
            os.close(folder)


def _held(path: str) -> int:
    return out_of_reach(os.open(path, os.O_PATH | os.O_DIRECTORY))

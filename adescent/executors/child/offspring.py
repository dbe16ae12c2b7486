"""The processes that a rollout starts in its worker: what it leaves running ends with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from adescent.executors.child.helpers import forget_helpers

__all__ = ["Offspring"]

MOST_LISTINGS = 10
"""Whoever starts one process after the other is not waited for: what is left is found after the next rollout."""


class Offspring:
    """Children of this process. Those that `keep` is told of, or that are there already, may stay."""

    def __init__(self) -> None:
        self._kept = self.present()

    def present(self) -> set[int]:
        """The children there are now."""
        return _children("self") if _has_children() else set()

    def keep(self, pids: set[int]) -> None:
        """These belong to no rollout."""
        self._kept |= pids

    def end(self) -> None:
        """Kill the others and all that comes from them, but for what has been left an orphan: that is not found."""
        ended = _children("self") - self._kept if _has_children() else set()
        for child in ended:
            for pid in (child, *_descendants(child)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            _reap(child)
        forget_helpers(ended)


def _has_children() -> bool:
    """This is asked after every rollout, and takes a microsecond."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children(pid: int | str) -> set[int]:
    """Of all its threads. One that ends leaves its own to another, which may have been asked before: so, all again."""
    found = set(_listed(pid))
    for _ in range(MOST_LISTINGS):
        again = set(_listed(pid))
        if again <= found:
            break
        found |= again
    return found


def _listed(pid: int | str) -> Iterator[int]:
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, listing.read_text(encoding="ascii").split())
        except OSError:  # the thread has ended, or nothing may be read here
            continue


def _descendants(pid: int) -> list[int]:
    """Found before the first is killed: afterwards nobody knows any more whose they were."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *_descendants(child)]
    return found


def _reap(child: int) -> None:
    """If it has ended yet; else it is found again after the next rollout."""
    try:
        os.waitpid(child, os.WNOHANG)
    except ChildProcessError:  # whoever has started it was faster
        pass

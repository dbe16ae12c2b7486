"""Branches as files: read at any time, moved by compare-and-swap.

Git's own protocol is followed: who wants to move ``refs/heads/dev`` first creates ``dev.lock``, and renaming it is the
move. libgit2's transactions do the same but sync nothing unless told so for the whole process, so a power cut could
leave a branch that names nothing; hence these few lines.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from adescent.errors import LedgerCorrupt
from adescent.ledger.files import sync_folder, write_new
from adescent.ledger.keeper import Move, RefMoved

__all__ = ["Branches"]

NEXT_FILE = "ledger.next"
FOREIGN_LOCK_SECONDS = 1.0
"""How long a lock that is not the ledger's is respected: git programs hold one for milliseconds."""
FOREIGN_LOCK_PAUSE = 0.01

_LINE = re.compile(rb"([0-9a-f]{40})\s*\Z")


class Branches:
    """The branches of a repository. Whoever calls `move` holds the ledger's file lock."""

    def __init__(self, repository: Path, *, sync: bool) -> None:
        self._folder = repository / "refs" / "heads"
        self._packed = repository / "packed-refs"
        self._next = repository / NEXT_FILE
        self._sync = sync

    def read(self, branch: str) -> bytes | None:
        """The commit a branch is at, or None where there is none. Raises LedgerCorrupt for a file that names none."""
        try:
            line = (self._folder / branch).read_bytes()
        except FileNotFoundError:
            return self._read_packed(branch)
        if (found := _LINE.match(line)) is None:
            raise LedgerCorrupt(
                f"refs/heads/{branch} names no commit ({line[:60]!r}): restore it, or write a commit's name into it."
            )
        return bytes.fromhex(found[1].decode())

    def _read_packed(self, branch: str) -> bytes | None:
        """`git gc` moves branches from files of their own into one table."""
        try:
            lines = self._packed.read_bytes().splitlines()
        except FileNotFoundError:
            return None
        wanted = b" refs/heads/" + branch.encode()
        return next((bytes.fromhex(line[:40].decode()) for line in lines if line[40:] == wanted), None)

    def move(self, move: Move) -> None:
        """Let a branch go from ``move.old`` to ``move.new``. Raises RefMoved when it is elsewhere."""
        target = self._folder / move.branch
        lock = self._folder / f"{move.branch}.lock"
        self._drop_own_leftover(lock)
        write_new(self._next, move.new.hex().encode() + b"\n", sync=self._sync, mode=0o644)
        self._acquire(lock)
        try:
            if self.read(move.branch) != move.old:
                raise RefMoved
            lock.rename(target)
        except BaseException:
            lock.unlink(missing_ok=True)
            raise
        self._next.unlink()
        if self._sync:
            sync_folder(self._folder)

    def _drop_own_leftover(self, lock: Path) -> None:
        """A lock that is the file prepared for it was ours, and whoever made it died: the file lock is held here."""
        try:
            if self._next.samefile(lock):
                lock.unlink()
        except FileNotFoundError:
            pass

    def _acquire(self, lock: Path) -> None:
        """Give the prepared file the lock's name: it is there whole or not at all."""
        deadline = time.monotonic() + FOREIGN_LOCK_SECONDS
        while True:
            try:
                os.link(self._next, lock)
            except FileExistsError:
                # Another program's. Git's protocol has nothing to wait on, so git too looks again after a while.
                if time.monotonic() < deadline:
                    time.sleep(FOREIGN_LOCK_PAUSE)
                else:
                    lock.unlink(missing_ok=True)
            else:
                return

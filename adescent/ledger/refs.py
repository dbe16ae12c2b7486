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
from adescent.ledger.files import read_small, remove, rename, sync_folder, write_unseen
from adescent.ledger.keeper import Move, RefMoved

__all__ = ["Branches"]

FOREIGN_LOCK_SECONDS = 1.0
"""How long a lock that is not the ledger's is respected: git programs hold one for milliseconds."""
FOREIGN_LOCK_PAUSE = 0.01

_LINE = re.compile(rb"([0-9a-f]{40})\s*\Z")


class Branches:
    """The branches of the repository in a folder. Whoever calls `move` holds the ledger's file lock."""

    def __init__(self, folder: str, *, sync: bool) -> None:
        self._folder = f"{folder}/refs/heads"
        self._packed = f"{folder}/packed-refs"
        self._next = f"{folder}/ledger.next"
        self._old = f"{folder}/ledger.old"
        self._sync = sync

    def read(self, branch: str) -> bytes | None:
        """The commit a branch is at, or None where there is none. Raises LedgerCorrupt for a file that names none."""
        try:
            line = read_small(f"{self._folder}/{branch}")
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
            with open(self._packed, "rb") as file:  # noqa: PTH123 - a string, as all paths here
                lines = file.read().splitlines()
        except FileNotFoundError:
            return None
        wanted = b" refs/heads/" + branch.encode()
        return next((bytes.fromhex(line[:40].decode()) for line in lines if line[40:] == wanted), None)

    def move(self, move: Move) -> None:
        """Let a branch go from ``move.old`` to ``move.new``. Raises RefMoved when it is elsewhere."""
        branch = f"{self._folder}/{move.branch}"
        lock = f"{branch}.lock"
        self._drop_leftovers()
        write_unseen(self._next, move.new.hex().encode() + b"\n", sync=self._sync)
        self._acquire(lock)
        try:
            if self.read(move.branch) != move.old:
                raise RefMoved
            self._keep_old_file(branch)
            rename(lock, branch)
        except BaseException:
            remove(lock)
            raise
        self._recycle_old_file()
        if self._sync:
            sync_folder(self._folder)

    def _drop_leftovers(self) -> None:
        """Whoever prepared the last move may have died. A lock that is the prepared file was theirs, and is void."""
        prepared = Path(self._next)
        try:
            if prepared.stat().st_nlink == 1:
                return
        except FileNotFoundError:
            return
        for lock in Path(self._folder).glob("*.lock"):
            if lock.samefile(prepared):
                lock.unlink()

    def _keep_old_file(self, branch: str) -> None:
        try:
            os.link(branch, self._old)
        except FileExistsError:
            remove(self._old)
            self._keep_old_file(branch)
        except FileNotFoundError:  # a new branch, or one that is in the table only
            pass

    def _recycle_old_file(self) -> None:
        """The next move is prepared in the file the branch was before this one."""
        try:
            rename(self._old, self._next)
        except FileNotFoundError:
            remove(self._next)

    def close(self) -> None:
        """Leave no file but the branches."""
        remove(self._next)

    def _acquire(self, lock: str) -> None:
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
                    remove(lock)
            else:
                return

"""The ledger in a bare git repository: objects in packs, read through libgit2; branches as git keeps them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pygit2

from adescent.errors import LedgerCorrupt, LedgerError, OptionError
from adescent.ledger.filelock import file_lock
from adescent.ledger.keeper import Move
from adescent.ledger.objects import GitObject, Kind
from adescent.ledger.packing import PackFolder
from adescent.ledger.refs import Branches
from adescent.ledger.repository import LOCK_FILE, SPARES_FOLDER, ensure_repository
from adescent.ledger.versioned import VersionedLedger

__all__ = ["GitLedger"]

Durability = Literal["durable", "fast"]

READ_ATTEMPTS = 5
"""How often packs are opened anew for an object that was not found in them."""

_KINDS: dict[int, Kind] = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_log = logging.getLogger(__name__)


class GitLedger(VersionedLedger):
    """A ledger in the bare repository at ``path``, opened, or made where there is none.

    Any number of threads and processes may have one open, and git itself may read along or collect its garbage. A
    process killed at any instant leaves at most objects that nothing names. With ``durability="durable"`` what a call
    returned is on disk, power cut or not; ``"fast"`` leaves the writing to the system, for runs that may be lost.
    """

    blocking = True

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "durable") -> None:
        if durability not in ("durable", "fast"):
            raise OptionError(f"durability={durability!r}: choose 'durable' or 'fast'.")
        folder = Path(path).absolute()
        self.location = str(folder)
        sync = durability == "durable"
        with _disk(folder):
            ensure_repository(folder, sync=sync)
        super().__init__(_Repository(folder, sync=sync))


class _Repository:
    """A keeper on disk. Only objects are read through libgit2, so that no git configuration is ever looked at."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._folder = folder
        self._lock = str(folder / LOCK_FILE)
        self._branches = Branches(str(folder), sync=sync)
        self._packs = PackFolder(
            f"{folder}/objects/pack", spares=f"{folder}/{SPARES_FOLDER}", sync=sync, read=self._read_any
        )
        self._database: pygit2.Odb | None = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with _disk(self._folder), file_lock(self._lock):
            yield

    def tip(self, branch: str) -> bytes | None:
        with _disk(self._folder):
            return self._branches.read(branch)

    def read(self, name: bytes, kind: Kind) -> bytes:
        found = self._read_any(name)
        if found.kind != kind:
            raise LedgerCorrupt(f"{name.hex()} in {self._folder} is a {found.kind} and should be a {kind}.")
        return found.data

    def _read_any(self, name: bytes) -> GitObject:
        oid, error = pygit2.Oid(raw=name), None
        for _ in range(READ_ATTEMPTS):
            try:
                kind, data = self._read_now(oid)
            except (KeyError, ValueError, OSError, pygit2.GitError) as failed:
                # Another process may have put packs together since these were opened.
                self._database, error = None, failed
            else:
                return GitObject(kind, data, name)
        raise LedgerCorrupt(
            f"object {oid} is missing from {self._folder} or damaged ({error}): restore the repository from a copy."
        ) from error

    def _read_now(self, oid: pygit2.Oid) -> tuple[Kind, bytes]:
        database = self._database or pygit2.Odb(str(self._folder / "objects"))
        self._database = database
        kind, data = database.read(oid)
        return _KINDS[kind], data

    def publish(self, objects: Sequence[GitObject], moves: Sequence[Move]) -> None:
        if objects:
            self._packs.add(objects)
        for move in moves:
            self._branches.move(move)
        if self._packs.slice_due():
            self._pack_slice()

    def _pack_slice(self, *, closing: bool = False) -> bool:
        """What was to be published is; that the rest could not be tidied is no failure of it."""
        try:
            return self._packs.pack_slice(closing=closing)
        except (OSError, LedgerError) as error:
            _log.warning("could not put packs together in %s: %s", self._folder, error)
            return False
        finally:
            # It holds files open that may be gone now.
            self._database = None

    def close(self) -> None:
        with self.exclusive():
            while self._pack_slice(closing=True):
                pass
            self._packs.close()
            self._branches.close()
        self._database = None


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """A disk that fails is a ledger that fails."""
    try:
        yield
    except OSError as error:
        raise LedgerError(f"the ledger in {folder} failed ({error}): free space or check permissions.") from error

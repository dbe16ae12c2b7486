"""The in-memory twin: the same operations, trees and names as in a repository, and nothing written anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from adescent.errors import LedgerCorrupt
from adescent.ledger.keeper import Move, RefMoved
from adescent.ledger.objects import GitObject, Kind
from adescent.ledger.versioned import VersionedLedger

__all__ = ["MemoryLedger"]


class MemoryLedger(VersionedLedger):
    """A ledger that ends with its process. Equal operations give the tree names a `GitLedger` would give."""

    blocking = False
    location = ""

    def __init__(self) -> None:
        super().__init__(_Memory())


class _Memory:
    """Objects and branches in two dicts. The ledger's own lock already lets one thread in at a time."""

    def __init__(self) -> None:
        self._objects: dict[bytes, GitObject] = {}
        self._tips: dict[str, bytes] = {}

    def exclusive(self) -> AbstractContextManager[None]:
        return nullcontext()

    def tip(self, branch: str) -> bytes | None:
        return self._tips.get(branch)

    def read(self, name: bytes, kind: Kind) -> bytes:
        found = self._objects.get(name)
        if found is None or found.kind != kind:
            raise LedgerCorrupt(f"{kind} {name.hex()} is not in this ledger.")
        return found.data

    def publish(self, objects: Sequence[GitObject], moves: Sequence[Move]) -> None:
        if any(self._tips.get(move.branch) != move.old for move in moves):
            raise RefMoved
        self._objects.update((made.id, made) for made in objects)
        self._tips.update((move.branch, move.new) for move in moves)

    def close(self) -> None:
        """Nothing to tidy."""

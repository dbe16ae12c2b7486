"""What a ledger stands on: somewhere to keep git objects and branches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from attrs import frozen

from adescent.errors import LedgerError
from adescent.ledger.objects import GitObject, Kind

__all__ = ["Keeper", "Move", "RefMoved"]


class RefMoved(LedgerError):
    """A branch is not where it was when the commit was built: build it again. Never leaves the ledger."""


@frozen
class Move:
    """A branch and where it goes; ``old`` is where it must be, None for nowhere yet."""

    branch: str
    old: bytes | None
    new: bytes


class Keeper(Protocol):
    """Where objects and branches are: on a disk, or in memory."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep every other writer of this ledger out, whichever thread or process it is in."""
        ...

    def tip(self, branch: str) -> bytes | None:
        """The commit a branch is at, None when there is no such branch yet."""
        ...

    def read(self, name: bytes, kind: Kind) -> bytes:
        """An object's bytes. Raises LedgerCorrupt when it is not there or of another kind."""
        ...

    def publish(self, objects: Sequence[GitObject], moves: Sequence[Move]) -> None:
        """Keep the objects, then move the branches, in order; a branch that is elsewhere raises RefMoved."""
        ...

    def close(self) -> None:
        """Leave things tidy."""
        ...

"""What has been kept: every version of every artifact, in a git repository or in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adescent.ledger.memory import MemoryLedger as MemoryLedger
    from adescent.ledger.store import GitLedger as GitLedger

__all__ = ["GitLedger", "MemoryLedger"]

# On first use, because a run that keeps its ledger in memory has no need of pygit2 and its 130 ms.
_HOMES = {"GitLedger": "adescent.ledger.store", "MemoryLedger": "adescent.ledger.memory"}


def __getattr__(name: str) -> object:
    """Load the module that holds ``name``, and keep what was found for the next use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found

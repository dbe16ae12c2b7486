"""What has been kept: every version of every artifact, in a git repository or in memory.

Names load on first use: a run that keeps its ledger in memory has no need of pygit2 and its 130 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adescent.doors import door

if TYPE_CHECKING:
    from adescent.ledger.memory import MemoryLedger as MemoryLedger
    from adescent.ledger.store import GitLedger as GitLedger

_HOMES = {"GitLedger": "store", "MemoryLedger": "memory"}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__, _HOMES)

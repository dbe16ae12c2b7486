"""Scores that have been bought, by what was measured."""

from __future__ import annotations

from collections import OrderedDict

from adescent.errors import ContractError
from adescent.tasks import Score

__all__ = ["MemoryCache"]


class MemoryCache:
    """An `EvalCache` in memory that keeps the ``entries`` (at least 1) used most recently.

    Raises ContractError when it could not hold a single entry.
    """

    def __init__(self, entries: int = 100_000) -> None:
        if isinstance(entries, bool) or not isinstance(entries, int) or entries < 1:
            raise ContractError(f"MemoryCache(entries={entries!r}) must be a whole number of at least 1.")
        self.entries = entries
        self._scores: OrderedDict[str, Score] = OrderedDict()

    def __len__(self) -> int:
        return len(self._scores)

    def get(self, key: str) -> Score | None:
        """The score under ``key``, which counts as a use, or None."""
        score = self._scores.get(key)
        if score is not None:
            self._scores.move_to_end(key)
        return score

    def put(self, key: str, score: Score) -> None:
        """Keep ``score`` under ``key``; whatever has not been used for longest makes room."""
        self._scores[key] = score
        self._scores.move_to_end(key)
        if len(self._scores) > self.entries:
            self._scores.popitem(last=False)

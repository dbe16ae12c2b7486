"""What is remembered of each artifact between merges."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, TypeVar

from adescent.aggregator.ends import End
from adescent.evolvable import Diff, Evolvable
from adescent.policies.records import Measurement, Outcome, Pool, SettledCard

__all__ = ["Book"]

Key = TypeVar("Key")

HISTORY = 64
REJECTED = 4096
COUNTED = 256
"""How many settled cards, rejected edits and contents with used repeat numbers a book holds; the oldest go first."""

DECIDED = frozenset({Outcome.COMMITTED, Outcome.BELOW_THRESHOLD, Outcome.TIE, Outcome.ORACLE_REJECTED})
"""Ends that say something about the head: a candidate was measured against it."""


class Book:
    """One artifact: its head and that head's figures, what has been rejected, and how cards have ended.

    ``pool`` are the fresh measurements of the head on the held-out split. Every change is made between two awaits, so
    a merge that is cancelled leaves a book that is right, if older.
    """

    def __init__(self, head: Evolvable, stable: Evolvable) -> None:
        self.head = head
        self.pool = Pool()
        self.stable = stable
        self.stable_pool: Pool | None = None
        self.history: deque[SettledCard] = deque(maxlen=HISTORY)
        self.candidates = 0
        self.quiet = 0
        self._rejected: OrderedDict[tuple[str, str], tuple[str, End]] = OrderedDict()
        self._used_repeats: OrderedDict[str, int] = OrderedDict()

    def measured(self, measurement: Measurement) -> None:
        """One more fresh measurement of the head."""
        self.pool += measurement
        if self.head.version == self.stable.version:
            self.stable_pool = self.pool

    def moved(self, head: Evolvable, pool: Pool = Pool()) -> None:  # noqa: B008 - a frozen record
        """The artifact has a new head, with what has been measured of it."""
        self.head = head
        self.pool = pool

    def committed(self, head: Evolvable, pool: Pool) -> None:
        """A candidate has become the head; ``pool`` is what may stand for it."""
        self.moved(head, pool)

    def promoted(self) -> None:
        """The head is stable now."""
        self.stable = self.head
        self.stable_pool = self.pool

    def unused_repeats(self, artifact: Evolvable, count: int) -> range:
        """The next ``count`` repeat numbers under which this content has not been measured yet; they count as used."""
        start = self._used_repeats.get(artifact.digest, 0)
        self.used(artifact, start + count)
        return range(start, start + count)

    def used(self, artifact: Evolvable, repeats: int) -> None:
        """This content has been measured under the repeat numbers below ``repeats``."""
        self._used_repeats[artifact.digest] = max(repeats, self._used_repeats.get(artifact.digest, 0))
        # Never those of head and stable: they are measured again, and an old number gives the score that selected them.
        _bound(self._used_repeats, artifact.digest, COUNTED, kept=(self.head.digest, self.stable.digest))

    def reject(self, diff: Diff, end: End) -> None:
        """Remember that this edit was measured against this head and refused."""
        key = (self.head.digest, diff.id)
        self._rejected[key] = self.head.apply(diff).digest, end
        _bound(self._rejected, key, REJECTED)

    def rejected(self, diff: Diff) -> End | None:
        """How this edit ended when what comes of it was measured against this very content, or None.

        An edit has one name in whatever order it sets its keys, and yet new keys are rendered in that order.
        """
        measured, end = self._rejected.get((self.head.digest, diff.id), ("", None))
        return end if end is not None and self.head.apply(diff).digest == measured else None

    def settled(self, cards: tuple[SettledCard, ...]) -> None:
        """A merge has ended: note how its cards did, and move the promotion clock.

        The clock counts merges that put the head to the test; a commit or the oracle's veto restarts it.
        """
        self.history.extend(cards)
        outcomes = {settled.outcome for settled in cards}
        if outcomes & {Outcome.COMMITTED, Outcome.ORACLE_REJECTED}:
            self.quiet = 0
        elif outcomes & DECIDED:
            self.quiet += 1


def _bound(memory: OrderedDict[Key, Any], newest: Key, size: int, kept: tuple[Key, ...] = ()) -> None:
    """Let the oldest make room for the newest; those ``kept`` stay whatever their age."""
    memory.move_to_end(newest)
    if len(memory) > size + len(kept):
        del memory[next(key for key in memory if key not in kept)]

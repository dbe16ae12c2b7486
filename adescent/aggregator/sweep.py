"""The cards of one merge on the way to their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from adescent.aggregator.buffer import Ingested
from adescent.aggregator.ends import End
from adescent.evolvable import EvidenceCard
from adescent.own_thread import stop_if_unwanted
from adescent.policies.records import Outcome, SettledCard, SweepReport

__all__ = ["Sweep"]


class Sweep:
    """Cards in the order of their keys. Each ends at most once; what is open at the end waits for the next merge.

    A step may turn a card into another (a rebase); what is settled and what waits is always the card that came in.
    """

    def __init__(self, artifact_id: str, entries: Iterable[Ingested]) -> None:
        self.artifact_id = artifact_id
        self._entries = sorted(entries, key=lambda entry: entry.order)
        self._standing = {number: entry.card for number, entry in enumerate(self._entries)}
        self._ends: dict[int, SettledCard] = {}
        self.losses = 0
        self.version: int | None = None
        self.fused = 0
        self.fusion: list[str] = []

    @property
    def open(self) -> tuple[EvidenceCard, ...]:
        """The cards that have not ended, as they stand now."""
        return tuple(self._standing.values())

    @property
    def leftover(self) -> tuple[Ingested, ...]:
        """What came in and has not ended."""
        return tuple(self._entries[number] for number in self._standing)

    @property
    def rebased(self) -> tuple[EvidenceCard, ...]:
        """The open cards that have become another one."""
        return tuple(card for number, card in self._standing.items() if card is not self._entries[number].card)

    def restart(self) -> None:
        """Let the open cards be what they were when they came in: the head they were brought onto is gone."""
        for number in self._standing:
            self._standing[number] = self._entries[number].card
        self.fusion.clear()

    def sift(self, step: Callable[[EvidenceCard], EvidenceCard | End]) -> None:
        """Put every open card through a step: it becomes another one, or ends.

        Two cards that come to the same edit are one measurement: the first stands for both, the other is a duplicate.
        """
        seen: set[str] = set()
        for number, card in list(self._standing.items()):
            stop_if_unwanted()
            after = step(card)
            if isinstance(after, End):
                self._end(number, after)
            elif after.diff.id in seen:
                self._end(number, End(Outcome.DUPLICATE, "another card of this merge has the same edit."))
            else:
                seen.add(after.diff.id)
                self._standing[number] = after

    def settle(self, cards: Iterable[EvidenceCard], end: End) -> None:
        """End these cards, given as they stand now."""
        numbers = {card.id: number for number, card in self._standing.items()}
        for card in cards:
            self._end(numbers.pop(card.id), end)

    def end_all(self, end: End) -> None:
        """End everything that is open."""
        for number in list(self._standing):
            self._end(number, end)

    def still_open(self, cards: Sequence[EvidenceCard]) -> list[EvidenceCard]:
        """Those of the cards that have not ended."""
        ids = {card.id for card in self._standing.values()}
        return [card for card in cards if card.id in ids]

    def report(self, held_out: float | None = None) -> SweepReport:
        """How the merge went. ``held_out`` is the head's pooled figure now."""
        return SweepReport(
            self.artifact_id,
            tuple(self._ends[number] for number in sorted(self._ends)),
            version=self.version,
            held_out=held_out,
            fused=self.fused,
            fusion=tuple(self.fusion),
        )

    def _end(self, number: int, end: End) -> None:
        assert number not in self._ends, "a card ends once"
        del self._standing[number]
        self._ends[number] = SettledCard(self._entries[number].card, end.outcome, end.reason)

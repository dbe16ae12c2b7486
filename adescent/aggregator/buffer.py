"""Where cards wait for the next merge of their artifact."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from adescent.evolvable import EvidenceCard

__all__ = ["EvidenceBuffer", "Ingested"]

Order = tuple[int, ...]


@frozen(eq=False)
class Ingested:
    """A card in the buffer. Equal cards stay two: the identity of this record is that of the evidence.

    ``order`` says where the card stands among others, in the terms of the schedule: (round, unit), (turn, unit). It
    never tells when the card arrived.
    """

    order: Order
    card: EvidenceCard


class EvidenceBuffer:
    """Cards by artifact, taken out in the order of their keys. Belongs to one event loop, and so needs no lock."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[Ingested]] = {}
        self.ingested = 0

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def ingest(self, card: EvidenceCard, order: Order) -> Ingested:
        """Take in a card for the artifact its diff targets. Keys of cards that wait together are all different."""
        entry = Ingested(order, card)
        self.put_back([entry])
        self.ingested += 1
        return entry

    def put_back(self, entries: Iterable[Ingested]) -> None:
        """Let cards a merge did not get to wait for the next one, where their order puts them."""
        for entry in entries:
            self._buckets.setdefault(entry.card.diff.target, []).append(entry)

    def artifacts(self) -> list[str]:
        """The artifacts that have cards waiting, by name."""
        return sorted(self._buckets)

    def drain(self, artifact_id: str, most: int | None = None) -> tuple[Ingested, ...]:
        """Take out what waits for one artifact, in order: everything, or the first ``most``."""
        waiting = sorted(self._buckets.pop(artifact_id, ()), key=lambda entry: entry.order)
        if most is not None and len(waiting) > most:
            self._buckets[artifact_id] = waiting[most:]
        return tuple(waiting[:most])

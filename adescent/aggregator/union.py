"""Diffs laid over each other: what several cards change together, and where two of them cannot both be had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adescent.evolvable import Diff, EvidenceCard
from adescent.own_thread import stop_if_unwanted
from adescent.textmerge import merge_lines

__all__ = ["Union", "agree"]


class Union:
    """Cards that agree, in the order they came in, and the ops they amount to.

    Two values of one key agree when they are equal, or when both are texts that changed different lines of the same
    base (one line of distance kept): then the union holds the merged text.
    """

    def __init__(self, cards: Iterable[EvidenceCard] = ()) -> None:
        self.cards: list[EvidenceCard] = []
        self.ops: dict[str, str | None] = {}
        self._holders: dict[str, list[EvidenceCard]] = {}
        for card in cards:
            self.add(card)

    def add(self, card: EvidenceCard) -> tuple[str, ...]:
        """Take in a card. Where it contradicts what is there nothing is taken, and the keys in question come back."""
        joined: dict[str, str | None] = {}
        contradicted: list[str] = []
        for key, value in card.diff.ops.items():
            if key not in self.ops or self.ops[key] == value:
                joined[key] = value
            elif (merged := self._merged(key, card)) is not None:
                joined[key] = merged
            else:
                contradicted.append(key)
        if not contradicted:
            self.cards.append(card)
            self.ops.update(joined)
            for key in joined:
                self._holders.setdefault(key, []).append(card)
        return tuple(contradicted)

    def opponents(self, card: EvidenceCard, keys: Iterable[str]) -> tuple[EvidenceCard, ...]:
        """The cards in the union that ``card`` contradicts in ``keys``, in the order they came in."""
        found: dict[str, EvidenceCard] = {}
        for key in keys:
            holders = self._holders[key]
            # Texts that agree in pairs may still not all fit together: then everyone who holds the key is in the way.
            alone = len(holders) == 1  # then this is what was tried
            against = holders if alone else [other for other in holders if not agree(key, other, card)] or holders
            found.update((other.id, other) for other in against)
        return tuple(found.values())

    def without(self, cards: Sequence[EvidenceCard]) -> Union:
        """The union of the cards that are not among these."""
        gone = {card.id for card in cards}
        return Union(card for card in self.cards if card.id not in gone)

    def diff(self, target: str) -> Diff:
        """The union as one diff."""
        return Diff(target, self.ops, origin="union")

    def _merged(self, key: str, card: EvidenceCard) -> str | None:
        base = card.base_values.get(key)
        if any(other.base_values.get(key) != base for other in self._holders[key]):
            return None
        return _merged_lines(base, self.ops[key], card.diff.ops[key])


def agree(key: str, a: EvidenceCard, b: EvidenceCard) -> bool:
    """Whether the values two cards give to ``key`` can both be had."""
    mine, yours = a.diff.ops[key], b.diff.ops[key]
    if mine == yours:
        return True
    base = a.base_values.get(key)
    return b.base_values.get(key) == base and _merged_lines(base, mine, yours) is not None


def _merged_lines(base: str | None, a: str | None, b: str | None) -> str | None:
    """One text with the changes of both, or None where there is none. A deletion merges with nothing."""
    if base is None or a is None or b is None:
        return None
    stop_if_unwanted()
    return merge_lines(base, a, b).text

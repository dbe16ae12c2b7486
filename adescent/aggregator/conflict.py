"""Step 2: who stays when diffs contradict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from adescent.aggregator.union import Union, agree
from adescent.evolvable import EvidenceCard
from adescent.policies.records import Resolution

__all__ = ["KeepBetter"]

UNKNOWN = -1.0
"""Stands for a score that could not be had: below every score there is."""

ENTANGLED = "its text fits those that stayed one by one, and not all of them together."


@frozen
class KeepBetter:
    """The card that came first stays, unless the newcomer is strictly better on the cheap subset.

    Texts that changed different lines contradict nobody. A newcomer must beat everyone it contradicts.
    """

    def contested(self, cards: Sequence[EvidenceCard]) -> Sequence[EvidenceCard]:
        """Every card that contradicts another one, in order."""
        union = Union()
        outside: dict[str, list[EvidenceCard]] = {}
        contested: set[str] = set()
        for card in cards:
            if keys := union.add(card):
                contested.add(card.id)
                contested.update(other.id for other in union.opponents(card, keys))
                for key in card.diff.ops:
                    outside.setdefault(key, []).append(card)
            elif any(not agree(key, card, other) for key in card.diff.ops for other in outside.get(key, ())):
                contested.add(card.id)
        return [card for card in cards if card.id in contested]

    def resolve(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Resolution:
        """Cards that agree, and who lost to whom."""
        union = Union()
        reasons: dict[str, str] = {}
        for card in cards:
            keys = union.add(card)
            if not keys:
                continue
            opponents = union.opponents(card, keys)
            own, best = scores.get(card.id, UNKNOWN), max(scores.get(other.id, UNKNOWN) for other in opponents)
            without = None if own <= best else union.without(opponents)
            if without is None or without.add(card):
                reasons[card.id] = _reason(keys, own, best, "not better than")
                continue
            union = without
            reasons |= {other.id: _reason(keys, scores.get(other.id, UNKNOWN), own, "below") for other in opponents}
        kept = {card.id for card in union.cards}
        dropped = tuple((card, reasons.get(card.id, ENTANGLED)) for card in cards if card.id not in kept)
        return Resolution(tuple(union.cards), dropped)


def _reason(keys: Sequence[str], own: float, other: float, verb: str) -> str:
    where = ", ".join(map(repr, keys))
    figures = " against ".join("no score" if score == UNKNOWN else f"{score:.4g}" for score in (own, other))
    return f"another diff sets {where} otherwise; this one is {verb} it on the cheap subset ({figures})."

"""Step 3: which diffs are put to the test together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from adescent.aggregator.union import Union
from adescent.evolvable import EvidenceCard
from adescent.policies.records import Candidate

__all__ = ["MOST_RANKED", "SECOND_CHANCES", "UnionFusion", "fused", "is_union", "ranking", "worth_ranking"]

SECOND_CHANCES = 2
"""Single diffs that are tried when their union was refused, so that one bad partner does not sink a good diff."""

MOST_RANKED = 16
"""Single diffs a cheap score is bought for at most; more would cost what several unions cost."""


def fused(cards: Sequence[EvidenceCard]) -> Candidate | str:
    """All cards as one candidate, or why that cannot be: ``one diff``, ``contradiction``, ``nothing new``.

    Nothing new is in a union that equals one of its diffs.
    """
    if len(cards) < 2:
        return "one diff"
    union = Union(cards)
    if len(union.cards) < len(cards):
        return "contradiction"
    if any(card.diff.ops == union.ops for card in cards):
        return "nothing new"
    return Candidate(union.diff(cards[0].diff.target), tuple(cards))


def is_union(candidate: Candidate) -> bool:
    """Whether it changes what none of its cards changes alone."""
    return candidate.fused and all(card.diff.id != candidate.diff.id for card in candidate.cards)


def worth_ranking(cards: Sequence[EvidenceCard]) -> Sequence[EvidenceCard]:
    """The single diffs to buy a cheap score for: those whose own task gained most, then those that came first."""
    return sorted(cards, key=lambda card: -card.before_after_delta)[:MOST_RANKED]


def ranking(union: float | None, singles: Sequence[float]) -> str:
    """How a union did against the best single diff on the cheap subset: ``won``, ``lost``, ``tied``, ``unmeasured``."""
    if union is None or not singles:
        return "unmeasured"
    best = max(singles)
    if union == best:
        return "tied"
    return "won" if union > best else "lost"


@frozen
class UnionFusion:
    """Disjoint or agreeing diffs become one; where it is refused, the best of them get a chance of their own.

    With ``tournament`` the union and its diffs are ranked on the cheap subset first, and a union that is not strictly
    better than the best single diff is not put to the test.
    """

    tournament: bool = False

    def candidates(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Sequence[Candidate]:
        """The union, then up to two single diffs by score; without scores the union alone."""
        union = fused(cards)
        if isinstance(union, str):
            return self._without_union(cards, scores, union)
        singles = _best(cards, scores)
        if self.tournament and singles:
            own = [scores[card.diff.id] for card in cards if card.diff.id in scores]
            if ranking(scores.get(union.diff.id), own) != "won":
                return singles
        return [union, *singles]

    def _without_union(
        self, cards: Sequence[EvidenceCard], scores: Mapping[str, float], why: str
    ) -> Sequence[Candidate]:
        if why != "nothing new":
            return _best(cards, scores) if scores else [Candidate(card.diff, (card,)) for card in cards[:1]]
        # The largest diff has all the others in it: they stand and fall with it.
        widest = max(cards, key=lambda card: card.diff.size())
        whole = Candidate(widest.diff, tuple(cards))
        return [whole, *(single for single in _best(cards, scores) if single.diff.id != whole.diff.id)]


def _best(cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> list[Candidate]:
    scored = [card for card in cards if card.diff.id in scores]
    ranked = sorted(scored, key=lambda card: -scores[card.diff.id])
    return [Candidate(card.diff, (card,)) for card in ranked[:SECOND_CHANCES]]

"""Steps 3 to 6 for cards that agree: fused, put before the gate one by one, and the first that holds is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from adescent.aggregator.books import Book
from adescent.aggregator.cheap import cheap_scores
from adescent.aggregator.ends import End
from adescent.aggregator.fusion import fused, is_union, ranking, worth_ranking
from adescent.aggregator.gate import HeldOutGate, Ruling
from adescent.aggregator.off_loop import disputed, off_the_loop
from adescent.aggregator.sweep import Sweep
from adescent.aggregator.trust_region import within_union
from adescent.errors import BudgetExhausted, CASConflict, ContractError
from adescent.evolvable import Diff, EvidenceCard, Evolvable, changed
from adescent.policies.keeping import FusionPolicy
from adescent.policies.measuring import Verifier
from adescent.policies.records import Candidate, Outcome
from adescent.policies.search import Strategy

__all__ = ["LOSSES", "AsyncLedger", "CandidateStage", "violated"]

LOSSES = 3
"""Races for the head a merge may lose before the cards that would have been committed end as `cas-conflict`."""

MEASURED_AND_REFUSED = frozenset({Outcome.BELOW_THRESHOLD, Outcome.TIE, Outcome.ORACLE_REJECTED})
"""Ends worth remembering: the same edit against the same head would end so again."""

SHARED_BY_PARTS = frozenset(
    {Outcome.UNMEASURED, Outcome.ORACLE_REJECTED, Outcome.AUDIT_UNAVAILABLE, Outcome.CONTRACT_REFUSED}
)
"""Ends of a union that are those of its cards too; after any other, the best of them get a chance of their own."""


class AsyncLedger(Protocol):
    """What a merge asks of the ledger, awaited. A call that was begun is finished, whoever is cancelled meanwhile."""

    async def head(self, artifact_id: str, branch: str = "dev") -> Evolvable:
        """The newest version on a branch; raises UnknownArtifact."""
        ...

    async def commit(
        self, artifact: Evolvable, base_version: int, *, message: str = "", decision: Mapping[str, str] | None = None
    ) -> Evolvable:
        """Compare-and-swap on dev; raises CASConflict."""
        ...

    async def promote(self, artifact_id: str, version: int) -> Evolvable:
        """Make exactly this version the one on stable."""
        ...


def violated(strategy: Strategy, head: Evolvable, diff: Diff) -> End | None:
    """The end of a diff that would make the state invalid, in the words of a strategy that knows such states."""
    violation = getattr(strategy, "violation", None)
    reason = "" if violation is None else violation(changed(head.state, diff.ops))
    return End(Outcome.VIOLATES_INVARIANT, reason) if reason else None


Suspects = Callable[[Sweep, Book, Sequence[EvidenceCard]], Awaitable[bool]]
"""Ends those of a refused union's cards that are at fault; whether there were any."""


class CandidateStage:
    """Turns cards into candidates and candidates into a commit, or into the reasons why there is none."""

    def __init__(
        self,
        *,
        ledger: AsyncLedger,
        gate: HeldOutGate,
        fusion: FusionPolicy,
        verifier: Verifier,
        strategy: Strategy,
        suspects: Suspects,
        count: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._gate = gate
        self._fusion = fusion
        self._verifier = verifier
        self._strategy = strategy
        self._suspects_ended = suspects
        self._count = count

    async def tried(self, sweep: Sweep, book: Book, cards: Sequence[EvidenceCard]) -> bool:
        """Put cards that agree to the test until one candidate is committed; whether one was.

        Cards beyond what one union may change stay open and wait. Raises CASConflict where the race was lost.
        """
        cards, _ = within_union(cards)
        if not cards:
            return False
        scores = await self._tournament(sweep, book, cards) if self._fusion.tournament else {}
        seen: set[str] = set()
        candidates = await self._candidates(cards, scores)
        if not sweep.fusion and not any(map(is_union, candidates)):
            await self._fused(sweep, cards)
        committed = await self._try_in_order(sweep, book, candidates, seen)
        if not committed and await self._suspects_ended(sweep, book, sweep.still_open(cards)):
            others = sweep.still_open(cards)
            committed = await self._try_in_order(sweep, book, await self._candidates(others, scores), seen)
        if not committed and not scores and (alone := sweep.still_open(cards)):
            scores = await self._cheap(book, {card.diff.id: card for card in worth_ranking(alone)})
            committed = await self._try_in_order(sweep, book, await self._candidates(cards, scores), seen)
        lost = (
            "another diff of the same merge was kept."
            if committed
            else "its union failed, and others were tried first."
        )
        sweep.settle(sweep.still_open(cards), End(Outcome.FUSION_LOST, lost))
        return committed

    async def _candidates(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Sequence[Candidate]:
        return await off_the_loop(disputed(cards), partial(self._fusion.candidates, cards, scores))

    async def _tournament(self, sweep: Sweep, book: Book, cards: Sequence[EvidenceCard]) -> dict[str, float]:
        """Rank the union and its diffs on the cheap subset, and note how that went, or why it was not held."""
        union = await self._fused(sweep, cards)
        if union is None:
            return {}
        singles = [card.diff for card in worth_ranking(cards)]
        diffs = {diff.id: diff for diff in (union.diff, *singles)}
        scores = await cheap_scores(self._verifier, book.head, diffs)
        own = [scores[diff.id] for diff in singles if diff.id in scores]
        sweep.fusion.append(ranking(scores.get(union.diff.id), own))
        return scores

    async def _fused(self, sweep: Sweep, cards: Sequence[EvidenceCard]) -> Candidate | None:
        """The union of the cards, or None and a note why there is none."""
        union = await off_the_loop(disputed(cards), partial(fused, cards))
        if isinstance(union, str):
            sweep.fusion.append(union)
            return None
        return union

    async def _cheap(self, book: Book, cards: Mapping[str, EvidenceCard]) -> dict[str, float]:
        return await cheap_scores(self._verifier, book.head, {name: card.diff for name, card in cards.items()})

    async def _try_in_order(self, sweep: Sweep, book: Book, candidates: Sequence[Candidate], seen: set[str]) -> bool:
        for candidate in candidates:
            if candidate.diff.id in seen or len(sweep.still_open(candidate.cards)) < len(candidate.cards):
                continue
            seen.add(candidate.diff.id)
            end = await self._tested(sweep, book, candidate)
            if end is None:
                return True
            shared = end.outcome in SHARED_BY_PARTS
            sweep.settle([card for card in candidate.cards if shared or card.diff.id == candidate.diff.id], end)
        return False

    async def _tested(self, sweep: Sweep, book: Book, candidate: Candidate) -> End | None:
        """The same as `put_to_the_test`, with a note of what became of a union."""
        try:
            end = await self.put_to_the_test(sweep, book, candidate)
        except BudgetExhausted:
            if is_union(candidate):
                sweep.fusion.append("unmeasured")
            raise
        if is_union(candidate):
            sweep.fusion.append("fused" if end is None else "refused")
        return end

    async def put_to_the_test(self, sweep: Sweep, book: Book, candidate: Candidate) -> End | None:
        """Measure one candidate, hear the oracle where that must be, and commit it: None, or why it was refused."""
        if known := book.rejected(candidate.diff):
            return known_already(known)
        if end := violated(self._strategy, book.head, candidate.diff):
            return end
        artifact = book.head.apply(candidate.diff)
        ruling = await self._gate.rule(book, artifact)
        if ruling.end is None:
            return await self._commit(sweep, book, candidate, artifact, ruling)
        if ruling.end.outcome in MEASURED_AND_REFUSED:
            book.reject(candidate.diff, ruling.end)
        return ruling.end

    async def _commit(
        self, sweep: Sweep, book: Book, candidate: Candidate, artifact: Evolvable, ruling: Ruling
    ) -> End | None:
        message, decision = _in_words(book, candidate, ruling)
        try:
            head = await self._ledger.commit(artifact, book.head.version, message=message, decision=decision)
        except CASConflict as lost:
            self._count("cas_losses")
            sweep.losses += 1
            if sweep.losses == LOSSES:
                sweep.settle(candidate.cards, End(Outcome.CAS_CONFLICT, str(lost)))
            raise
        except ContractError as refused:
            return End(Outcome.CONTRACT_REFUSED, str(refused))
        book.committed(head, ruling.pool)
        sweep.version = head.version
        sweep.fused = len(candidate.cards) if candidate.fused else 0
        sweep.settle(candidate.cards, End(Outcome.COMMITTED, f"version {head.version}."))
        return None


def known_already(end: End) -> End:
    """The end of an edit that has been measured against this very head before."""
    return End(Outcome.DUPLICATE, f"it was measured against this head before: {end}")


def _in_words(book: Book, candidate: Candidate, ruling: Ruling) -> tuple[str, dict[str, str]]:
    """The message of a commit, and the decision that made it, as the ledger's trailer keeps it."""
    rate, before = ruling.pool.rate, book.pool.rate
    figures = f"{before:.4f} → {rate:.4f}" if rate is not None and before is not None else "not measured"
    diffs = f"{len(candidate.cards)} diffs fused" if candidate.fused else "one diff"
    decision = {
        "outcome": Outcome.COMMITTED.value,
        "diff": candidate.diff.id,
        "cards": " ".join(card.id for card in candidate.cards),
        "held-out": figures,
    }
    if ruling.p is not None:
        decision["p"] = f"{ruling.p:.6g}"
    return f"{book.head.id}: {diffs}, held-out {figures}", decision

"""The merge of one artifact: its steps, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attrs import frozen

from adescent.aggregator.books import Book
from adescent.aggregator.buffer import Ingested
from adescent.aggregator.candidates import LOSSES, AsyncLedger, CandidateStage, known_already, violated
from adescent.aggregator.cheap import cheap_scores
from adescent.aggregator.ends import End
from adescent.aggregator.fusion import MOST_RANKED, worth_ranking
from adescent.aggregator.gate import HeldOutGate
from adescent.aggregator.off_loop import disputed, off_the_loop, overtaken
from adescent.aggregator.promotion import Promoter
from adescent.aggregator.reverification import gain_on, on_own_tasks, own_tasks, planned, worsened
from adescent.aggregator.staleness import brought_onto, tolerated_lag
from adescent.aggregator.sweep import Sweep
from adescent.aggregator.trust_region import oversized
from adescent.errors import BudgetExhausted, CASConflict, UnknownArtifact
from adescent.evolvable import EvidenceCard, Evolvable, VersionVector
from adescent.governance import L1SerialGate, ensure_not_frozen
from adescent.policies.keeping import AcceptancePolicy, ConflictPolicy, FusionPolicy, PromotionPolicy, StalenessPolicy
from adescent.policies.measuring import Auditor, Evaluator, Verifier
from adescent.policies.records import Candidate, Measurement, Outcome, Pool, SettledCard, SweepReport
from adescent.policies.search import Strategy
from adescent.tasks import Splits
from adescent.telemetry import Emit

__all__ = ["Merged", "Merger"]


@frozen(eq=False)
class Merged:
    """What a merge leaves: its report, the cards that wait for the next one, and the head (None: no such artifact).

    The head is the newest the merge has seen, whoever committed it.
    """

    report: SweepReport
    leftover: tuple[Ingested, ...] = ()
    head: Evolvable | None = None


class Merger:
    """Merges cards into artifacts; the only one that touches what is remembered of each artifact.

    At most one `merge` per artifact may be under way at a time; merges of different artifacts may overlap.
    ``async_ratio`` is how many versions the run lets a worker lag (None: no bound of its own).
    """

    def __init__(
        self,
        *,
        ledger: AsyncLedger,
        evaluator: Evaluator,
        verifier: Verifier,
        auditor: Auditor,
        gate: L1SerialGate,
        strategy: Strategy,
        splits: Splits,
        staleness: StalenessPolicy,
        conflict: ConflictPolicy,
        fusion: FusionPolicy,
        acceptance: AcceptancePolicy,
        promotion: PromotionPolicy,
        count: Callable[[str], None],
        emit: Emit,
        eval_repeats: int = 1,
        eval_concurrency: int = 8,
        async_ratio: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._evaluator = evaluator
        self._verifier = verifier
        self._serial = gate
        self._strategy = strategy
        self._staleness = staleness
        self._conflict = conflict
        self._count = count
        self._eval_repeats = eval_repeats
        self._eval_concurrency = eval_concurrency
        self._async_ratio = async_ratio
        self._books: dict[str, Book] = {}
        self._gate = HeldOutGate(
            evaluator=evaluator,
            verifier=verifier,
            auditor=auditor,
            acceptance=acceptance,
            held_out=splits.held_out,
            repeats=eval_repeats,
            count=count,
        )
        self._promoter = Promoter(ledger=ledger, gate=self._gate, policy=promotion, count=count, emit=emit)
        self._stage = CandidateStage(
            ledger=ledger,
            gate=self._gate,
            fusion=fusion,
            verifier=verifier,
            strategy=strategy,
            suspects=self._suspects_ended,
            count=count,
        )

    def open(
        self, head: Evolvable, measurement: Measurement, *, stable: Evolvable | None = None, noisy: bool = False
    ) -> None:
        """Begin with an artifact: its head on dev and that head's measurement on the held-out split.

        ``stable`` is the version on stable, where it is another one (a run that continues an earlier one). ``noisy``
        says whether one artifact may score differently when measured twice.
        """
        self._gate.noisy = noisy
        book = self._books[head.id] = Book(head, stable or head)
        book.used(head, self._eval_repeats)
        book.measured(measurement)

    async def merge(self, artifact_id: str, entries: Sequence[Ingested]) -> Merged:
        """Bring every card to its end: decide what of ``entries`` is kept, commit it, and move the promotion clock.

        Entries are taken in the order of their keys. Those in ``leftover`` have not ended and wait for the next merge.
        `promote_due` is the step after it.
        Raises GovernanceError for a frozen artifact.
        """
        ensure_not_frozen(artifact_id)
        sweep = Sweep(artifact_id, entries)
        try:
            book = await self._book(artifact_id)
        except UnknownArtifact as unknown:
            sweep.end_all(End(Outcome.UNKNOWN_ARTIFACT, str(unknown)))
            return Merged(sweep.report())
        async with self._serial.merging(book.head):
            await self._brought_to_ends(sweep, book)
        report = sweep.report(book.pool.rate)
        book.settled(report.settled)
        return Merged(report, sweep.leftover, book.head)

    async def promote_due(self, artifact_id: str) -> None:
        """Look at the head for stable if its clock has run down. To be called after every `merge` of the artifact.

        A step of its own, since it measures: a cut in the middle of that must not cost the report of the merge.
        """
        book = self._books.get(artifact_id)
        if book is not None:
            async with self._serial.merging(book.head):
                await self._promoter.after_merge(book)

    async def confirm(self, head: Evolvable, measurement: Measurement | None = None) -> bool:
        """Promote the head at the end of a run, unless it is below stable's figure; whether it is stable now.

        ``measurement`` is a fresh one of ``head`` on the held-out split. Where there is none, or ``head`` is not the
        newest version any more, one of the newest is bought (purpose ``promotion``).
        """
        book = await self._book(head.id)
        await self._follow_the_head(book)
        return await self._promoter.confirm(book, measurement if book.head.version == head.version else None)

    def history(self, artifact_id: str) -> Sequence[SettledCard]:
        """The cards of this artifact that ended last, newest last (at most 64): what proposers learn from."""
        return tuple(self._books[artifact_id].history) if artifact_id in self._books else ()

    def held_out(self, artifact_id: str) -> float | None:
        """The head's pooled figure on the held-out split, in [0, 1], or None where none is known."""
        return self._books[artifact_id].pool.rate if artifact_id in self._books else None

    def stable_pool(self, artifact_id: str) -> Pool:
        """What has been measured on the held-out split of the version on stable; empty where nothing has."""
        book = self._books.get(artifact_id)
        return Pool() if book is None or book.stable_pool is None else book.stable_pool

    # The steps --------------------------------------------------------------------------------------------------------

    async def _brought_to_ends(self, sweep: Sweep, book: Book) -> None:
        await self._follow_the_head(book)
        while sweep.open and sweep.losses < LOSSES:
            try:
                await self._steps(sweep, book)
                return
            except CASConflict:  # somebody else committed: look at everything again, on that head
                sweep.restart()
                await self._follow_the_head(book)
            except BudgetExhausted as spent:
                sweep.end_all(End(Outcome.UNMEASURED, str(spent)))

    async def _steps(self, sweep: Sweep, book: Book) -> None:
        """Steps 0 to 6 on the newest head."""
        await self._bring_onto_head(sweep, book)
        agreeing = await self._without_conflicts(sweep, book, [card for card in sweep.open if not card.rival])
        if await self._stage.tried(sweep, book, agreeing):
            return
        rivals = await self._without_conflicts(sweep, book, [card for card in sweep.open if card.rival])
        for rival in rivals:  # never fused: whole texts compete
            if await self._rival_won(sweep, book, rival):
                return

    async def _follow_the_head(self, book: Book) -> None:
        """Take over a head that was committed by somebody else; what is known of the old one is not about it."""
        head = await self._ledger.head(book.head.id)
        if head.version != book.head.version:
            self._count("foreign_commits")
            book.moved(head)
            book.quiet = 0

    async def _bring_onto_head(self, sweep: Sweep, book: Book) -> None:
        """Trust region and staleness, and what can be told of a card without measuring it."""
        versions = await self._versions(sweep, book.head)

        def step(card: EvidenceCard) -> EvidenceCard | End:
            if reason := oversized(card.diff):
                return End(Outcome.OVERSIZED, reason)
            eta = versions.staleness(card.base_version, {book.head.id, *card.touched})
            alpha = tolerated_lag(book.head, card.diff.contract_breaking, self._async_ratio)
            rivals = getattr(self._strategy, "takes_rivals", True)
            standing = brought_onto(book.head, card, eta, alpha, self._staleness, takes_rivals=rivals)
            if isinstance(standing, End):
                return standing
            if known := book.rejected(standing.diff):
                return known_already(known)
            return violated(self._strategy, book.head, standing.diff) or standing

        await off_the_loop(overtaken(sweep.open, book.head), partial(sweep.sift, step))

    async def _versions(self, sweep: Sweep, head: Evolvable) -> VersionVector:
        """The heads of all artifacts the open cards touched."""
        others = {name for card in sweep.open for name in card.touched} - {head.id}
        versions = {name: (await self._ledger.head(name)).version for name in sorted(others)}
        return VersionVector({**versions, head.id: head.version})

    async def _suspects_ended(self, sweep: Sweep, book: Book, cards: Sequence[EvidenceCard]) -> bool:
        """Put the rebased among ``cards`` to their own tasks, in one wave; those whose task got worse end here.

        Whether any did. A union is measured as a whole before it comes to this: most unions of rebased cards hold, and
        looking at every card first would cost each merge a second wave of evaluations.
        """
        were_rebased = {card.id for card in sweep.rebased}
        rebased = [card for card in cards if card.id in were_rebased]
        wave = await off_the_loop(disputed(rebased), partial(planned, rebased, self._eval_concurrency))
        if wave is None or violated(self._strategy, book.head, wave.union):
            return False
        before, after = await on_own_tasks(self._evaluator, book.head, book.head.apply(wave.union), wave.tasks)
        worse = End(Outcome.REBASE_FAILED, "on the newer head its own task scores less with it than without it.")
        at_fault = worsened(wave, before, after)
        sweep.settle(at_fault, worse)
        return bool(at_fault)

    async def _without_conflicts(
        self, sweep: Sweep, book: Book, cards: Sequence[EvidenceCard]
    ) -> Sequence[EvidenceCard]:
        """The cards that do not contradict each other; the others end."""
        work = disputed(cards)
        contested = await off_the_loop(work, partial(self._conflict.contested, cards))
        if len(contested) > MOST_RANKED:
            contested = self._worth_comparing(sweep, contested)
            cards = sweep.still_open(cards)
        scores = await cheap_scores(self._verifier, book.head, {card.id: card.diff for card in contested})
        resolution = await off_the_loop(work, partial(self._conflict.resolve, cards, scores))
        reasons = {card.id: reason for card, reason in resolution.dropped}
        kept = {card.id for card in resolution.kept}
        for card in cards:
            if card.id not in kept:
                sweep.settle([card], End(Outcome.CONFLICT_DROPPED, reasons.get(card.id, "")))
        return resolution.kept

    def _worth_comparing(self, sweep: Sweep, contested: Sequence[EvidenceCard]) -> Sequence[EvidenceCard]:
        """As many contested cards as a merge buys scores for; the others end."""
        compared = {card.id for card in worth_ranking(contested)}
        rest = [card for card in contested if card.id not in compared]
        reason = f"{len(contested)} contradict others; the {MOST_RANKED} whose own tasks gained most were compared."
        sweep.settle(rest, End(Outcome.CONFLICT_DROPPED, reason))
        return sweep.still_open(contested)

    async def _rival_won(self, sweep: Sweep, book: Book, rival: EvidenceCard) -> bool:
        """A diff that overwrites newer text must beat it on its own tasks, and then at the gate."""
        tasks = own_tasks(rival)
        if tasks:
            before, after = await on_own_tasks(
                self._evaluator, book.head, book.head.apply(rival.diff), tuple(tasks.values())
            )
            if (gain_on(tasks, before, after) or 0.0) <= 0.0:
                lost = End(Outcome.REBASE_FAILED, "on its own task it is not better than the newer text it replaces.")
                sweep.settle([rival], lost)
                return False
        end = await self._stage.put_to_the_test(sweep, book, Candidate(rival.diff, (rival,)))
        if end is not None:
            sweep.settle([rival], end)
        return end is None

    async def _book(self, artifact_id: str) -> Book:
        if artifact_id not in self._books:
            head = await self._ledger.head(artifact_id)
            self._books[artifact_id] = Book(head, await self._ledger.head(artifact_id, "stable"))
        return self._books[artifact_id]

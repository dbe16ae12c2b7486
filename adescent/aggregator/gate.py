"""Steps 4 and 5 for one candidate: measured on the held-out split, judged, and put to the oracle where that must be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import evolve, frozen

from adescent.aggregator.acceptance import judge
from adescent.aggregator.books import Book
from adescent.aggregator.ends import End
from adescent.aggregator.veto import audited, ended_by, weigh_trust
from adescent.budget import Purpose
from adescent.evolvable import Evolvable
from adescent.policies.comparison import COMMON_SHARE, compared
from adescent.policies.keeping import AcceptancePolicy
from adescent.policies.measuring import Auditor, Evaluator, Verifier
from adescent.policies.records import GateEvidence, Measurement, Outcome, Pool
from adescent.sidebyside import side_by_side
from adescent.tasks import Task

__all__ = ["HeldOutGate", "Ruling"]


@frozen
class Ruling:
    """What the gate says of a candidate: how it ended, or None if it may be committed.

    ``pool`` are the measurements that may stand for it once it is the head, ``p`` the probability that it is better.
    """

    end: End | None
    pool: Pool
    p: float | None


class HeldOutGate:
    """Puts candidates before the acceptance policy, with measurements of the held-out split, and before the oracle."""

    def __init__(
        self,
        *,
        evaluator: Evaluator,
        verifier: Verifier,
        auditor: Auditor,
        acceptance: AcceptancePolicy,
        held_out: tuple[Task, ...],
        repeats: int,
        count: Callable[[str], None],
    ) -> None:
        self._evaluator = evaluator
        self._verifier = verifier
        self._auditor = auditor
        self._acceptance = acceptance
        self._held_out = held_out
        self._repeats = repeats
        self._count = count
        self.noisy = False

    async def rule(self, book: Book, candidate: Evolvable) -> Ruling:
        """Measure and judge ``candidate`` against the book's head. Raises BudgetExhausted."""
        await self._know_the_head(book)
        if not self._covered(book.pool):
            unknown = "the head itself could not be measured on enough held-out tasks."
            return Ruling(End(Outcome.UNMEASURED, unknown), Pool(), None)
        first = await self._first_look(book, candidate)
        verdict, evidence = await judge(self._acceptance, first, partial(self._more, book, candidate))
        pool = evidence.fresh if evidence.fresh.by_task else Pool() + evidence.first
        await self._weigh_trust(book, candidate, pool, evidence)
        if verdict.decision == "reject":
            return Ruling(End(verdict.outcome or Outcome.BELOW_THRESHOLD, verdict.reason), pool, verdict.p)
        word = await audited(self._auditor, self._verifier, book.head, candidate)
        return Ruling(ended_by(word), pool, verdict.p)

    async def confirmed(self, book: Book, measurement: Measurement | None = None) -> bool:
        """Whether the head, measured once more, is not below stable's figure. Raises BudgetExhausted.

        ``measurement`` is that one, or None: then it is bought. Without noise the scores the head has are as good as
        new ones, and asking for them again costs nothing.
        """
        if measurement is None:
            repeats = book.unused_repeats(book.head, self._repeats) if self.noisy else range(self._repeats)
            measurement = await self._measure(book.head, repeats, "promotion")
        if not self.noisy and not self._covered(book.pool):
            book.moved(book.head)  # somebody else's commit: what stands for it from now on is this
            book.measured(measurement)
        elif self.noisy:
            book.measured(measurement)
        if book.stable_pool is None:
            repeats = range(self._repeats)
            book.used(book.stable, self._repeats)
            book.stable_pool = Pool() + await self._measure(book.stable, repeats, "promotion")
        head = book.pool if self.noisy else Pool() + measurement
        sides = compared(head, book.stable_pool, len(self._held_out))
        return not isinstance(sides, str) and sides.gain >= 0

    async def _know_the_head(self, book: Book) -> None:
        """Measure a head nobody has measured (a foreign commit), or could measure on enough tasks so far."""
        if self._covered(book.pool):
            return
        repeats = book.unused_repeats(book.head, self._repeats) if self.noisy else range(self._repeats)
        if not self.noisy:
            book.moved(book.head)  # the same repeats give the same scores: they must not count twice
        book.measured(await self._measure(book.head, repeats, "gate"))

    def _covered(self, pool: Pool) -> bool:
        measured = sum(1 for task in self._held_out if task.id in pool.by_task)
        return measured > 0 and measured >= COMMON_SHARE * len(self._held_out)

    async def _first_look(self, book: Book, candidate: Evolvable) -> GateEvidence:
        """The selecting measurement; it ends early once the candidate cannot make it."""
        unseen = GateEvidence(
            book.pool, Measurement(()), noisy=self.noisy, candidates=book.candidates, held_out=len(self._held_out)
        )
        book.used(candidate, self._repeats)
        first = await self._measure(
            candidate,
            range(self._repeats),
            "gate",
            still_open=lambda prefix: self._acceptance.can_still_accept(evolve(unseen, first=prefix)),
        )
        book.candidates += 1
        self._count("candidates_measured")
        if not first.complete:
            self._count("candidates_stopped_early")
        return evolve(unseen, first=first)

    async def _more(self, book: Book, candidate: Evolvable, measurements: int) -> tuple[Measurement, Measurement]:
        """``measurements`` fresh ones of head and candidate, at the same time; the head's join its pool."""
        count = measurements * self._repeats
        ours, theirs = book.unused_repeats(candidate, count), book.unused_repeats(book.head, count)
        incumbent, fresh = await side_by_side(
            lambda: self._measure(book.head, theirs, "gate"), lambda: self._measure(candidate, ours, "gate")
        )
        book.measured(incumbent)
        return incumbent, fresh

    async def _weigh_trust(self, book: Book, candidate: Evolvable, pool: Pool, evidence: GateEvidence) -> None:
        """Not after an early stop: how far below the head the candidate would have ended is not known then."""
        sides = compared(pool, evidence.incumbent, len(self._held_out))
        if evidence.first.complete and not isinstance(sides, str):
            await weigh_trust(self._auditor, self._verifier, book.head, candidate, sides.gain)

    async def _measure(
        self,
        artifact: Evolvable,
        repeats: range,
        purpose: Purpose,
        still_open: Callable[[Measurement], bool] | None = None,
    ) -> Measurement:
        return await self._evaluator.measure(
            artifact, self._held_out, split="held_out", purpose=purpose, repeats=repeats, still_open=still_open
        )

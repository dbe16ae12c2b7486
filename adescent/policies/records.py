"""What decisions are made of and end in: measurements, pools, candidates, verdicts, outcomes, reports.

Nothing here names a worker, process, host, executor, attempt or duration: a decision that looked at one of those
could not be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

from attrs import field, frozen

from adescent.evolvable import Diff, EvidenceCard, Evolvable, State
from adescent.tasks import Score, Task

__all__ = [
    "Assignment",
    "AuditRequest",
    "AuditVerdict",
    "Candidate",
    "Estimate",
    "GateEvidence",
    "Measurement",
    "Outcome",
    "Pool",
    "ProposalContext",
    "Reading",
    "Resolution",
    "SettledCard",
    "SweepReport",
    "Verdict",
]


class Outcome(StrEnum):
    """How a card ended. Every card ends in exactly one of these, once."""

    COMMITTED = "committed"
    BELOW_THRESHOLD = "below-threshold"
    TIE = "tie"
    STALE = "stale"
    OVERSIZED = "oversized"
    NO_OP = "no-op"
    DUPLICATE = "duplicate"
    CONFLICT_DROPPED = "conflict-dropped"
    FUSION_LOST = "fusion-lost"
    REBASE_FAILED = "rebase-failed"
    VIOLATES_INVARIANT = "violates-invariant"
    ORACLE_REJECTED = "oracle-rejected"
    AUDIT_UNAVAILABLE = "audit-unavailable"
    CONTRACT_REFUSED = "contract-refused"
    CAS_CONFLICT = "cas-conflict"
    UNKNOWN_ARTIFACT = "unknown-artifact"
    UNMEASURED = "unmeasured"


@frozen
class Reading:
    """One task's part of a measurement: ``total`` of ``trials`` scores. No trials: it could not be measured.

    ``missing`` says why there are fewer trials than were asked for (a scorer error, retries used up).
    """

    task_id: str
    total: float = 0.0
    trials: int = 0
    missing: str = ""


@frozen
class Measurement:
    """Scores of one artifact on a list of tasks, in the tasks' order.

    ``environment`` is the fingerprint of actors and sandbox; figures of different environments are never compared.
    ``complete`` is False when it stopped early because it could no longer be accepted.
    """

    readings: tuple[Reading, ...]
    environment: str = ""
    complete: bool = True

    @cached_property
    def total(self) -> float:
        """Sum of all scores."""
        return sum(reading.total for reading in self.readings)

    @cached_property
    def trials(self) -> int:
        """Number of scores."""
        return sum(reading.trials for reading in self.readings)

    @property
    def rate(self) -> float | None:
        """Mean score in [0, 1], or None without a single score."""
        return self.total / self.trials if self.trials else None

    @property
    def missing(self) -> tuple[Reading, ...]:
        """The readings that have no score at all."""
        return tuple(reading for reading in self.readings if not reading.trials)


def _copy_sums(by_task: Mapping[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    return dict(by_task)


@frozen
class Pool:
    """Fresh measurements of one artifact added up by task: task id → (sum of scores, number of scores).

    Pools add: ``pool + measurement``. Addition is commutative and associative up to rounding.
    """

    by_task: Mapping[str, tuple[float, int]] = field(factory=dict, hash=False, converter=_copy_sums)
    environment: str = ""

    def __add__(self, measurement: Measurement) -> Pool:
        """The pool with one more measurement; one of another environment replaces what was there.

        A measurement without a single score changes nothing.
        """
        if not measurement.trials:
            return self
        same = not self.by_task or measurement.environment == self.environment
        sums = dict(self.by_task) if same else {}
        for reading in measurement.readings:
            if reading.trials:
                total, trials = sums.get(reading.task_id, (0.0, 0))
                sums[reading.task_id] = (total + reading.total, trials + reading.trials)
        return Pool(sums, measurement.environment)

    def on(self, task_ids: Iterable[str]) -> tuple[float, int]:
        """(sum of scores, number of scores) on these tasks."""
        parts = [self.by_task[task_id] for task_id in task_ids if task_id in self.by_task]
        return sum(total for total, _ in parts), sum(trials for _, trials in parts)

    @cached_property
    def total(self) -> float:
        """Sum of all scores."""
        return sum(total for total, _ in self.by_task.values())

    @cached_property
    def trials(self) -> int:
        """Number of scores."""
        return sum(trials for _, trials in self.by_task.values())

    @property
    def rate(self) -> float | None:
        """Mean score in [0, 1] over everything measured, or None without a score."""
        return self.total / self.trials if self.trials else None


@frozen
class Estimate:
    """A guess at an artifact's rate with its standard deviation, both in [0, 1]."""

    value: float
    sd: float


@frozen
class Candidate:
    """A diff that is put to the test and the cards it stands for (one, or several when it is a union)."""

    diff: Diff
    cards: tuple[EvidenceCard, ...]

    @property
    def fused(self) -> bool:
        """Whether it stands for more than one card."""
        return len(self.cards) > 1


@frozen
class Resolution:
    """What conflict resolution left: cards that agree, and who lost to whom (card → reason)."""

    kept: tuple[EvidenceCard, ...]
    dropped: tuple[tuple[EvidenceCard, str], ...] = ()


@frozen
class GateEvidence:
    """All an acceptance policy may look at.

    ``incumbent`` is the pool of fresh measurements of the head, ``first`` the candidate's first (selecting)
    measurement, ``fresh`` its later ones added up. ``noisy`` says whether the same artifact may score differently when
    measured twice; ``candidates`` how many candidates of this artifact have been measured before; ``held_out`` the
    number of tasks a complete measurement covers.
    """

    incumbent: Pool
    first: Measurement
    fresh: Pool = Pool()
    noisy: bool = False
    candidates: int = 0
    held_out: int = 0


@frozen
class Verdict:
    """What an acceptance policy says: take it, refuse it with an outcome, or measure ``repeats`` more of both sides.

    ``p`` is the probability that the candidate is better, where one was computed.
    """

    decision: Literal["accept", "reject", "measure"]
    outcome: Outcome | None = None
    p: float | None = None
    repeats: int = 0
    reason: str = ""


@frozen
class AuditRequest:
    """A candidate that would be accepted and wants the oracle's word.

    ``uncertainty`` is the posterior standard deviation of the candidate's rate.
    """

    base: Evolvable
    candidate: Evolvable
    uncertainty: float


@frozen
class AuditVerdict:
    """The oracle's word. ``unavailable``: it was needed and could not be had; nothing cheaper may stand in for it."""

    decision: Literal["passed", "rejected", "unavailable"]
    reason: str = ""


@frozen
class SettledCard:
    """A card with its end: what the proposer may learn from. ``reason`` is in words."""

    card: EvidenceCard
    outcome: Outcome
    reason: str = ""


@frozen
class ProposalContext:
    """What a proposer is told: the artifact as the worker saw it, the attempt, and how earlier proposals ended.

    ``history`` holds the most recent settled cards of this artifact, newest last.
    """

    rendered: str
    state: State
    task: Task
    output: Any
    score: Score
    history: Sequence[SettledCard] = ()


@frozen
class Assignment:
    """What a unit of work draws its leases from: tasks, and the arm they belong to (``""`` where there are no arms)."""

    tasks: tuple[Task, ...]
    arm: str = ""


@frozen
class SweepReport:
    """One merge of one artifact: what was considered and how each card ended.

    ``version`` is the version committed, or None. ``held_out`` is the head's pooled figure afterwards.
    ``fusion`` says what became of the unions: ``fused``, ``refused`` or ``unmeasured`` for each that was put to the
    test, why there was none (``one diff``, ``nothing new``, ``contradiction``), and how one did where it was ranked
    first (``won``, ``lost``, ``tied``, ``unmeasured``).
    """

    artifact_id: str
    settled: tuple[SettledCard, ...]
    version: int | None = None
    held_out: float | None = None
    fused: int = 0
    fusion: tuple[str, ...] = ()

    @property
    def considered(self) -> int:
        """Number of cards that ended in this merge."""
        return len(self.settled)

    def count(self, *outcomes: Outcome) -> int:
        """Number of cards that ended in one of ``outcomes``."""
        return sum(1 for settled in self.settled if settled.outcome in outcomes)

"""Every replaceable decision and service of a run, as protocols without implementations.

Decisions are functions of what they are given. What needs state between calls hands out a view for one run
(``begin``, or a factory in the bundle), so that one policy object may serve several runs at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from attrs import frozen

from adescent.budget import Account, Purpose
from adescent.evolvable import Diff, EvidenceCard, Evolvable, State, VersionVector
from adescent.policies.records import (
    Assignment,
    AuditRequest,
    AuditVerdict,
    Candidate,
    Estimate,
    GateEvidence,
    Measurement,
    ProposalContext,
    Resolution,
    Verdict,
)
from adescent.refs import Resolver
from adescent.tasks import Score, Split, Splits, Task
from adescent.workspec import Result, RolloutSpec

__all__ = [
    "AcceptancePolicy",
    "Actors",
    "Auditor",
    "Commit",
    "ConflictPolicy",
    "EvalCache",
    "EvaluationServices",
    "Evaluator",
    "EvaluatorFactory",
    "Executor",
    "FusionPolicy",
    "Ledger",
    "ParallelPlan",
    "Planner",
    "PromotionPolicy",
    "ProposalPolicy",
    "StalenessAction",
    "StalenessPolicy",
    "Strategy",
    "TaskDraw",
    "TaskSampler",
    "Verifier",
    "VerifierServices",
]

StalenessAction = Literal["accept", "rebase", "discard"]


# What evolves ---------------------------------------------------------------------------------------------------------


class Strategy(Protocol):
    """What an artifact is made of, and how a proposal becomes a diff.

    Two optional extras are used where a strategy has them: ``violation(state) -> str`` names what makes a state
    invalid (``""`` when it is fine), and ``takes_rivals`` (True unless said otherwise) tells whether a diff that
    overwrites newer text may compete with it. ``repr()`` names the strategy with all its options: a run directory is
    continued only where it is the same.
    """

    def initial(self, initial_state: Mapping[str, str] | str | None) -> State:
        """The state a run starts from, given what the caller passed (None: the strategy's own start)."""
        ...

    def render(self, state: State) -> str:
        """The text an agent is run with."""
        ...

    def to_diff(self, state: State, proposal: Any, target: str) -> Diff:
        """The change that ``proposal`` (whatever ``propose`` returned) means to ``state``; no ops means no change.

        Raises ContractError when the proposal is of a type the strategy does not take (the proposer is written wrongly)
        and ProposalError when it has the type and cannot be read all the same (a failed proposal, as models make them).
        """
        ...


class ProposalPolicy(Protocol):
    """Whether and how a failed task becomes a proposal."""

    async def propose(self, context: ProposalContext, ask: Callable[[ProposalContext], Awaitable[Any]]) -> Any:
        """A proposal or None. ``ask`` calls the proposer the run was given; each call is paid from the budget."""
        ...


# What to try next -----------------------------------------------------------------------------------------------------


class TaskDraw(Protocol):
    """Draws tasks for one run and remembers how they went."""

    def draw(self, assignment: Assignment, turn: int) -> Task:
        """The task of the next lease, out of the assignment's."""
        ...

    def observe(self, task: Task, score: Score) -> None:
        """How a lease of ``task`` went."""
        ...


class TaskSampler(Protocol):
    """Which of its tasks a unit tries next."""

    def begin(self, tasks: Sequence[Task], seed: int) -> TaskDraw:
        """A draw for one run over the train split."""
        ...


class Planner(Protocol):
    """Splits the work of one run into assignments.

    An optional ``observe(assignment, score)`` is told once how each went; the score is None when the lease gave none.
    """

    def assign(self, turn: int, unit: int) -> Assignment:
        """What unit ``unit`` (0 … n_units - 1) works on in its turn ``turn`` (0, 1, …): one lease, under way."""
        ...


class ParallelPlan(Protocol):
    """How parallel units share the work."""

    def begin(self, tasks: Sequence[Task], n_units: int, artifact_id: str, solved_threshold: float) -> Planner:
        """A planner for one run."""
        ...


# Where a rollout runs -------------------------------------------------------------------------------------------------


@frozen(eq=False)
class Actors:
    """The functions of a run, or Refs to them, and what is needed to call them.

    ``run(rendered, task)``, ``reward(task, output)``; ``hide`` are keys of ``task.meta`` that run does not see.
    """

    run: Any
    reward: Any
    hide: tuple[str, ...] = ("gold",)
    resolver: Resolver | None = None


class Executor(Protocol):
    """Where rollouts run: one at a time in, one result out, any number in flight."""

    takes_callables: bool
    """Whether plain callables may be attached; if not, actors must be Refs."""

    slots: int | None
    """How many rollouts can be under way at once; None where nothing but the caller limits it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...

    def attach_actors(self, actors: Actors) -> Executor:
        """A view of this executor for one run, with that run's actors."""
        ...

    async def rollout(self, spec: RolloutSpec) -> Result:
        """Run and score; whatever goes wrong is in the result."""
        ...


# What a candidate is worth --------------------------------------------------------------------------------------------


class EvalCache(Protocol):
    """Scores by what was measured. Keys are strings; a failed evaluation is never put in."""

    def get(self, key: str) -> Score | None:
        """The score under a key, or None."""
        ...

    def put(self, key: str, score: Score) -> None:
        """Keep a score under a key."""
        ...


@frozen(eq=False)
class EvaluationServices:
    """What an evaluator is built from.

    ``rollout`` runs a spec in the evaluation lane, retried where that helps; ``identity`` names actors, scorer and
    sandbox, so that figures of another environment are never taken for these; ``concurrency`` bounds evaluations under
    way; ``count`` adds to a named counter of the run. ``calls_each`` is what one evaluation may cost: its run, and its
    scorer too where that is the oracle. ``in_waves`` asks for measurements that may end early to be made in waves of
    ``concurrency`` tasks, each finished before it is looked at, so that timing does not change what they cost.
    """

    rollout: Callable[[RolloutSpec, Purpose], Awaitable[Result]]
    render: Callable[[State], str]
    account: Account
    identity: str
    concurrency: int
    cache: EvalCache | None
    count: Callable[[str], None]
    calls_each: int = 1
    in_waves: bool = False


class Evaluator(Protocol):
    """Measures artifacts: one group for the whole run, each score bought once."""

    async def measure(
        self,
        artifact: Evolvable,
        tasks: Sequence[Task],
        *,
        split: Split,
        purpose: Purpose,
        repeats: range = range(1),
        fresh: bool = False,
        still_open: Callable[[Measurement], bool] | None = None,
    ) -> Measurement:
        """Score ``artifact`` on ``tasks``, once for each number in ``repeats`` (the same number is the same score).

        ``fresh`` goes past the cache. ``still_open`` is asked of completed prefixes in task order and may end a
        measurement early. Raises BudgetExhausted before anything is run when the budget does not cover what the cache
        and evaluations under way do not answer.
        """
        ...

    def unanswered(self, artifact: Evolvable, tasks: Sequence[Task], *, split: Split, repeats: range = range(1)) -> int:
        """How many scores of such a measurement would have to be bought."""
        ...


EvaluatorFactory = Callable[[EvaluationServices], AbstractAsyncContextManager[Evaluator]]


@frozen(eq=False)
class VerifierServices:
    """What a verifier is built from. ``oracle`` scores with the independent scorer, or is None without one."""

    evaluator: Evaluator
    oracle: Evaluator | None
    splits: Splits
    cheap_tasks: int
    seed: int


class Verifier(Protocol):
    """What a candidate is worth, in three layers of growing cost.

    An optional ``has_oracle`` (True unless said otherwise) tells whether the oracle can say anything else than the
    gate. Where it cannot, no oracle is asked, and none of this artifact's cheap verdicts is put to a test.
    """

    async def rule(self, artifact: Evolvable) -> Measurement:
        """On the cheap subset of the train split, drawn once and fixed. Ranks, and never decides a commit."""
        ...

    async def learned(self, artifact: Evolvable) -> Estimate:
        """An estimate of the rate and how sure it is."""
        ...

    async def oracle(self, artifact: Evolvable) -> Measurement:
        """Ground truth: the independent scorer, or the reward on the full held-out split."""
        ...

    def oracle_cost(self, artifact: Evolvable) -> int:
        """How many task scorings an oracle call would have to buy."""
        ...


VerifierFactory = Callable[[VerifierServices], Verifier]


class Auditor(Protocol):
    """Spends the oracle's budget where it matters and keeps the trust in cheaper verdicts."""

    def required(self, artifact: Evolvable) -> bool:
        """Whether the oracle must be heard before a change to this artifact is committed."""
        ...

    def buys_cheap_verdicts(self, artifact: Evolvable) -> bool:
        """Whether a cheap verdict is worth its price here, since trust matters for this artifact."""
        ...

    def observe(self, artifact_id: str, cheap_gain: float, full_gain: float) -> None:
        """A cheap and a full verdict on the same candidate, as gains over its base."""
        ...

    async def audit(self, request: AuditRequest) -> AuditVerdict:
        """Queue for the oracle and wait for its word."""
        ...


# What is kept ---------------------------------------------------------------------------------------------------------


class StalenessPolicy(Protocol):
    """What becomes of a diff whose base lies behind the head."""

    def decide(self, eta: int, alpha: int, contract_breaking: bool) -> StalenessAction:
        """``eta`` versions behind (≥ 0) where ``alpha`` are tolerated (0 for a breaking diff)."""
        ...


class ConflictPolicy(Protocol):
    """Who stays when diffs contradict each other."""

    def contested(self, cards: Sequence[EvidenceCard]) -> Sequence[EvidenceCard]:
        """The cards whose cheap score is needed to decide, after texts that can be merged have been."""
        ...

    def resolve(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Resolution:
        """Cards that do not contradict each other. ``scores``: card id → cheap score in [0, 1]."""
        ...


class FusionPolicy(Protocol):
    """Which diffs are put to the test together, and what is tried next when the union fails."""

    @property
    def tournament(self) -> bool:
        """Whether union and singles are ranked on the cheap subset first."""
        ...

    def candidates(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Sequence[Candidate]:
        """What to put before the gate, in order. ``scores``: diff id → cheap score, where one was measured."""
        ...


class AcceptancePolicy(Protocol):
    """Whether the evidence suffices to commit a candidate."""

    def decide(self, evidence: GateEvidence) -> Verdict:
        """Accept, reject, or ask for more measurements."""
        ...

    def can_still_accept(self, evidence: GateEvidence) -> bool:
        """Whether the rest of an incomplete measurement could still lead to acceptance.

        Asked of prefixes in the order of the tasks: not of every one where there are many.
        """
        ...


class PromotionPolicy(Protocol):
    """When a version on dev is confirmed often enough to be looked at for stable."""

    def due(self, quiet_sweeps: int) -> bool:
        """After ``quiet_sweeps`` decided merges of this artifact without a commit or an oracle rejection."""
        ...


@frozen
class Commit:
    """One entry of a ledger's history. ``id`` is the commit's name in git, ``tree`` that of its tree."""

    id: str
    tree: str
    artifact_id: str
    version: int
    message: str
    decision: Mapping[str, str]


class Ledger(Protocol):
    """What has been kept: every version of every artifact, on ``dev`` and, once confirmed, on ``stable``.

    Synchronous; a run calls it from one thread of its own. All methods raise LedgerError when they cannot do their job
    and UnknownArtifact for names it does not hold.
    """

    blocking: bool
    """Whether calls may wait for a disk, and so belong in a thread."""

    location: str
    """Where the repository is, or ``""`` when it is in memory."""

    def register(self, artifact: Evolvable) -> Evolvable:
        """Take in an artifact as version 1 on both branches, or a held one under another contract major as the next."""
        ...

    def head(self, artifact_id: str, branch: str = "dev") -> Evolvable:
        """The newest version on a branch."""
        ...

    def versions(self, branch: str = "dev") -> VersionVector:
        """The versions of all artifacts on a branch."""
        ...

    def snapshot(self, branch: str = "dev") -> Mapping[str, Evolvable]:
        """All artifacts of a branch at one commit."""
        ...

    def commit(
        self, artifact: Evolvable, base_version: int, *, message: str = "", decision: Mapping[str, str] | None = None
    ) -> Evolvable:
        """Compare-and-swap on dev: the artifact as its next version.

        Raises CASConflict when the head is not ``base_version`` and ContractError for another contract major.
        """
        ...

    def commit_atomic(
        self,
        artifacts: Sequence[Evolvable],
        base_versions: Mapping[str, int],
        *,
        message: str = "",
        decision: Mapping[str, str] | None = None,
    ) -> tuple[Evolvable, ...]:
        """All or nothing, in one commit."""
        ...

    def promote(self, artifact_id: str, version: int) -> Evolvable:
        """Make exactly this version the one on stable."""
        ...

    def rollback(self, artifact_id: str, version: int, *, message: str = "") -> Evolvable:
        """Commit the state of an old version as a new one; history is never rewritten."""
        ...

    def history(self, artifact_id: str) -> Sequence[Commit]:
        """The commits that changed an artifact, newest first."""
        ...

    def diff(self, artifact_id: str, old: int, new: int) -> Diff:
        """What changed between two versions."""
        ...

    def log(self, limit: int | None = None) -> Sequence[Commit]:
        """The commits on dev, newest first."""
        ...

    def close(self) -> None:
        """Leave the repository tidy. Idempotent."""
        ...

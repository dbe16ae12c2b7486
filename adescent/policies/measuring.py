"""What a candidate is worth, and what that may cost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from attrs import frozen

from adescent.budget import Account, Purpose
from adescent.evolvable import Evolvable, State
from adescent.policies.records import AuditRequest, AuditVerdict, Estimate, Measurement
from adescent.tasks import Score, Split, Splits, Task
from adescent.workspec import Result, RolloutSpec

__all__ = [
    "Auditor",
    "EvalCache",
    "EvaluationServices",
    "Evaluator",
    "EvaluatorFactory",
    "Verifier",
    "VerifierFactory",
    "VerifierServices",
]


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

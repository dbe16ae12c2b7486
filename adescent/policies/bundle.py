"""Everything replaceable, in one argument."""

from __future__ import annotations

from attrs import frozen

from adescent.policies.protocols import (
    AcceptancePolicy,
    ConflictPolicy,
    EvalCache,
    EvaluatorFactory,
    Executor,
    FusionPolicy,
    Ledger,
    PromotionPolicy,
    ProposalPolicy,
    StalenessPolicy,
    TaskSampler,
    VerifierFactory,
)

__all__ = ["Policies"]


@frozen(kw_only=True, eq=False)
class Policies:
    """What a run decides with and runs on; None is the default of the schedule.

    ``verifier`` and ``evaluator`` are factories, called once a run with what that run offers them; the others are
    objects that runs may share.
    """

    executor: Executor | None = None
    task_sampler: TaskSampler | None = None
    staleness: StalenessPolicy | None = None
    conflict: ConflictPolicy | None = None
    fusion: FusionPolicy | None = None
    acceptance: AcceptancePolicy | None = None
    promotion: PromotionPolicy | None = None
    proposal: ProposalPolicy | None = None
    verifier: VerifierFactory | None = None
    ledger: Ledger | None = None
    eval_cache: EvalCache | None = None
    evaluator: EvaluatorFactory | None = None

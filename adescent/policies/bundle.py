"""Everything replaceable, in one argument."""

from __future__ import annotations

from functools import wraps
from typing import Any, TypeVar

from attrs import field, fields, frozen

from adescent.errors import OptionError
from adescent.policies.conformance import fits, is_a, makes
from adescent.policies.execution import Executor
from adescent.policies.keeping import (
    AcceptancePolicy,
    ConflictPolicy,
    FusionPolicy,
    Ledger,
    PromotionPolicy,
    StalenessPolicy,
)
from adescent.policies.measuring import EvalCache, EvaluatorFactory, VerifierFactory
from adescent.policies.search import ProposalPolicy, TaskSampler
from adescent.workspec import SandboxSpec

__all__ = ["Policies"]

Bundle = TypeVar("Bundle")


def _telling_its_fields(bundle: type[Bundle]) -> type[Bundle]:
    """Let a name that is no field raise an error that lists those that are."""
    known = [each.name for each in fields(bundle)]  # type: ignore[arg-type]
    make = bundle.__init__

    @wraps(make)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        if unknown := sorted(given.keys() - set(known)):
            names = ", ".join(map(repr, unknown))
            raise OptionError(f"{bundle.__name__} has no field {names}; its fields are {', '.join(sorted(known))}.")
        make(self, *args, **given)

    bundle.__init__ = checked  # type: ignore[method-assign]
    return bundle


@_telling_its_fields
@frozen(kw_only=True, eq=False)
class Policies:
    """What a run decides with and runs on; None is the default of the schedule.

    ``sandbox`` is how rollouts and evaluations are confined, by an executor that does so. ``verifier`` and
    ``evaluator`` are factories, called once a run with what that run offers them; the others are objects that runs may
    share. Raises OptionError for a field that does not exist and for a value that is no policy of its kind.
    """

    executor: Executor | None = field(default=None, validator=fits(Executor))
    sandbox: SandboxSpec | None = field(default=None, validator=is_a(SandboxSpec))
    task_sampler: TaskSampler | None = field(default=None, validator=fits(TaskSampler))
    staleness: StalenessPolicy | None = field(default=None, validator=fits(StalenessPolicy))
    conflict: ConflictPolicy | None = field(default=None, validator=fits(ConflictPolicy))
    fusion: FusionPolicy | None = field(default=None, validator=fits(FusionPolicy))
    acceptance: AcceptancePolicy | None = field(default=None, validator=fits(AcceptancePolicy))
    promotion: PromotionPolicy | None = field(default=None, validator=fits(PromotionPolicy))
    proposal: ProposalPolicy | None = field(default=None, validator=fits(ProposalPolicy))
    verifier: VerifierFactory | None = field(default=None, validator=makes("a verifier"))
    ledger: Ledger | None = field(default=None, validator=fits(Ledger))
    eval_cache: EvalCache | None = field(default=None, validator=fits(EvalCache))
    evaluator: EvaluatorFactory | None = field(default=None, validator=makes("an evaluator"))

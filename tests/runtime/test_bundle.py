"""The bundle of everything replaceable: what does not belong in it is refused when it is made."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from attrs import evolve, fields

from adescent.aggregator import (
    BetaAcceptance,
    ConfirmedPromotion,
    FullStaleness,
    GuardedStaleness,
    KeepBetter,
    ReflectiveStaleness,
    UnionFusion,
)
from adescent.errors import OptionError
from adescent.executors import InlineExecutor, ProcessExecutor, ThreadExecutor
from adescent.ledger import MemoryLedger
from adescent.policies import Actors, Policies
from adescent.runtime.worker import DirectProposal
from adescent.sandbox import Admission, Workspaces
from adescent.scheduling import DifficultyWeighted, RoundRobin
from adescent.verifier import EvaluationGroup, LayeredVerifier, MemoryCache
from adescent.workspec import SandboxSpec

OURS: dict[str, tuple[Any, ...]] = {
    "executor": (InlineExecutor(), ThreadExecutor(1)),
    "sandbox": (SandboxSpec(), SandboxSpec(level="none")),
    "task_sampler": (RoundRobin(), DifficultyWeighted()),
    "staleness": (FullStaleness(), GuardedStaleness(), ReflectiveStaleness()),
    "conflict": (KeepBetter(),),
    "fusion": (UnionFusion(),),
    "acceptance": (BetaAcceptance(),),
    "promotion": (ConfirmedPromotion(),),
    "proposal": (DirectProposal(),),
    "verifier": (LayeredVerifier,),
    "ledger": (MemoryLedger(),),
    "eval_cache": (MemoryCache(),),
    "evaluator": (EvaluationGroup, lambda services: EvaluationGroup(services)),
}
NAMES = [field.name for field in fields(Policies)]


def test_a_name_that_is_no_field_lists_those_that_are() -> None:
    with pytest.raises(TypeError, match="'acceptence', 'zeal'") as refused:
        Policies(acceptence=BetaAcceptance(), zeal=1)  # type: ignore[call-arg]
    assert all(name in str(refused.value) for name in NAMES)


def test_fields_are_named() -> None:
    with pytest.raises(TypeError):
        Policies(InlineExecutor())  # type: ignore[call-arg]
    assert list(inspect.signature(Policies).parameters) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_the_package_brings_fits(name: str) -> None:
    for policy in OURS[name]:
        assert getattr(Policies(**{name: policy}), name) is policy
    assert getattr(Policies(**{name: None}), name) is None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_policy_of_the_kind_is_refused_by_name(name: str) -> None:
    wrong: dict[str, Any] = {name: 3}
    with pytest.raises(OptionError, match=f"{name}=3"):
        Policies(**wrong)
    if name not in ("verifier", "evaluator"):
        kind = type(OURS[name][0])
        wrong[name] = kind
        with pytest.raises(OptionError, match=rf"{name}= .*{kind.__name__}\("):
            Policies(**wrong)


@pytest.mark.parametrize(
    ("option", "kind"),
    [("sandbox", SandboxSpec), ("provider", Workspaces), ("admission", Admission), ("actors", Actors)],
)
def test_what_processes_cannot_use_is_refused_by_name_when_the_executor_is_made(option: str, kind: Any) -> None:
    wrong: Any
    for wrong in (3, ("run", "reward"), kind):
        with pytest.raises(OptionError, match=rf"{option}="):
            ProcessExecutor(1, **{option: wrong})


def test_a_bundle_can_be_changed_in_one_field() -> None:
    changed = evolve(Policies(fusion=UnionFusion()), conflict=KeepBetter())
    assert (changed.fusion, changed.conflict) == (UnionFusion(), KeepBetter())

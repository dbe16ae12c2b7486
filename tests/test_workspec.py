from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError

from adescent.errors import ContractError
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

OTHER: dict[str, Any] = {
    "env": ("LANG",),
    "memory_mb": 512,
    "cpu_seconds": 2.0,
    "timeout_s": 3.0,
    "network": True,
    "level": "none",
}


def test_the_order_of_names_does_not_make_another_sandbox() -> None:
    one, other = SandboxSpec(env=("LANG", "HOME", "HOME")), SandboxSpec(env=("HOME", "LANG"))
    assert one == other
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("option", sorted(OTHER))
def test_whatever_may_change_a_measurement_changes_the_fingerprint(option: str) -> None:
    assert SandboxSpec(**{option: OTHER[option]}).fingerprint() != SandboxSpec().fingerprint()


def test_insisting_on_a_level_measures_the_same() -> None:
    assert {field.name for field in fields(SandboxSpec)} == {*OTHER, "require"}
    assert SandboxSpec(require=True).fingerprint() == SandboxSpec().fingerprint()


@pytest.mark.parametrize(
    "env", [("TOKEN=hunter2",), ("",), ("a b",), (3,), ({"TOKEN": "hunter2"},), ("TOKEN\n",), "A=b"]
)
def test_a_sandbox_carries_names_and_never_values(env: Any) -> None:
    with pytest.raises(ContractError, match="names of environment variables") as raised:
        SandboxSpec(env=env)
    assert "hunter2" not in str(raised.value)


def test_one_name_may_be_given_alone() -> None:
    assert SandboxSpec(env="LANG").env == ("LANG",)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("memory_mb", 0),
        ("memory_mb", 1.5),
        ("memory_mb", True),
        ("cpu_seconds", 0),
        ("cpu_seconds", float("nan")),
        ("timeout_s", -1.0),
        ("timeout_s", float("inf")),
        ("timeout_s", "3"),
        ("network", 1),
        ("level", "jail"),
        ("level", None),
        ("require", "yes"),
    ],
)
def test_a_sandbox_out_of_range_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(ContractError, match=rf"SandboxSpec\({option}=.* must be"):
        SandboxSpec(**{option: value})


@pytest.mark.parametrize("option", sorted(OTHER))
def test_where_nothing_is_confined_only_limits_and_secrets_are_asked_for(option: str) -> None:
    assert SandboxSpec(**{option: OTHER[option]}).asks_for_something == (option != "level")
    there_all_the_same = {"env", "cpu_seconds", "timeout_s"}
    nothing: Any = {"level": "none", option: OTHER[option]}
    assert SandboxSpec(**nothing).asks_for_something == (option in there_all_the_same)


@pytest.mark.parametrize("wrong", ["limits", 3, SandboxSpec, {"level": "limits"}])
def test_a_rollout_is_confined_by_a_sandbox_or_not_made(wrong: Any) -> None:
    with pytest.raises(ContractError, match=r"sandbox=.* made as SandboxSpec\("):
        RolloutSpec("", Task("t", "?"), sandbox=wrong)
    assert RolloutSpec("", Task("t", "?"), sandbox=SandboxSpec()).sandbox == SandboxSpec()


@pytest.mark.parametrize("kind", ["model", "infrastructure", "caller"])
def test_a_result_says_who_has_to_act(kind: Any) -> None:
    failed = Result("lease", "t", error=Failure(kind, "run", "ValueError", "no"))
    assert failed.kind == kind
    assert Result("lease", "t", score=Score(1.0)).kind == "ok"


def test_a_failure_reads_as_where_what_and_why() -> None:
    assert str(Failure("model", "run", "ValueError", "no such tool")) == "run: ValueError: no such tool"
    assert str(Failure("model", "reward", "KeyError", "")) == "reward: KeyError"


def test_the_cause_stays_out_of_what_is_printed() -> None:
    cause = ValueError("hunter2")
    failure = Failure("model", "run", "ValueError", "hidden", cause=cause)
    assert "hunter2" not in repr(failure)
    assert failure.cause is cause


def test_an_attempt_is_the_same_lease_again() -> None:
    spec = RolloutSpec("be kind", Task("t", "p"), lease_id="lease")
    again = evolve(spec, attempt=1)
    assert (again.lease_id, again.attempt, spec.attempt) == ("lease", 1, 0)
    with pytest.raises(FrozenInstanceError):
        spec.attempt = 1  # type: ignore[misc]

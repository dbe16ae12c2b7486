"""The front door's keywords: which there are, what they default to, and what is refused before anything is run."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import fields, frozen

from adescent.aggregator import BetaAcceptance
from adescent.budget import Budget
from adescent.config import Options, RunConfig
from adescent.errors import AdescentError, ContractError, GovernanceError, OptionError, RefError
from adescent.evolution import Evolution, async_evolve, evolve
from adescent.executors import InlineExecutor
from adescent.governance import FROZEN_IDS
from adescent.policies import Policies
from adescent.refs import Ref
from adescent.scheduling import ClusterParallel, DataParallel, RoundRobin
from adescent.strategies import AppendRules, KeyedRules, SingleSlot
from adescent.tasks import Task

# The table of the front door. None stands for the default of the schedule or of another keyword.
KEYWORDS: dict[str, Any] = {
    "agent": None,
    "run": None,
    "propose": None,
    "hide": ("gold",),
    "strategy": None,
    "initial_state": None,
    "artifact_id": "artifact",
    "blast_radius": 0.2,
    "schedule": "rounds",
    "n_workers": 4,
    "rounds": None,
    "parallel": None,
    "task_sampler": None,
    "max_concurrency": None,
    "eval_concurrency": 8,
    "async_ratio": None,
    "max_unmerged": None,
    "resync_on_commit": None,
    "refresh_interval": None,
    "budget": Budget(),
    "target_reward": None,
    "patience": None,
    "rollout_timeout": None,
    "round_timeout": None,
    "held_out_frac": 0.4,
    "held_out": None,
    "test_frac": 0.0,
    "test": None,
    "seed": 0,
    "cheap_eval_tasks": 8,
    "eval_repeats": 1,
    "confirm_repeats": 2,
    "noise": "auto",
    "oracle": None,
    "oracle_budget": 200,
    "self_verify": False,
    "solved_threshold": 0.999,
    "run_dir": None,
    "on_event": None,
    "strict": False,
    "allow": (),
}


# What there is --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("door", "schedule"), [(evolve, "rounds"), (async_evolve, "stream"), (Evolution, "stream")])
def test_the_signature_is_the_table(door: Callable[..., Any], schedule: str) -> None:
    parameters = inspect.signature(door).parameters
    assert list(parameters)[:2] == ["tasks", "reward"]
    keywords = {name: parameter for name, parameter in parameters.items() if name not in ("tasks", "reward")}
    assert {parameter.kind for parameter in keywords.values()} == {inspect.Parameter.KEYWORD_ONLY}
    defaults = {name: parameter.default for name, parameter in keywords.items()}
    assert isinstance(defaults.pop("policies"), Policies)
    assert defaults == {**KEYWORDS, "schedule": schedule, "asynchronous": None}


def test_type_checkers_see_the_same_keywords() -> None:
    seen = typing.get_type_hints(Options).keys()
    held = {field.name for field in fields(RunConfig)}
    assert seen - {"asynchronous"} == held - {"tasks", "reward"}


def nothing(*_: Any) -> None:
    raise AssertionError("nothing may be called")


def config(door: Any = "rounds", /, **options: Any) -> RunConfig:
    return RunConfig.from_options(
        [{"prompt": str(number)} for number in range(10)],
        nothing,
        {"run": nothing, "propose": nothing, **options},
        door,
    )


def test_the_door_chooses_the_schedule_and_the_caller_another() -> None:
    assert config("stream").schedule == "stream"
    assert config("stream", schedule="rounds").schedule == "rounds"
    assert config("stream", asynchronous=False).schedule == "rounds"
    assert config("rounds", asynchronous=True, schedule="stream").schedule == "stream"
    assert config("rounds", asynchronous=None).schedule == "rounds"


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, 15 * 4),
        ({"n_workers": 7}, 15 * 7),
        ({"rounds": 3}, 12),
        ({"rounds": 3, "patience": 2}, 12),
        ({"rounds": 3, "budget": Budget(calls=99)}, 12),
        ({"patience": 2}, None),
        ({"budget": Budget(seconds=1.0)}, None),
        ({"target_reward": 0.9}, 15 * 4),  # a target that is never reached ends nothing
    ],
)
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
def test_rounds_are_rollouts_of_all_workers(options: Any, total: int | None, schedule: str) -> None:
    assert config(schedule, **options).total_rollouts == total


def test_names_may_be_one_or_many() -> None:
    assert config(hide="secret").hide == ("secret",)
    assert config(hide=["a", "b"]).hide == ("a", "b")
    assert config(allow=()).allow == ()


def test_a_run_keeps_to_its_directory_wherever_actors_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert config(run_dir="here").run_dir == tmp_path / "here"


def test_an_agent_is_its_two_methods() -> None:
    class Agent:
        def solve(self, rendered: str, task: Task) -> str:
            return "solved"

        def propose(self, *_: Any) -> str:
            return "proposed"

    made = config(agent=Agent(), run=None, propose=None)
    assert (made.run("", Task("t", "p")), made.propose()) == ("solved", "proposed")
    assert made.agent is None


# What is refused ------------------------------------------------------------------------------------------------------

TASKS = [Task(str(number), f"prompt {number}") for number in range(10)]

NAMELESS: tuple[Any, ...] = ("", "a b", "../up", 3, None, [])


@frozen
class Starting:
    """A strategy that begins with whatever it is told."""

    state: Any

    def initial(self, initial_state: Any) -> Any:
        return self.state

    def render(self, state: Any) -> str:
        return ""

    def to_diff(self, state: Any, proposal: Any, target: str) -> Any:
        raise NotImplementedError


REFUSED: dict[str, dict[str, Any]] = {
    "duplicate ids": {"tasks": [Task("a", "x")] * 5},
    "an empty id": {"tasks": [Task("", "x"), *TASKS]},
    "a blank id": {"tasks": [Task(" ", "x"), *TASKS]},
    "rows that share an id": {"tasks": [{"prompt": "x", "id": "1"}, {"prompt": "y", "id": "1"}, *TASKS]},
    "duplicate held-out ids": {"held_out": [TASKS[0], TASKS[0]]},
    "no task": {"tasks": []},
    "too few tasks for the split": {"tasks": TASKS[:1]},
    "too few for three splits": {"tasks": TASKS[:2], "test_frac": 0.3},
    "an empty held-out split": {"held_out": []},
    "tasks that are none": {"tasks": None},
    "a row without a prompt": {"tasks": [{"text": "x"}]},
    "a function in a task's meta": {"tasks": [Task("m", "x", {"check": nothing}), *TASKS]},
    "an open file in a row": {"tasks": [{"prompt": "x", "file": sys.__stderr__}, *TASKS]},
    "NaN in a held-out task": {"held_out": [Task("m", "x", {"weight": float("nan")})]},
    "a set in a test task": {"test": [Task("m", "x", {"words": {"a"}})]},
    **{f"held_out_frac={share!r}": {"held_out_frac": share} for share in (0, 1, -0.1, 1.5, float("nan"), "0.4", None)},
    **{f"test_frac={share!r}": {"test_frac": share} for share in (1.0, -0.1, "x", False)},
    "fractions that leave nothing": {"held_out_frac": 0.5, "test_frac": 0.5},
    **{f"blast_radius={radius!r}": {"blast_radius": radius} for radius in (1.1, -0.1, float("nan"), "x", True, None)},
    **{f"the frozen id {name}": {"artifact_id": name} for name in sorted(FROZEN_IDS)},
    **{f"artifact_id={identity!r}": {"artifact_id": identity} for identity in NAMELESS},
    "a run that takes one argument": {"run": lambda rendered: ""},
    "a run that takes four": {"run": lambda rendered, task, ctx, more: ""},
    "a propose that takes one": {"propose": lambda task: ""},
    "a propose that takes keywords only": {"propose": lambda *, task: ""},
    "a reward that takes one": {"reward": lambda output: 0.0},
    "an oracle that takes none": {"oracle": lambda: 0.0},
    "an on_event that takes none": {"on_event": lambda: None},
    **{f"{name} that is no actor": {name: "text"} for name in ("run", "propose", "reward", "oracle", "on_event")},
    "no run": {"run": None},
    "no propose": {"propose": None},
    "no reward": {"reward": None},
    "an agent that cannot solve": {"agent": object(), "run": None, "propose": None},
    "an agent and a run": {"agent": object()},
    **{f"{name} by a Ref that is not allowed": {name: Ref("os:system")} for name in ("run", "propose", "oracle")},
    "a Ref that is allowed and not there": {"run": Ref("json:no_such"), "allow": "json:"},
    **{f"n_workers={count!r}": {"n_workers": count} for count in (0, -1, 1.5, True, None, "4")},
    **{
        f"{name}=0": {name: 0} for name in ("rounds", "patience", "max_concurrency", "eval_concurrency", "eval_repeats")
    },
    **{
        f"{name}=-1": {name: -1} for name in ("oracle_budget", "cheap_eval_tasks", "confirm_repeats", "rollout_timeout")
    },
    "async_ratio=-1": {"async_ratio": -1, "schedule": "stream"},
    "max_unmerged=0": {"max_unmerged": 0, "schedule": "stream"},
    "resync_on_commit='no'": {"resync_on_commit": "no", "schedule": "stream"},
    "refresh_interval=0": {"refresh_interval": 0},
    "round_timeout=0": {"round_timeout": 0},
    "target_reward=2": {"target_reward": 2},
    "solved_threshold=None": {"solved_threshold": None},
    "seed='x'": {"seed": "x"},
    "noise=True": {"noise": True},
    "self_verify=1": {"self_verify": 1},
    "strict='yes'": {"strict": "yes"},
    "schedule='turns'": {"schedule": "turns"},
    "asynchronous=1": {"asynchronous": 1},
    "hide=None": {"hide": None},
    "hide=[1]": {"hide": [1]},
    "allow=3": {"allow": 3},
    "run_dir=3": {"run_dir": 3},
    "run_dir=''": {"run_dir": ""},
    "a run_dir with a NUL": {"run_dir": "a\0b"},
    "a run_dir with half a surrogate pair": {"run_dir": "a\ud800b"},
    **{
        f"{name} of {digits} digits": {name: 10**digits}
        for name in ("rollout_timeout", "round_timeout", "target_reward", "blast_radius", "held_out_frac")
        for digits in (400, 5000)
    },
    "a state of numbers": {"initial_state": {"a": 5}},
    "a state that is none": {"strategy": Starting(None)},
    "a state that is a list of pairs": {"strategy": Starting([("a", "b")])},
    "a state of bytes": {"strategy": Starting({"a": b"b"})},
    "a budget that is a number": {"budget": 25},
    "a budget that does not cover a run's own measurements": {"budget": Budget(calls=7)},
    "policies that are a dict": {"policies": {}},
    "a strategy that is none": {"strategy": 3},
    "a strategy's class": {"strategy": KeyedRules},
    "a state the strategy cannot start from": {"strategy": SingleSlot(), "initial_state": {"a": "b", "c": "d"}},
    "a plan's class": {"parallel": DataParallel},
    "a plan that finds no clusters": {"parallel": ClusterParallel()},
    "a sampler that is none": {"task_sampler": 3},
    "a keyword that does not exist": {"workers": 4},
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("door", [evolve, async_evolve])
def test_bad_input_is_a_typed_error_before_any_rollout(
    case: str, door: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = 0

    def counted(*_: Any) -> Any:
        nonlocal calls
        calls += 1
        return 0.5

    options = {
        "tasks": TASKS,
        "reward": lambda task, output: counted(),
        "run": lambda rendered, task: counted(),
        "propose": lambda rendered, task, output, score: counted(),
        "rounds": 1,
        **REFUSED[case],
    }
    with pytest.raises(AdescentError) as refused:
        settled(door, options.pop("tasks"), options.pop("reward"), **options)
    assert isinstance(refused.value, ContractError)
    assert len(str(refused.value)) > 20, "it says what to do"
    assert calls == 0
    assert not list(tmp_path.iterdir())


def settled(door: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What comes of either door, called from a script."""
    returned = door(*args, **options)
    if not inspect.isawaitable(returned):
        return returned

    async def awaited() -> Any:
        return await returned

    return anyio.run(awaited)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"artifact_id": "oracle"}, GovernanceError, "'oracle' is frozen"),
        ({"tasks": [Task("m", "x", {"check": nothing})]}, ContractError, "meta.check"),
        ({"run": Ref("os:system")}, RefError, "allow="),
        ({"oracle": lambda task: 0.0}, ContractError, r"oracle is .*oracle\(task, output\)"),
        ({"propose": lambda task: ""}, ContractError, "propose is .*context"),
        ({"workers": 4}, OptionError, "workers=.*Did you mean n_workers"),
        ({"asynchronous": True, "schedule": "rounds"}, OptionError, "asynchronous=True and schedule='rounds'"),
        ({"strategy": AppendRules}, OptionError, r"AppendRules\("),
        ({"parallel": ClusterParallel()}, ContractError, r"meta\['cluster'\]"),
        ({"run_dir": 3}, ContractError, "run_dir=3"),
    ],
)
def test_the_message_names_what_is_wrong(options: Any, kind: type[Exception], words: str) -> None:
    options = {"tasks": TASKS, "run": nothing, "propose": nothing, **options}
    with pytest.raises(kind, match=words):
        evolve(options.pop("tasks"), nothing, **options)


@pytest.mark.parametrize(
    ("keyword", "value", "policies"),
    [
        ("task_sampler", RoundRobin(), {"task_sampler": RoundRobin()}),
        ("confirm_repeats", 2, {"acceptance": BetaAcceptance()}),
        ("confirm_repeats", 3, {"acceptance": BetaAcceptance()}),
    ],
)
def test_a_keyword_and_the_bundles_field_are_one_too_many(keyword: str, value: Any, policies: Any) -> None:
    with pytest.raises(TypeError, match=rf"{keyword}= and Policies\({next(iter(policies))}=\)"):
        config(**{keyword: value}, policies=Policies(**policies))
    config(**{keyword: value}, policies=Policies(executor=InlineExecutor()))
    config(policies=Policies(**policies))


@pytest.mark.parametrize(
    ("schedule", "option", "instead"),
    [
        ("rounds", {"async_ratio": 3}, "refresh_interval"),
        ("rounds", {"max_unmerged": 2}, "n_workers"),
        ("rounds", {"resync_on_commit": False}, "refresh_interval"),
        ("stream", {"refresh_interval": 1}, "async_ratio"),
        ("stream", {"round_timeout": 5.0}, "rollout_timeout"),
    ],
)
@pytest.mark.parametrize("by_flag", [True, False])
def test_an_option_of_the_other_schedule_is_refused_with_its_replacement(
    schedule: str, option: Any, instead: str, by_flag: bool
) -> None:
    name = next(iter(option))
    asked = {"asynchronous": schedule == "stream"} if by_flag else {"schedule": schedule}
    with pytest.raises(OptionError, match=f"{name}= .*{schedule}.*{instead}"):
        config(**asked, **option)
    other = "rounds" if schedule == "stream" else "stream"
    assert getattr(config(schedule=other, **option), name) == option[name]
    assert getattr(config(**asked, **{name: None}), name) is None, "None is the default of either"


def test_a_handle_takes_what_the_doors_take() -> None:
    with pytest.raises(OptionError, match="workers="):
        Evolution(TASKS, nothing, run=nothing, propose=nothing, workers=4)  # type: ignore[call-arg]

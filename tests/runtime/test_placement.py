"""Where rollouts run: actors by name, sandboxes for who confines, and refusals before anything has begun."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.errors import ContractError, RefError
from adescent.evolution import async_evolve
from adescent.executors import InlineExecutor, ThreadExecutor
from adescent.policies import Actors, Policies
from adescent.refs import Ref
from adescent.rewards import exact_match
from adescent.runtime.result import EvolutionResult
from adescent.tasks import Score, Task
from adescent.verifier import EvaluationGroup
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

pytestmark = pytest.mark.anyio

BOUND = 30.0
SANDBOX = SandboxSpec(memory_mb=256)
RUN, REWARD = (Ref(f"untrusted_actors:{name}", call=False) for name in ("run", "reward"))
ALLOW = ("untrusted_actors:",)


class Elsewhere:
    """Stands for an executor of processes: it takes names, confines, and nothing of the actors is in this process."""

    takes_callables = False
    confines = True
    slots: int | None = None

    def __init__(self, sandbox: SandboxSpec | None = None, failure: Failure | None = None) -> None:
        self.sandbox = sandbox
        self._failure = failure
        self.opened = 0
        self.actors: list[Actors] = []
        self.specs: list[RolloutSpec] = []

    async def __aenter__(self) -> Elsewhere:
        self.opened += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def attach_actors(self, actors: Actors) -> Elsewhere:
        self.actors.append(actors)
        return self

    async def rollout(self, spec: RolloutSpec) -> Result:
        self.specs.append(spec)
        if self._failure is not None:
            return Result(spec.lease_id, spec.task.id, error=self._failure)
        return Result(spec.lease_id, spec.task.id, "out", Score(float(spec.task.prompt in spec.rendered.split())))


@pytest.fixture
def untrusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module on the path that nobody of this process may import."""
    (tmp_path / "untrusted_actors.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


async def evolved(world: Any, schedule: str, executor: Any, **options: Any) -> EvolutionResult:
    policies = options.pop("policies", {})
    given = {"run": RUN, "allow": ALLOW, **options}
    reward = given.pop("reward", REWARD)
    with anyio.fail_after(BOUND):
        return await async_evolve(
            world.tasks, reward, **world.options(schedule, policies=Policies(executor=executor, **policies), **given)
        )


def learned(result: EvolutionResult) -> bool:
    assert result.final_reward is not None
    assert result.seed_reward is not None
    return result.final_reward > result.seed_reward


# Actors by name -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("untrusted")
async def test_actors_elsewhere_are_not_imported_here(world: Any, schedule: str) -> None:
    elsewhere = Elsewhere()
    result = await evolved(world, schedule, elsewhere, oracle=Ref("untrusted_actors:oracle"), blast_radius=0.9)
    assert learned(result)
    assert "untrusted_actors" not in sys.modules
    assert [(actors.run, actors.reward) for actors in elsewhere.actors] == [
        (RUN, REWARD),
        (RUN, Ref("untrusted_actors:oracle")),
    ]
    for actors in elsewhere.actors:
        assert actors.resolver is not None
        assert actors.resolver.allow == ALLOW


@pytest.mark.parametrize("name", ["run", "reward", "oracle"])
@pytest.mark.parametrize("nested", [False, True])
async def test_what_may_not_resolve_is_refused_before_anything_is_opened(
    world: Any, schedule: str, name: str, nested: bool
) -> None:
    outside: Any = Ref("os:system", call=False)
    if nested:
        outside = Ref("untrusted_actors:made", {"parts": [outside]})
    elsewhere = Elsewhere()
    with pytest.raises(RefError, match=r"os:system may not be resolved here.*allow="):
        await evolved(world, schedule, elsewhere, **{name: outside})
    assert elsewhere.opened == 0


def at_the_top(rendered: Any, task: Any) -> str:
    return ""


def made() -> Callable[..., str]:
    def run(rendered: str, task: Task) -> str:
        return ""

    return run


class Agent:
    def solve(self, rendered: str, task: Task) -> str:
        return ""


@pytest.mark.parametrize(
    ("actor", "word"),
    [
        (at_the_top, rf"Ref\('{__name__}:at_the_top', call=False\) and allow=\('{__name__}:',\)"),
        (made(), r"Ref\('my_module:my_{name}', call=False\) and allow=\('my_module:',\)"),
        (lambda rendered, task: "", r"Ref\('my_module:my_{name}', call=False\)"),
        (functools.partial(at_the_top, task=None), r"is a partial: define it at the top of a module"),
        (Agent().solve, r"is a method: define it"),
        (exact_match(), r"Ref\('adescent.rewards:…', {{…}}\) with the function that made it"),
        ("untrusted_actors:run", "is a str: "),
    ],
    ids=["function", "closure", "lambda", "partial", "method", "ours", "text"],
)
@pytest.mark.parametrize("name", ["run", "reward", "oracle"])
async def test_what_has_no_name_elsewhere_is_refused_with_what_to_write(
    world: Any, schedule: str, name: str, actor: Any, word: str
) -> None:
    elsewhere = Elsewhere()
    with pytest.raises(ContractError, match=f"Elsewhere takes actors as Refs and {name}= .*{word.format(name=name)}"):
        await evolved(world, schedule, elsewhere, **{name: actor})
    assert elsewhere.opened == 0


async def test_the_program_itself_is_refused_where_it_is_named() -> None:
    with pytest.raises(RefError, match="move the function to a module"):
        Ref("__main__:run", call=False)


@pytest.mark.parametrize(
    ("type_", "error"), [("RefError", RefError), ("ContractError", ContractError), ("WireError", ContractError)]
)
async def test_actors_that_cannot_be_called_elsewhere_are_the_callers(
    world: Any, schedule: str, type_: str, error: type[Exception]
) -> None:
    failure = Failure("caller", "worker", type_, "run is run(rendered), which cannot be called")
    with pytest.raises(error, match=r"run\(rendered\)") as raised:
        await evolved(world, schedule, Elsewhere(failure=failure))
    assert type(raised.value) is error
    assert str(raised.value).startswith("run is" if type_ == error.__name__ else f"worker: {type_}: run is")


async def test_one_that_cannot_be_called_for_once_is_no_reason_to_give_up(world: Any, schedule: str) -> None:
    class Once(Elsewhere):
        async def rollout(self, spec: RolloutSpec) -> Result:
            result = await super().rollout(spec)
            if spec.lease_id.endswith(".1.1"):
                return Result(
                    spec.lease_id, spec.task.id, error=Failure("caller", "worker", "RefError", "a bad moment")
                )
            return result

    result = await evolved(world, schedule, Once())
    assert result.error == ""
    assert result.counters["worker_failed"] == 1


# Sandboxes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [None, SandboxSpec(network=True)])
async def test_rollouts_and_evaluations_are_confined_as_the_run_says(
    world: Any, schedule: str, own: SandboxSpec | None
) -> None:
    elsewhere = Elsewhere(own)
    result = await evolved(world, schedule, elsewhere, policies={"sandbox": SANDBOX})
    assert len(elsewhere.specs) == result.calls - result.calls_by_purpose["proposal"]
    assert {spec.sandbox for spec in elsewhere.specs} == {SANDBOX}
    assert {" " in spec.lease_id for spec in elsewhere.specs} == {True, False}


async def test_without_one_the_executor_has_its_own_way(world: Any, schedule: str) -> None:
    elsewhere = Elsewhere(SANDBOX)
    await evolved(world, schedule, elsewhere)
    assert {spec.sandbox for spec in elsewhere.specs} == {None}


@pytest.mark.parametrize(
    ("executor", "word"),
    [(None, "the default executor"), (InlineExecutor(), "InlineExecutor"), (ThreadExecutor(2), "ThreadExecutor")],
    ids=["none", "inline", "thread"],
)
@pytest.mark.parametrize(
    "sandbox",
    [
        SandboxSpec(),
        SandboxSpec(level="auto"),
        SandboxSpec(level="none", timeout_s=1.0),
        SandboxSpec(level="none", cpu_seconds=1.0),
        SandboxSpec(level="none", env=("TOKEN",)),
    ],
)
async def test_who_confines_nothing_is_given_no_sandbox(
    world: Any, schedule: str, executor: Any, word: str, sandbox: SandboxSpec
) -> None:
    with pytest.raises(ContractError, match=rf"{word} confines nothing: .*ProcessExecutor\(n\)"):
        await world.evolve(schedule, policies=Policies(executor=executor, sandbox=sandbox))
    assert not world.calls


async def test_a_sandbox_that_asks_for_nothing_is_no_reason_to_refuse(world: Any, schedule: str) -> None:
    nothing = SandboxSpec(level="none", require=True)
    result = await world.evolve(schedule, policies=Policies(executor=InlineExecutor(), sandbox=nothing))
    assert learned(result)


async def test_figures_of_one_sandbox_are_not_taken_for_those_of_another(world: Any) -> None:
    async def identity(own: SandboxSpec | None, given: SandboxSpec | None, **options: Any) -> str:
        services: list[Any] = []

        @asynccontextmanager
        async def watching(offered: Any) -> AsyncIterator[EvaluationGroup]:
            services.append(offered)
            async with EvaluationGroup(offered) as group:
                yield group

        policies = {"sandbox": given, "evaluator": watching}
        await evolved(world, "rounds", Elsewhere(own), policies=policies, rounds=1, **options)
        (offered,) = services
        return str(offered.identity)

    other = SandboxSpec(network=True)
    bare = await identity(None, None)
    assert bare == await identity(None, None)
    assert len({bare, await identity(SANDBOX, None), await identity(other, None)}) == 3
    assert await identity(SANDBOX, None) == await identity(None, SANDBOX) == await identity(other, SANDBOX)
    assert bare != await identity(None, None, hide=())
    assert bare != await identity(None, None, reward=Ref("untrusted_actors:other"))
    assert bare != await identity(None, None, run=Ref("untrusted_actors:other"))

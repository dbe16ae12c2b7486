"""What the field cases share: both schedules, and a world whose one lesson a task is easily learnt."""

from __future__ import annotations

import os
import runpy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import wait_readable
from attrs import frozen

from adescent.evolution import async_evolve
from adescent.executors import ProcessExecutor
from adescent.policies import Actors, Policies
from adescent.refs import Ref, Resolver
from adescent.runtime.result import EvolutionResult
from adescent.tasks import Score, Task


@pytest.fixture(params=["rounds", "stream"])
def schedule(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def lessons(count: int = 30, different: int = 6) -> list[dict[str, Any]]:
    """Rows that ask for one word each."""
    return [{"id": f"t{number}", "prompt": f"lesson-{number % different}"} for number in range(count)]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return lessons()


async def look_up(rendered: str, task: Any) -> bool:
    return task.prompt in rendered.split()


async def found(task: Any, output: object) -> float:
    return float(output is True)


async def teach(rendered: str, task: Any, output: object, score: object) -> str:
    return str(task.prompt)


@pytest.fixture
def actors() -> dict[str, Any]:
    """A run that looks the task's word up in the rules, and a proposer that knows it; `score` goes with them."""
    return {"run": look_up, "propose": teach}


@pytest.fixture
def score() -> Any:
    return found


@frozen
class Candidates:
    """What runs candidates in worker processes: rules that a solver obeys, whatever they say."""

    rules: dict[str, tuple[str, ...]]

    def ref(self, name: str) -> Ref:
        return Ref(f"candidate_actors:{name}", call=False)

    @property
    def actors(self) -> Actors:
        return Actors(self.ref("solve"), self.ref("right"), resolver=Resolver(("candidate_actors:",)))

    async def evolve(self, executor: ProcessExecutor, bad: str, schedule: Any, **more: Any) -> EvolutionResult:
        """A run of a seed that knows one lesson of two; every bad rule is proposed before the other lesson."""
        rules = iter(self.rules[bad])

        def propose(rendered: str, task: Task, output: object, score: Score) -> str:
            return next(rules, task.prompt)

        def rows(name: str) -> list[dict[str, Any]]:
            return [{"id": f"{name}{number}", "prompt": f"lesson-{number % 2}", **more} for number in range(2)]

        return await async_evolve(
            rows("train"),
            self.ref("right"),
            run=self.ref("solve"),
            propose=propose,
            held_out=rows("held-out"),
            initial_state="lesson-0",
            n_workers=1,
            target_reward=1.0,
            rounds=40,
            noise="no",
            schedule=schedule,
            policies=Policies(executor=executor),
            allow=("candidate_actors:",),
        )


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Candidates:
    here = Path(__file__).parent
    monkeypatch.syspath_prepend(here)
    named = runpy.run_path(str(here / "candidate_actors.py"))
    return Candidates({"hostile": tuple(named["HOSTILE"]), "dying": tuple(named["DYING"])})


def members(pgid: int) -> list[int]:
    """The processes of a group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(group) == pgid and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


async def _nothing_left_of(pgid: int) -> None:
    for pid in members(pgid):
        try:
            exit_ = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            await wait_readable(exit_)
        finally:
            os.close(exit_)
    assert not members(pgid)


@pytest.fixture
def nothing_left_of() -> Callable[[int], Awaitable[None]]:
    """Waits until a process group is gone: everything in it has been killed and is about to end."""
    return _nothing_left_of

"""A world in which learning is simple, and every actor does exactly what a test wants of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from adescent.evolution import async_evolve
from adescent.runtime.result import EvolutionResult
from adescent.tasks import Score, Task

LESSONS = 6
"""Different lessons in the world, in turn over the tasks; who knows a task's lesson solves it."""

Step = Callable[[], Awaitable[None]]


class World:
    """Tasks that ask for one word each, a run that looks the word up in the rules, and a proposer that knows it.

    Whoever wants an actor to wait, fail or lie replaces it; calls are counted by actor.
    """

    def __init__(self, tasks: int = 30) -> None:
        self.tasks = [{"id": f"t{number}", "prompt": f"lesson-{number % LESSONS}"} for number in range(tasks)]
        self.calls: Counter[str] = Counter()
        self.before_run: Step = checkpoint
        self.before_reward: Step = checkpoint
        self.before_propose: Step = checkpoint
        self.events: list[Any] = []

    async def run(self, rendered: str, task: Task) -> bool:
        self.calls["run"] += 1
        await self.before_run()
        return task.prompt in rendered.split()

    async def reward(self, task: Task, output: object) -> float:
        self.calls["reward"] += 1
        await self.before_reward()
        return float(output is True)

    async def propose(self, rendered: str, task: Task, output: object, score: Score) -> Any:
        self.calls["propose"] += 1
        await self.before_propose()
        return task.prompt

    async def watch(self, event: Any) -> None:
        """An ``on_event`` that keeps what it is told."""
        self.events.append(event)

    async def evolve(self, schedule: str, **options: Any) -> EvolutionResult:
        """A run of this world: three rounds of four workers, unless told otherwise."""
        return await async_evolve(self.tasks, self.reward, **self.options(schedule, **options))

    def options(self, schedule: str, **options: Any) -> Any:
        """The keywords of a run of this world."""
        if not options.keys() & {"rounds", "budget", "patience"}:
            options["rounds"] = 3
        return {"run": self.run, "propose": self.propose, "schedule": schedule, **options}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def new_world() -> Callable[[], World]:
    """For tests that need several, or one for each example."""
    return World


@pytest.fixture(params=["rounds", "stream"])
def schedule(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def ends() -> Callable[[EvolutionResult, list[Any]], tuple[int, int]]:
    """Of a result and the events of its run: how many cards ended, and how many came in."""
    return _ends


def _ends(result: EvolutionResult, events: list[Any]) -> tuple[int, int]:
    ingested = sum(type(event).__name__ == "CardIngested" for event in events)
    return sum(result.outcomes().values()), ingested

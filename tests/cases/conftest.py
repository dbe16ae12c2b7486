"""What the field cases share: both schedules, and a world whose one lesson a task is easily learnt."""

from __future__ import annotations

from typing import Any

import pytest


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

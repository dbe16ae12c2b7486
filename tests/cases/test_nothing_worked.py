"""A run in which nothing ever worked says so; it never passes for one that found no improvement."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.errors import ActorsNeverWorked
from adescent.evolution import async_evolve, evolve


@pytest.mark.anyio
@pytest.mark.parametrize("actor", ["propose", "run"])
@pytest.mark.parametrize("rounds", [1, 100])
async def test_actor_that_always_raises_is_named_with_its_causes(
    rows: Any, actors: Any, score: Any, schedule: Any, actor: str, rounds: int, anyio_backend: Any
) -> None:
    tries = 0

    async def raises(*_: Any) -> Any:
        nonlocal tries
        tries += 1
        raise RuntimeError(f"no key, {tries % 2}")

    with anyio.fail_after(30):
        result = await async_evolve(rows, score, **{**actors, actor: raises}, schedule=schedule, rounds=rounds)
    assert isinstance(result.exception, ActorsNeverWorked)
    assert result.stop_reason == "error"
    assert result.error.startswith(f"ActorsNeverWorked: {actor} failed in all of its ")
    assert {"RuntimeError: no key, 0", "RuntimeError: no key, 1"} == set(result.exception.causes)
    assert result.exception.attempts <= tries <= max(8, rounds * 4) + 8
    assert result.version == 1


def test_blocking_door_says_so_too(rows: Any, actors: Any, score: Any) -> None:
    def raises(*_: Any) -> Any:
        raise RuntimeError("no key")

    result = evolve(rows, score, **{**actors, "propose": raises})
    assert result.error.startswith("ActorsNeverWorked: propose failed in all of its ")


@pytest.mark.anyio
async def test_proposer_that_answers_with_nothing_has_worked(
    rows: Any, actors: Any, score: Any, schedule: Any, anyio_backend: Any
) -> None:
    async def nothing(*_: Any) -> None:
        return None

    with anyio.fail_after(30):
        result = await async_evolve(rows, score, **{**actors, "propose": nothing}, schedule=schedule, rounds=5)
    assert (result.stop_reason, result.error, result.version) == ("rounds", "", 1)

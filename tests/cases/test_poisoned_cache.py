"""A scorer that fails for a moment must not leave a 0 behind; a 0 that was earned is kept and bought once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from adescent.errors import Transient
from adescent.evolution import async_evolve
from adescent.policies import Policies
from adescent.tasks import Score
from adescent.verifier import MemoryCache

PASSING = (Transient("busy"), ConnectionError("reset"), TimeoutError("late"))


class Watched(MemoryCache):
    """A cache that tells what was put in."""

    def __init__(self) -> None:
        super().__init__()
        self.put_in: list[float] = []

    def put(self, key: str, score: Score) -> None:
        self.put_in.append(score.value)
        super().put(key, score)


@pytest.mark.anyio
@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_passing_failure_of_the_scorer_is_tried_again_and_never_kept_as_zero(
    schedule: Any, error: Exception, anyio_backend: Any
) -> None:
    calls: Counter[str] = Counter()
    cache = Watched()

    async def run(rendered: str, task: Any) -> str:
        return str(task.prompt)

    async def reward(task: Any, output: object) -> float:
        calls[task.id] += 1
        if task.id == "item-3" and calls[task.id] == 1:
            raise error
        return 0.0 if task.id == "item-4" else 1.0

    async def propose(*_: Any) -> str:
        return "a rule that helps nobody"

    with anyio.fail_after(30):
        result = await async_evolve(
            [{"id": "train", "prompt": "?"}],
            reward,
            run=run,
            propose=propose,
            held_out=[{"id": f"item-{number}", "prompt": "?"} for number in range(5)],
            policies=Policies(eval_cache=cache),
            schedule=schedule,
            noise="no",
            rounds=1,
            n_workers=1,
        )
    assert result.seed_reward == result.final_reward == 4 / 5
    assert result.counters["retries"] == 1
    assert sorted(cache.put_in) == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert calls == {"item-0": 2, "item-1": 2, "item-2": 2, "item-3": 3, "item-4": 2, "train": 1}  # seed and final


@pytest.mark.anyio
async def test_failure_that_stays_is_missing_and_asked_for_again(schedule: Any, anyio_backend: Any) -> None:
    cache = Watched()
    failing = True

    async def run(rendered: str, task: Any) -> bool:
        return task.prompt in rendered.split()

    async def reward(task: Any, output: object) -> float:
        if task.id == "item-3" and failing:
            raise KeyError("gold")
        return float(output is True)

    async def propose(rendered: str, task: Any, output: object, score: Any) -> str:
        nonlocal failing
        failing = False
        return str(task.prompt)

    with anyio.fail_after(30):
        result = await async_evolve(
            [{"id": "train", "prompt": "word"}],
            reward,
            run=run,
            propose=propose,
            held_out=[{"id": f"item-{number}", "prompt": "word"} for number in range(20)],
            policies=Policies(eval_cache=cache),
            schedule=schedule,
            noise="no",
            rounds=2,
            n_workers=1,
        )
    assert result.seed.trials == 19
    assert (result.final_reward, result.final.trials) == (1.0, 20)
    assert cache.put_in.count(0.0) == 19

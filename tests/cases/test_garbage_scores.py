"""What a scorer returns is a number in [0, 1] or no score at all: reported, never the best, never kept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import anyio
import pytest

from adescent.evolution import async_evolve
from adescent.policies import Policies
from adescent.tasks import Score
from adescent.telemetry import RolloutFailed
from adescent.verifier import MemoryCache

GARBAGE = [
    float("nan"),
    float("inf"),
    float("-inf"),
    True,
    "0.9",
    1e308,
    None,
    1.0000001,
    -0.1,
    10**400,
    [1.0],
    Decimal("0.9"),
    Score(float("nan")),
]


@pytest.mark.anyio
@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
async def test_garbage_is_void_wherever_it_comes_up(rows: Any, schedule: Any, garbage: Any, anyio_backend: Any) -> None:
    cache = MemoryCache()
    events: list[Any] = []

    async def run(rendered: str, task: Any) -> str:
        return rendered

    async def reward(task: Any, output: str) -> Any:
        return garbage if "tempting" in output or task.id == "t0" else 0.5

    async def propose(rendered: str, task: Any, output: str, score: Score) -> str:
        assert score.value == 0.5
        return f"tempting {task.id}"

    async def on_event(event: Any) -> None:
        events.append(event)

    with anyio.fail_after(30):
        result = await async_evolve(
            rows[:10],
            reward,
            run=run,
            propose=propose,
            held_out=rows[10:],
            schedule=schedule,
            rounds=5,
            n_workers=2,
            policies=Policies(eval_cache=cache),
            on_event=on_event,
        )
    assert (result.seed_reward, result.final_reward, result.version) == (0.5, 0.5, 1)
    assert result.outcomes().keys() == {"unmeasured"}
    assert result.counters["scores_void"] >= 10
    failed = [event for event in events if isinstance(event, RolloutFailed)]
    assert failed
    assert {(event.task_id, event.stage) for event in failed} == {("t0", "reward")}
    assert {score.value for score in cache._scores.values()} == {0.5}

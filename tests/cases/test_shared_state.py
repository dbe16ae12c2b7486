"""Many rollouts at once while the artifact moves on: each sees one version from its beginning to its end."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.evolution import async_evolve
from adescent.strategies import AppendRules


def alone(rendered: str, task: Any) -> float:
    """What the task scores under these rules when nothing else goes on."""
    known = rendered.split()
    return 1.0 if task.prompt in known else len(known) / 1000


@pytest.mark.anyio
async def test_each_score_equals_the_one_it_has_alone(schedule: Any, anyio_backend: Any) -> None:
    rows = [{"id": f"t{number}", "prompt": f"lesson-{number % 16}"} for number in range(80)]
    versions: set[str] = set()
    scored = 0

    async def run(rendered: str, task: Any) -> tuple[str, float]:
        for _ in range(len(task.id) + len(versions) % 3):
            await anyio.lowlevel.checkpoint()
        return rendered, alone(rendered, task)

    async def reward(task: Any, output: tuple[str, float]) -> float:
        nonlocal scored
        rendered = output[0]
        versions.add(rendered)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        scored += 1
        assert alone(rendered, task) == output[1]
        return output[1]

    async def propose(rendered: str, task: Any, output: Any, score: Any, context: Any) -> str:
        assert output[0] == rendered == AppendRules().render(context.state)
        assert score.value == alone(rendered, task)
        await anyio.lowlevel.checkpoint()
        return str(task.prompt)

    with anyio.fail_after(30):
        result = await async_evolve(
            rows, reward, run=run, propose=propose, schedule=schedule, n_workers=8, eval_concurrency=8, rounds=12
        )
    assert len(versions) >= 3
    assert scored > 8
    assert result.counters.get("rollouts_failed", 0) == result.counters.get("reward_failed", 0) == 0
    assert result.final_reward == 1.0

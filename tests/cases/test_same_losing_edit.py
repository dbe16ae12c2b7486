"""The same losing edit, proposed again and again, is paid for once, and its proposer is told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest

from adescent.evolution import async_evolve
from adescent.policies import Outcome


@pytest.mark.anyio
@pytest.mark.parametrize("noise", ["no", "yes"])
async def test_losing_edit_is_evaluated_once_and_known_by_its_content_afterwards(
    rows: Any, schedule: Any, noise: Any, anyio_backend: Any
) -> None:
    rollouts: Counter[str] = Counter()
    told: list[tuple[str, str]] = []

    async def run(rendered: str, task: Any) -> float:
        rollouts[rendered] += 1
        await anyio.lowlevel.checkpoint()
        return 0.2 if "losing" in rendered else 0.6

    async def reward(task: Any, output: float) -> float:
        return output

    async def propose(rendered: str, task: Any, output: float, score: Any, context: Any) -> str:
        told.extend((settled.outcome, settled.reason) for settled in context.history[-1:])
        return "  a losing edit\n" if len(told) % 2 else "a losing edit"

    with anyio.fail_after(30):
        result = await async_evolve(
            rows, reward, run=run, propose=propose, schedule=schedule, rounds=10, n_workers=3, noise=noise
        )
    held_out = 12
    assert rollouts["- a losing edit"] <= held_out
    assert result.counters["candidates_measured"] == 1
    assert result.outcomes() == {"below-threshold": 1, "duplicate": 29}
    outcome, reason = told[-1]
    assert outcome == Outcome.DUPLICATE
    assert "below-threshold" in reason
    assert result.version == 1

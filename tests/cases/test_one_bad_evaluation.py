"""One evaluation of very many that never ends, late in a long run, is one that failed; the run goes on and says so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from adescent.evolution import async_evolve

LIMIT = 30.0


@pytest.mark.trio
@pytest.mark.parametrize("late", [101, 150])
async def test_one_evaluation_that_hangs_late_is_marked_and_the_run_goes_on(
    schedule: Any, late: int, score: Any, autojump_clock: Any
) -> None:
    runs = 0

    async def run(rendered: str, task: Any) -> bool:
        nonlocal runs
        runs += 1
        await trio.sleep(math.inf if runs == late else 1.0)
        return task.prompt in rendered.split()

    async def propose(rendered: str, task: Any, output: object, score: Any) -> str:
        return str(task.prompt)

    rows = [{"id": f"t{number}", "prompt": f"lesson-{number % 2}"} for number in range(110)]
    began = trio.current_time()
    result = await async_evolve(
        rows[:10],
        score,
        run=run,
        propose=propose,
        held_out=rows[10:],
        rollout_timeout=LIMIT,
        schedule=schedule,
        noise="no",
        rounds=6,
        n_workers=2,
        eval_concurrency=1,
    )
    assert trio.current_time() - began > 100.0
    assert (result.stop_reason, result.error) == ("rounds", "")
    assert result.counters["rollouts_timed_out"] == 1
    assert result.counters["rollouts_failed"] == 1
    assert result.final_reward == 1.0
    assert sum(result.outcomes().values()) > 0

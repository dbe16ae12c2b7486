"""Hosts whose callers sit in the loop's worker threads and wait for runs there, as synchronous web endpoints do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import from_thread, to_thread

from adescent.runtime.engine import MANY_ROWS
from adescent.strategies import SingleSlot

BOUND = 60.0
CALLERS = 3

LONG = "\n".join(f"line {number} of a text that is merged in a thread" for number in range(400))


def learning(world: Any) -> dict[str, Any]:
    """Long texts, edited in several places at once, so that merging them has much to do."""

    async def propose(rendered: str, task: Any, output: object, score: object) -> str:
        lines = rendered.split("\n")
        lines[int(task.id[1:]) * 7 % 400] = task.prompt
        return "\n".join(lines)

    return {"strategy": SingleSlot(), "initial_state": LONG, "propose": propose, "rollout_timeout": BOUND}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["run directory", "many rows", "long texts"])
async def test_callers_in_all_of_the_hosts_threads_get_their_results(
    new_world: Any, schedule: str, kind: str, tmp_path: Path, anyio_backend: Any
) -> None:
    rewards = []

    def endpoint(number: int) -> None:
        world = new_world(tasks=MANY_ROWS + 10 if kind == "many rows" else 30)
        options: dict[str, Any] = {}
        if kind == "run directory":
            options["run_dir"] = tmp_path / str(number)
        if kind == "long texts":
            options = learning(world)
        result = from_thread.run(lambda: world.evolve(schedule, rounds=6, **options))
        rewards.append(result.final_reward > result.seed_reward)

    to_thread.current_default_thread_limiter().total_tokens = CALLERS
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:
            for number in range(CALLERS):
                host.start_soon(to_thread.run_sync, endpoint, number)
    assert rewards == [True] * CALLERS

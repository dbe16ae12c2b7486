"""A candidate that ends its process: it alone fails, what is beside it ends as it should, and the pool is refilled."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.executors import ProcessExecutor, collect_rollouts
from adescent.tasks import Task
from adescent.workspec import RolloutSpec, SandboxSpec

pytestmark = pytest.mark.anyio

BOUND = 60.0
SANDBOX = SandboxSpec(memory_mb=256)
DYING = {"exit": "exited with code 3", "segfault": "killed by SIGSEGV", "eat-memory": "ran out of memory"}


@pytest.mark.mainly("asyncio")
@pytest.mark.parametrize("rule", DYING)
async def test_only_it_fails_and_the_pool_refills(candidates: Any, rule: str, anyio_backend: Any) -> None:
    executor = ProcessExecutor(2, sandbox=SANDBOX)
    specs = [RolloutSpec(rule if number in (3, 10) else "lesson", Task("t", "lesson")) for number in range(20)]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(candidates.actors) as view:
            results = await collect_rollouts(view, specs, concurrency=8)
            dead = [results.pop(10), results.pop(3)]
            assert {result.kind for result in results} == {"ok"}
            assert executor.statistics().starting + executor.statistics().idle == 2
    for result in dead:
        assert set(result.deaths) <= {DYING[rule]}
        assert result.kind == ("model" if rule == "eat-memory" else "infrastructure")
        assert result.died_every_time == (rule != "eat-memory")


@pytest.mark.mainly("trio")
@pytest.mark.parametrize("schedule", ["stream", pytest.param("rounds", marks=pytest.mark.slow)], indirect=True)
async def test_a_run_rejects_it_and_goes_on(candidates: Any, schedule: str, anyio_backend: Any) -> None:
    assert sorted(candidates.rules["dying"]) == sorted(DYING)
    executor = ProcessExecutor(2, sandbox=SANDBOX)
    with anyio.fail_after(BOUND):
        result = await candidates.evolve(executor, "dying", schedule)
    assert (result.stop_reason, result.error) == ("target_reward", "")
    assert (result.seed_reward, result.final_reward) == (0.5, 1.0)
    assert set(result.rendered.split()) == {"-", "lesson-0", "lesson-1"}
    assert result.outcomes()["below-threshold"] >= 2
    assert executor.counters()["workers_lost"] >= 2 * len(DYING)

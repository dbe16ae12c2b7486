"""A candidate that never ends, and will not be ended: gone within its time and a second, and all it has started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_readable
from anyio.lowlevel import checkpoint

from adescent.executors import ProcessExecutor
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

pytestmark = pytest.mark.anyio

BOUND = 60.0
LIMIT = 0.5
AT_MOST = LIMIT + 1.0
HOSTILE = ["loop-for-ever", "loop-in-C-for-ever", "sleep-an-hour", "ignore-SIGTERM", "fork-a-sleeper"]


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Where a candidate says that it is about to be hostile, and the end at which that is read."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield str(path), end
    os.close(end)


async def rolled_out(view: ProcessExecutor, rules: str) -> Result:
    return await view.rollout(RolloutSpec(rules, Task("t", "lesson")))


def worker_of(result: Result) -> int:
    assert result.score
    return int(result.score.feedback)


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.mainly(("trio", "asyncio")[n % 2])) for n, rule in enumerate(HOSTILE)]
)
async def test_it_is_gone_in_time_and_its_place_is_used_again(
    candidates: Any, nothing_left_of: Any, rule: str, anyio_backend: Any
) -> None:
    executor = ProcessExecutor(1, sandbox=SandboxSpec(timeout_s=LIMIT))
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(candidates.actors) as view:
            worker = worker_of(await rolled_out(view, "lesson"))
            with anyio.fail_after(AT_MOST):
                hostile = await rolled_out(view, rule)
                await nothing_left_of(worker)
            after = await rolled_out(view, "lesson")
    assert (hostile.kind, str(hostile.error).split(":")[1]) == ("infrastructure", " RolloutTimeout")
    assert hostile.died_every_time
    assert after.kind == "ok"
    assert worker_of(after) != worker


@pytest.mark.mainly("asyncio")
@pytest.mark.parametrize("schedule", ["rounds", pytest.param("stream", marks=pytest.mark.slow)], indirect=True)
async def test_a_run_rejects_it_and_goes_on(candidates: Any, schedule: str, anyio_backend: Any) -> None:
    assert sorted(candidates.rules["hostile"]) == sorted(HOSTILE)
    executor = ProcessExecutor(2, sandbox=SandboxSpec(timeout_s=LIMIT))
    with anyio.fail_after(BOUND):
        result = await candidates.evolve(executor, "hostile", schedule)
    assert (result.stop_reason, result.error) == ("target_reward", "")
    assert (result.seed_reward, result.final_reward) == (0.5, 1.0)
    assert set(result.rendered.split()) == {"-", "lesson-0", "lesson-1"}
    assert result.outcomes()["below-threshold"] >= 2
    assert executor.counters()["workers_lost"] >= len(HOSTILE)


async def test_a_run_that_is_cancelled_in_the_middle_of_it_is_left_at_once(
    candidates: Any, nothing_left_of: Any, schedule: str, fifo: tuple[str, int], anyio_backend: Any
) -> None:
    path, end = fifo
    with anyio.fail_after(BOUND) as bound:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as runs:
                runs.start_soon(lambda: candidates.evolve(ProcessExecutor(2), "hostile", schedule, fifo=path))
                await wait_readable(end)
                worker = int(os.read(end, 100).split()[0])
                bound.deadline = anyio.current_time() + 1.0
                scope.cancel()
        await checkpoint()  # raises, if that second has passed
        await nothing_left_of(worker)
    assert scope.cancelled_caught

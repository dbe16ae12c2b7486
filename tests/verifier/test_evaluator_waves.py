"""In waves, what a measurement that ends early costs hangs on the scores and on nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from adescent.evolvable import Evolvable
from adescent.policies import Measurement
from adescent.tasks import Task
from adescent.verifier import EvaluationGroup

pytestmark = pytest.mark.anyio

HEAD = Evolvable("a", {"rule": "1"})
TASKS = [Task(str(number), "solve") for number in range(12)]


def up_to(readings: int) -> Callable[[Measurement], bool]:
    return lambda partial: len(partial.readings) < readings


async def gate(group: EvaluationGroup, still_open: Callable[[Measurement], bool] | None) -> Measurement:
    with anyio.fail_after(10):
        return await group.measure(HEAD, TASKS, split="held_out", purpose="gate", still_open=still_open)


@given(
    seeds=st.tuples(st.integers(), st.integers()), concurrency=st.integers(1, 14), readings=st.integers(1, len(TASKS))
)
async def test_timing_does_not_change_what_is_run(
    anyio_backend: Any, new_rollouts: Any, seeds: tuple[int, int], concurrency: int, readings: int
) -> None:
    ran = []
    for seed in seeds:
        rollouts, chance = new_rollouts(), random.Random(seed)
        rollouts.pauses = lambda chance=chance: chance.randrange(6)
        services = evolve(rollouts.services(concurrency=concurrency, calls=100), in_waves=True)
        async with EvaluationGroup(services) as group:
            first = await gate(group, up_to(readings))
            left = group.unanswered(HEAD, TASKS, split="held_out")
            again = await gate(group, None)
        assert len(first.readings) == readings
        assert again.complete
        ran.append((rollouts.account.calls, left, sorted(rollouts.started)))
        assert not rollouts.cancelled
        assert rollouts.reserved == 0
    assert ran[0] == ran[1]


async def test_waves_end_where_the_answer_is_known(rollouts: Any, anyio_backend: Any) -> None:
    async with EvaluationGroup(evolve(rollouts.services(concurrency=4, calls=100), in_waves=True)) as group:
        await gate(group, up_to(5))
    assert len(rollouts.started) == 8
    assert rollouts.most_under_way == 4


async def test_a_measurement_that_cannot_end_early_needs_no_waves(rollouts: Any, anyio_backend: Any) -> None:
    rollouts.hold("0")
    async with (
        EvaluationGroup(evolve(rollouts.services(concurrency=4, calls=100), in_waves=True)) as group,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(gate, group, None)
        await anyio.wait_all_tasks_blocked()
        assert len(rollouts.started) == len(TASKS)
        rollouts.let_go("0")


async def test_who_joins_a_measurement_in_waves_does_not_wait_for_them(rollouts: Any, anyio_backend: Any) -> None:
    rollouts.hold("0")
    async with (
        EvaluationGroup(evolve(rollouts.services(concurrency=4, calls=100), in_waves=True)) as group,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(gate, group, up_to(99))
        await anyio.wait_all_tasks_blocked()
        assert len(rollouts.started) == 4
        with anyio.fail_after(10):
            last = await group.measure(HEAD, TASKS[-1:], split="held_out", purpose="audit")
        assert last.complete
        rollouts.let_go("0")
    assert len(rollouts.started) == rollouts.account.calls == len(TASKS)


async def test_leaving_in_the_middle_of_a_wave_gives_everything_back(rollouts: Any, anyio_backend: Any) -> None:
    rollouts.hold("1")
    async with EvaluationGroup(evolve(rollouts.services(concurrency=4, calls=100), in_waves=True)) as group:
        with anyio.move_on_after(5) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gate, group, up_to(99))
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert rollouts.reserved == 0
        assert rollouts.account.calls == 4

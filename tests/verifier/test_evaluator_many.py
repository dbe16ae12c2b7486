"""Thousands of tasks: a measurement lets the loop have its turns, and costs what it would have cost in one go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import BudgetExhausted
from adescent.evolvable import Evolvable
from adescent.policies import Measurement
from adescent.tasks import Task
from adescent.verifier import EvaluationGroup
from adescent.verifier.evaluator import SLICE

pytestmark = pytest.mark.anyio

HEAD = Evolvable("a", {"rule": "1"})
TASKS = [Task(str(number), "solve") for number in range(2000)]
STRETCHES = len(TASKS) // SLICE


@asynccontextmanager
async def turns_of_the_loop() -> AsyncIterator[list[int]]:
    """A list whose one number grows with every turn the loop takes."""
    turns = [0]

    async def watch() -> None:
        while True:
            await checkpoint()
            turns[0] += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await checkpoint()
        yield turns
        tasks.cancel_scope.cancel()


async def gate(group: EvaluationGroup, **options: Any) -> Measurement:
    with anyio.fail_after(20):
        return await group.measure(HEAD, TASKS, split="held_out", purpose="gate", **options)


async def test_the_questions_of_a_long_measurement_walk_it_a_few_times_in_all(
    rollouts: Any, anyio_backend: Any
) -> None:
    asked: list[int] = []

    def still_open(prefix: Measurement) -> bool:
        asked.append(len(prefix.readings))
        return True

    async with EvaluationGroup(rollouts.services(concurrency=64)) as group:
        assert (await gate(group, still_open=still_open)).complete
    assert asked[:17] == [*range(1, 17), 18]
    assert all(later - earlier <= earlier // 16 + 1 for earlier, later in pairwise(asked))
    assert sum(asked) < 20 * len(TASKS)


async def test_the_loop_has_its_turns_before_anything_is_paid_and_when_everything_is_known(
    rollouts: Any, anyio_backend: Any
) -> None:
    async with EvaluationGroup(rollouts.services(concurrency=64)) as group, turns_of_the_loop() as turns:
        before: list[int] = []

        def pauses() -> int:
            before.append(turns[0])
            return 0

        rollouts.pauses = pauses
        await gate(group)
        assert before[0] >= STRETCHES
        began = turns[0]
        await gate(group)
        assert turns[0] - began >= 2 * STRETCHES
    assert len(rollouts.started) == len(TASKS)


async def test_two_who_ask_at_once_buy_each_score_once(rollouts: Any, anyio_backend: Any) -> None:
    async with EvaluationGroup(rollouts.services(concurrency=64, calls=len(TASKS))) as group:
        found: list[Measurement] = []

        async def ask() -> None:
            found.append(await gate(group))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
    assert found[0] == found[1]
    assert len(rollouts.started) == rollouts.account.calls == len(TASKS)


async def test_what_is_bought_while_a_batch_is_put_together_is_found(rollouts: Any, anyio_backend: Any) -> None:
    async with EvaluationGroup(rollouts.services(concurrency=64, calls=len(TASKS))) as group:

        async def first_alone() -> None:
            await group.measure(HEAD, TASKS[:1], split="held_out", purpose="gate")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate, group)
            tasks.start_soon(first_alone)
    assert rollouts.account.calls == len(TASKS)


async def test_what_cannot_be_paid_whole_is_not_begun(rollouts: Any, anyio_backend: Any) -> None:
    async with EvaluationGroup(rollouts.services(calls=len(TASKS) - 1)) as group:
        with pytest.raises(BudgetExhausted):
            await gate(group)
        assert rollouts.reserved == 0
    assert rollouts.started == []


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
async def test_what_ends_while_it_is_put_together_costs_nothing(rollouts: Any, anyio_backend: Any, ending: str) -> None:
    ended: list[str] = []
    async with anyio.create_task_group() as tasks, EvaluationGroup(rollouts.services(calls=len(TASKS))) as group:

        async def ask() -> None:
            try:
                await gate(group)
            except anyio.ClosedResourceError:
                ended.append("closed")
            except anyio.get_cancelled_exc_class():
                ended.append("cancelled")
                raise

        tasks.start_soon(ask)
        for _ in range(3):
            await checkpoint()
        if ending == "cancelled":
            tasks.cancel_scope.cancel()
    assert ended == [ending]
    assert rollouts.reserved == 0
    assert rollouts.started == []

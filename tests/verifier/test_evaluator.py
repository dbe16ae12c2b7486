from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from attrs import evolve

from adescent.errors import BudgetExhausted
from adescent.evolvable import Evolvable
from adescent.policies import Measurement, Reading
from adescent.tasks import Score, Task
from adescent.verifier import EvaluationGroup
from adescent.workspec import Failure, Result, RolloutSpec

pytestmark = pytest.mark.anyio

HEAD = Evolvable("artifact", {"text": "be brief"})
OTHER = Evolvable("artifact", {"text": "be long"})
TASKS = [Task(str(number), f"prompt {number}") for number in range(6)]


def measured(*values: float) -> tuple[Reading, ...]:
    return tuple(Reading(task.id, value, 1) for task, value in zip(TASKS, values, strict=False))


async def gate(group: EvaluationGroup, artifact: Evolvable = HEAD, tasks: Any = TASKS, **options: Any) -> Measurement:
    with anyio.fail_after(5):
        return await group.measure(artifact, tasks, **{"split": "held_out", "purpose": "gate", **options})


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await checkpoint()


async def test_readings_come_in_the_order_of_the_tasks(rollouts: Any) -> None:
    rollouts.answer = lambda spec: Score(int(spec.task.id) / 10)
    rollouts.hold("0")
    async with EvaluationGroup(rollouts.services()) as group, anyio.create_task_group() as tasks:

        async def ask() -> None:
            found = await gate(group)
            assert found == Measurement(measured(0.0, 0.1, 0.2, 0.3, 0.4, 0.5), "here", complete=True)

        tasks.start_soon(ask)
        await turns()
        rollouts.let_go("0")


async def test_repeats_are_scores_of_their_own(rollouts: Any) -> None:
    values = iter([0.0, 1.0, 0.5, 0.25])
    rollouts.answer = lambda spec: Score(next(values))
    async with EvaluationGroup(rollouts.services(concurrency=1)) as group:
        first = await gate(group, tasks=TASKS[:2], repeats=range(2))
        again = await gate(group, tasks=TASKS[:1], repeats=range(1, 2))
    assert [(reading.total, reading.trials) for reading in first.readings] == [(1.0, 2), (0.75, 2)]
    assert again.readings == (Reading("0", 1.0, 1),)


async def test_a_score_is_bought_once(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services(calls=100)) as group:
        first = await gate(group)
        assert await gate(group) == first
        assert await gate(group, evolve(HEAD, version=7)) == first
        assert rollouts.account.by_purpose == {"gate": 6}
        assert rollouts.counted == {"evaluations": 6, "cache_hits": 12}
    assert sorted(rollouts.started) == [task.id for task in TASKS]


async def test_what_differs_is_bought_apart(rollouts: Any) -> None:
    """Ids are unique within a split only, so content and split tell tasks apart; identity tells environments apart."""
    async with EvaluationGroup(rollouts.services()) as group:
        await gate(group, tasks=TASKS[:1])
        await gate(group, tasks=TASKS[:1], split="train")
        await gate(group, tasks=[Task("0", "another prompt")])
        await gate(group, OTHER, tasks=TASKS[:1])
    async with EvaluationGroup(rollouts.services(identity="elsewhere")) as group:
        await gate(group, tasks=TASKS[:1])
    assert rollouts.started == ["0"] * 5


async def test_every_score_belongs_to_the_split_it_was_asked_for(rollouts: Any) -> None:
    train = [Task(str(number), f"train {number}") for number in range(6)]
    rollouts.answer = lambda spec: Score(float(spec.task.prompt.startswith("train")))
    async with EvaluationGroup(rollouts.services()) as group:
        assert (await gate(group, tasks=train, split="train")).rate == 1.0
        assert (await gate(group)).rate == 0.0
    assert {spec.task.prompt for spec in rollouts.specs} == {task.prompt for task in (*train, *TASKS)}


async def test_what_failed_is_never_kept_and_a_true_zero_is(rollouts: Any) -> None:
    passing = Failure("model", "run", "Transient", "overloaded", transient=True)
    answers: dict[str, Any] = {"3": passing, "4": Score(0.0)}
    rollouts.answer = lambda spec: answers.pop(spec.task.id, Score(1.0))
    async with EvaluationGroup(rollouts.services()) as group:
        first, second = await gate(group), await gate(group)
    assert first.readings[3] == Reading("3", missing="run: Transient: overloaded")
    assert second.readings == measured(1, 1, 1, 1, 0, 1)
    assert rollouts.started.count("3") == 2
    assert rollouts.started.count("4") == 1
    assert rollouts.counted["evaluations_missing"] == 1


async def test_a_run_that_raises_earns_a_zero_that_is_counted_and_not_kept(rollouts: Any) -> None:
    rollouts.answer = lambda spec: Failure("model", "run", "KeyError", "x") if spec.task.id == "1" else Score(1.0)
    async with EvaluationGroup(rollouts.services()) as group:
        found = await gate(group)
        await gate(group)
    assert found.readings[1] == Reading("1", 0.0, 1)
    assert rollouts.counted["evaluation_failures"] == 2


async def test_garbage_is_missing_and_never_kept(rollouts: Any) -> None:
    garbage: list[Any] = [float("nan"), float("inf"), True, "0.9", 1e308, None]
    rollouts.answer = lambda spec: Result(spec.lease_id, spec.task.id, score=Score(garbage[int(spec.task.id)]))
    async with EvaluationGroup(rollouts.services()) as group:
        found = await gate(group)
    assert len(found.missing) == len(garbage)
    assert found.rate is None
    assert len(rollouts.cache) == 0
    assert rollouts.counted["evaluations_missing"] == len(garbage)


async def test_candidates_measured_at_once_score_as_they_do_alone(rollouts: Any) -> None:
    """A rollout holds the text it was started with, whatever else is measured while its scorer waits."""
    candidates = [Evolvable("artifact", {"text": str(number)}) for number in range(8)]
    rollouts.pauses = lambda: 3
    rollouts.answer = lambda spec: Score(int(spec.rendered) / 10)
    found: dict[int, float | None] = {}
    async with EvaluationGroup(rollouts.services(concurrency=16)) as group, anyio.create_task_group() as tasks:

        async def ask(number: int) -> None:
            found[number] = (await gate(group, candidates[number], TASKS[:1])).rate

        for number in range(8):
            tasks.start_soon(ask, number)
    assert rollouts.most_under_way == 8
    assert found == {number: number / 10 for number in range(8)}


async def test_evaluations_start_in_order_and_never_too_many(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services(concurrency=3)) as group, anyio.create_task_group() as tasks:
        for artifact in (HEAD, OTHER):
            tasks.start_soon(gate, group, artifact)
            await turns(1)
    order = [(spec.rendered, spec.task.id) for spec in rollouts.specs]
    if order[0][0] != "be brief":  # either may be first, but the other only follows
        order = order[6:] + order[:6]
    assert rollouts.most_under_way == 3
    assert {rendered for rendered, _ in order[:6]} == {"be brief"}
    assert len({spec.lease_id for spec in rollouts.specs}) == 12


async def test_tasks_are_started_in_their_order(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services(concurrency=1)) as group:
        await gate(group, tasks=list(reversed(TASKS)))
    assert rollouts.started == ["5", "4", "3", "2", "1", "0"]


async def test_the_budget_is_asked_before_anything_runs(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services(calls=9)) as group:
        await gate(group)
        with pytest.raises(BudgetExhausted, match="3 left and 4 were needed"):
            await gate(group, OTHER, TASKS[:4])
        assert (await gate(group)).complete  # what is known is free
        assert (rollouts.account.calls, rollouts.reserved) == (6, 0)
        await gate(group, OTHER, TASKS[:3])
    assert len(rollouts.started) == rollouts.account.calls == 9


async def test_joining_costs_nothing(rollouts: Any) -> None:
    rollouts.hold("0")
    async with EvaluationGroup(rollouts.services(calls=6)) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(gate, group)
        await turns()
        assert group.unanswered(HEAD, TASKS, split="held_out") == 0
        tasks.start_soon(gate, group)
        await turns()
        assert rollouts.counted["evaluations_joined"] == 1
        assert rollouts.under_way == 1
        rollouts.let_go("0")
    assert rollouts.account.calls == 6


async def test_unanswered_counts_what_would_have_to_be_bought(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services()) as group:
        await gate(group, tasks=TASKS[:4])
        assert group.unanswered(HEAD, TASKS, split="held_out") == 2
        assert group.unanswered(HEAD, TASKS, split="held_out", repeats=range(2)) == 8
        assert group.unanswered(HEAD, TASKS, split="train") == 6
        assert group.unanswered(OTHER, TASKS, split="held_out") == 6
        assert rollouts.counted["cache_hits"] == 0


async def test_a_fresh_score_is_neither_looked_up_nor_joined_nor_kept(rollouts: Any) -> None:
    values = iter([0.0, 1.0, 0.5])
    rollouts.answer = lambda spec: Score(next(values))
    async with EvaluationGroup(rollouts.services()) as group:
        kept = await gate(group, tasks=TASKS[:1])
        fresh = [await gate(group, tasks=TASKS[:1], fresh=True) for _ in range(2)]
        assert [one.rate for one in (kept, *fresh)] == [0.0, 1.0, 0.5]
        assert await gate(group, tasks=TASKS[:1]) == kept
        rollouts.answer = lambda spec: Score(1.0)
        rollouts.hold("1")
        async with anyio.create_task_group() as tasks:
            for fresh_one in (True, False, True):
                tasks.start_soon(partial(gate, group, HEAD, TASKS[1:2], fresh=fresh_one))
                await turns(3)
            rollouts.let_go("1")
        assert rollouts.started.count("1") == 3
        assert rollouts.counted["evaluations_joined"] == 0


async def test_no_cache_still_runs_a_score_once_at_a_time(rollouts: Any) -> None:
    rollouts.hold("0")
    async with EvaluationGroup(evolve(rollouts.services(), cache=None)) as group:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(gate, group, HEAD, TASKS[:1])
            await turns()
            rollouts.let_go("0")
        assert rollouts.started == ["0"]
        await gate(group, tasks=TASKS[:1])
    assert rollouts.started == ["0", "0"]


async def test_futility_is_asked_in_task_order_whatever_finishes_first(rollouts: Any) -> None:
    rollouts.hold("0")
    prefixes: list[int] = []

    def still_open(partial: Measurement) -> bool:
        assert not partial.complete
        prefixes.append(len(partial.readings))
        return len(partial.readings) < 3

    async with EvaluationGroup(rollouts.services(concurrency=8)) as group, anyio.create_task_group() as tasks:

        async def ask() -> None:
            found = await gate(group, still_open=still_open)
            assert found == Measurement(measured(1, 1, 1), "here", complete=False)

        tasks.start_soon(ask)
        await turns()
        assert prefixes == []
        rollouts.let_go("0")
    assert prefixes == [1, 2, 3]


async def test_a_futile_measurement_ends_what_nobody_else_waits_for(rollouts: Any) -> None:
    rollouts.hold("4", "5")
    async with EvaluationGroup(rollouts.services(concurrency=8, calls=6)) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(gate, group, HEAD, TASKS[5:])
        await turns(3)
        found = await gate(group, still_open=lambda partial: False)
        await turns()
        assert not found.complete
        assert rollouts.cancelled == ["4"]
        rollouts.let_go("5")
    assert "5" in rollouts.started


async def test_a_futile_measurement_gives_back_what_it_did_not_begin(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services(concurrency=1, calls=100)) as group:
        found = await gate(group, still_open=lambda partial: False)
        await turns()
        assert found.readings == measured(1)
        assert rollouts.reserved == 0
        assert rollouts.account.calls == len(rollouts.started) < 6
        assert (await gate(group)).complete


async def test_a_complete_measurement_is_complete(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services()) as group:
        assert (await gate(group, tasks=TASKS[:1], still_open=lambda partial: False)).complete


async def test_evaluations_do_not_run_in_the_context_of_who_asks(rollouts: Any) -> None:
    whose = ContextVar("whose", default="the group's")
    seen: list[str] = []

    def answer(spec: RolloutSpec) -> Score:
        seen.append(whose.get())
        return Score(1.0)

    rollouts.answer = answer
    async with EvaluationGroup(rollouts.services()) as group:
        whose.set("an asker's")
        await gate(group)
    assert set(seen) == {"the group's"}

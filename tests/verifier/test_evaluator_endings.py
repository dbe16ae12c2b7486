"""How evaluations end: cancelled, closed, failed, late. Nothing may be lost, held or left waiting."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.evolvable import Evolvable
from adescent.policies import Measurement
from adescent.tasks import Score, Task
from adescent.verifier import EvaluationGroup
from adescent.workspec import Failure, Result, RolloutSpec

HEAD = Evolvable("artifact", {"text": "be brief"})
OTHER = Evolvable("artifact", {"text": "be long"})
TASKS = [Task(str(number), f"prompt {number}") for number in range(6)]


async def gate(group: EvaluationGroup, artifact: Evolvable = HEAD, tasks: Any = TASKS, **options: Any) -> Measurement:
    with anyio.fail_after(5):
        return await group.measure(artifact, tasks, **{"split": "held_out", "purpose": "gate", **options})


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await checkpoint()


@pytest.mark.anyio
async def test_a_joiner_survives_the_one_who_asked_first(rollouts: Any) -> None:
    rollouts.hold("0", "1")
    found: list[Measurement] = []
    async with EvaluationGroup(rollouts.services(concurrency=1, calls=10)) as group:
        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def ask_first() -> None:
                with first:
                    await gate(group)

            async def ask_second() -> None:
                found.append(await gate(group, tasks=[TASKS[0], TASKS[3]]))

            tasks.start_soon(ask_first)
            await turns()
            tasks.start_soon(ask_second)
            await turns()
            first.cancel()
            await turns()
            assert rollouts.cancelled == []
            assert rollouts.reserved == 1  # of the six, one has begun and one is still wanted
            rollouts.let_go("0")
        assert [reading.trials for reading in found[0].readings] == [1, 1]
        assert rollouts.started == ["0", "3"]
        assert (rollouts.account.calls, rollouts.reserved) == (2, 0)


@pytest.mark.anyio
async def test_what_nobody_waits_for_is_cancelled_and_can_be_asked_again(rollouts: Any) -> None:
    rollouts.hold("0", "1")
    async with EvaluationGroup(rollouts.services(concurrency=2, calls=20)) as group:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate, group)
            await turns()
            tasks.cancel_scope.cancel()
        assert rollouts.reserved == 0
        rollouts.held.clear()
        assert (await gate(group)).rate == 1.0
        assert sorted(rollouts.cancelled) == ["0", "1"]
        assert rollouts.under_way == 0


@pytest.mark.anyio
async def test_an_evaluation_that_is_going_down_is_not_joined(rollouts: Any) -> None:
    leaving = anyio.Event()
    rollouts.hold("0")
    plain = rollouts.rollout

    async def slow_to_leave(spec: RolloutSpec, purpose: Any) -> Result:
        try:
            result: Result = await plain(spec, purpose)
            return result
        finally:
            with anyio.CancelScope(shield=True), anyio.fail_after(5):
                await leaving.wait()

    rollouts.rollout = slow_to_leave
    async with EvaluationGroup(rollouts.services()) as group, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as first:
            first.start_soon(gate, group, HEAD, TASKS[:1])
            await turns()
            first.cancel_scope.cancel()
        rollouts.held.clear()
        tasks.start_soon(gate, group, HEAD, TASKS[:1])
        await turns()
        assert rollouts.started == ["0", "0"]
        leaving.set()


async def _measure_cancelled_after(rollouts: Any, group: EvaluationGroup, steps: int, witness: bool) -> None:
    scope = anyio.CancelScope()

    async def ask() -> None:
        with scope:
            await gate(group, repeats=range(2))

    async def ask_as_well() -> None:
        assert (await gate(group, tasks=TASKS[2:5], repeats=range(2))).trials == 6

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        if witness:
            await checkpoint()
            tasks.start_soon(ask_as_well)
        await turns(steps)
        scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("witness", [False, True], ids=["alone", "joined"])
@pytest.mark.parametrize("concurrency", [1, 3, 20])
async def test_cancelled_at_any_checkpoint_nothing_is_lost_or_held(
    rollouts: Any, concurrency: int, witness: bool
) -> None:
    for steps in range(40):
        random_pauses = random.Random(steps)
        rollouts.pauses = lambda: random_pauses.randrange(4)  # noqa: B023 - used up before the next turn of the loop
        rollouts.cache._scores.clear()
        async with EvaluationGroup(rollouts.services(concurrency=concurrency, calls=100)) as group:
            await _measure_cancelled_after(rollouts, group, steps, witness)
            assert (await gate(group, repeats=range(2))).trials == 12
            await turns()
            assert rollouts.reserved == 0
            assert rollouts.account.calls == rollouts.counted["evaluations"]
            assert rollouts.under_way == 0
            assert rollouts.most_under_way <= concurrency
            # every slot is still there
            rollouts.hold("0", "1", "2")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gate, group, OTHER)
                await turns()
                assert rollouts.under_way == min(concurrency, 3)
                rollouts.let_go("0", "1", "2")


@pytest.mark.anyio
async def test_measuring_notices_a_cancellation_even_where_all_is_known(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services()) as group:
        await gate(group)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await gate(group)
            pytest.fail("a cancelled measurement answered")


@pytest.mark.anyio
async def test_who_asks_gets_the_bare_error_of_a_rollout_that_does_not_report(rollouts: Any) -> None:
    rollouts.answer = lambda spec: OSError("executor is gone") if spec.task.id == "2" else Score(1.0)
    async with EvaluationGroup(rollouts.services(calls=100)) as group:
        with pytest.raises(OSError, match="executor is gone"):
            await gate(group)
        await turns()
        assert rollouts.reserved == 0
        assert (await gate(group, tasks=TASKS[:2])).rate == 1.0


@pytest.mark.anyio
async def test_an_error_nobody_waits_for_ends_the_group(rollouts: Any) -> None:
    plain = rollouts.rollout

    async def fails_when_cancelled(spec: RolloutSpec, purpose: Any) -> Result:
        try:
            result: Result = await plain(spec, purpose)
            return result
        except anyio.get_cancelled_exc_class():
            raise OSError("could not let go") from None

    rollouts.rollout = fails_when_cancelled
    rollouts.hold("0")
    with anyio.fail_after(5), pytest.raises(OSError, match="could not let go"):
        async with EvaluationGroup(rollouts.services()) as group:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gate, group)
                await turns()
                tasks.cancel_scope.cancel()
            await anyio.sleep_forever()


@pytest.mark.anyio
async def test_what_comes_of_a_dropped_evaluation_is_counted_nowhere(rollouts: Any) -> None:
    async def reports_its_end(spec: RolloutSpec, purpose: Any) -> Result:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return Result(spec.lease_id, spec.task.id, error=Failure("infrastructure", "worker", "Killed", "cancelled"))
        raise AssertionError("it sleeps for ever")

    rollouts.rollout = reports_its_end
    async with EvaluationGroup(rollouts.services()) as group:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gate, group)
            await turns()
            tasks.cancel_scope.cancel()
        await turns()
        assert rollouts.under_way == 0
    assert not rollouts.counted.keys() & {"evaluation_failures", "evaluations_missing"}


@pytest.mark.anyio
async def test_an_exception_of_the_block_leaves_it_bare(rollouts: Any) -> None:
    rollouts.hold("0")
    with pytest.raises(KeyError):
        async with EvaluationGroup(rollouts.services()):
            raise KeyError("the host's own")


@pytest.mark.anyio
async def test_closing_releases_who_waits_outside_and_gives_back(rollouts: Any) -> None:
    rollouts.hold("0")
    closed: list[str] = []

    async def ask(group: EvaluationGroup, task: Task) -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await gate(group, tasks=[task])
        closed.append(task.id)

    async with anyio.create_task_group() as tasks:
        async with EvaluationGroup(rollouts.services(concurrency=1, calls=10)) as group:
            tasks.start_soon(ask, group, TASKS[0])
            await turns(3)
            tasks.start_soon(ask, group, TASKS[1])
            await turns(3)
            assert rollouts.started == ["0"]
        await turns(3)
        assert sorted(closed) == ["0", "1"]
    assert (rollouts.account.calls, rollouts.reserved) == (1, 0)
    with pytest.raises(anyio.ClosedResourceError):
        await gate(group)


@pytest.mark.anyio
async def test_a_group_that_was_never_entered_takes_nothing(rollouts: Any) -> None:
    with pytest.raises(anyio.ClosedResourceError):
        await gate(EvaluationGroup(rollouts.services()))


@pytest.mark.anyio
async def test_an_outer_deadline_stays_a_timeout(rollouts: Any) -> None:
    rollouts.hold("0")
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.1):
            async with EvaluationGroup(rollouts.services()) as group:
                await group.measure(HEAD, TASKS, split="held_out", purpose="gate")
    assert "0" in rollouts.cancelled


@pytest.mark.anyio
async def test_actors_that_never_suspend_do_not_hold_the_loop(rollouts: Any) -> None:
    rollouts.pauses = lambda: 0
    ticks: list[int] = []
    async with EvaluationGroup(rollouts.services(concurrency=1)) as group, anyio.create_task_group() as tasks:

        async def tick() -> None:
            while True:
                ticks.append(len(rollouts.started))
                await checkpoint()

        tasks.start_soon(tick)
        await gate(group)
        tasks.cancel_scope.cancel()
    # a turn of the loop holds one evaluation; the order within a turn is the loop's own
    assert max(later - earlier for earlier, later in pairwise(ticks)) <= 2


@pytest.mark.trio
async def test_one_of_a_hundred_that_times_out_late_is_one_missing(rollouts: Any, autojump_clock: Any) -> None:
    async def rollout(spec: RolloutSpec, purpose: Any) -> Result:
        with anyio.move_on_after(60):
            await anyio.sleep(600 if spec.task.id == "97" else 1)
            return Result(spec.lease_id, spec.task.id, score=Score(1.0))
        late = Failure("model", "run", "TimeoutError", "no answer in 60 s", transient=True)
        return Result(spec.lease_id, spec.task.id, error=late)

    rollouts.rollout = rollout
    tasks = [Task(str(number), "prompt") for number in range(100)]
    async with EvaluationGroup(rollouts.services(concurrency=1)) as group:
        with anyio.fail_after(200):
            found = await group.measure(HEAD, tasks, split="held_out", purpose="gate")
        assert [reading.task_id for reading in found.missing] == ["97"]
        assert (found.trials, found.total, found.complete) == (99, 99.0, True)
        assert rollouts.counted["evaluations_missing"] == 1
        with anyio.fail_after(5):
            again = await group.measure(HEAD, tasks[:97], split="held_out", purpose="gate")
        assert again.rate == 1.0

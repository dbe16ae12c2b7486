"""Two lanes to the executor: who overtakes whom, and how many are inside at once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import anyio
import pytest
import trio
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st

from adescent.policies import Policies
from adescent.runtime.dispatch import Lanes
from adescent.tasks import Score, Task
from adescent.workspec import Result, RolloutSpec

BOUND = 30.0
TASK = Task("t", "?")
SPEC = RolloutSpec("rules", TASK, lease_id="lease")


# Lanes ----------------------------------------------------------------------------------------------------------------


class Crowd:
    """Tasks that enter lanes, say so, and stay until they are told to leave."""

    def __init__(self, lanes: Lanes, tasks: Any) -> None:
        self.lanes = lanes
        self.inside: list[str] = []
        self._tasks = tasks
        self._leave: dict[str, anyio.Event] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def come(self, *names: str) -> None:
        """Enter, one after the other; a name that begins with ``e`` is an evaluation's."""
        for name in names:
            self._tasks.start_soon(self._stay, name)
            await wait_all_tasks_blocked()

    async def leave(self, name: str) -> None:
        self._leave[name].set()
        await wait_all_tasks_blocked()

    async def _stay(self, name: str) -> None:
        evaluation = name.startswith("e")
        self._leave[name] = anyio.Event()
        with anyio.CancelScope() as self.scopes[name]:
            await self.lanes.enter(evaluation)
            self.inside.append(name)
            try:
                await self._leave[name].wait()
            finally:
                self.inside.remove(name)
                self.lanes.leave(evaluation)


@pytest.mark.anyio
async def test_evaluations_overtake_rollouts_that_wait(anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            crowd = Crowd(Lanes(2, rollouts=2, eval_concurrency=8), tasks)
            await crowd.come("r1", "r2", "r3", "e1", "r4", "e2")
            assert crowd.inside == ["r1", "r2"]
            await crowd.leave("r1")
            assert crowd.inside == ["r2", "e1"]
            await crowd.leave("r2")
            assert crowd.inside == ["e1", "e2"]
            await crowd.leave("e1")
            assert crowd.inside == ["e2", "r3"]
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("slots", "eval_concurrency", "reserved"), [(1, 8, 0), (3, 8, 0), (4, 8, 1), (8, 8, 2), (40, 8, 8), (8, 1, 1)]
)
async def test_a_quarter_of_the_slots_is_for_evaluations_alone(
    slots: int, eval_concurrency: int, reserved: int, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            crowd = Crowd(Lanes(slots, rollouts=slots, eval_concurrency=eval_concurrency), tasks)
            await crowd.come(*(f"r{number}" for number in range(slots + 1)))
            assert len(crowd.inside) == slots - reserved
            await crowd.come(*(f"e{number}" for number in range(slots)))
            assert sum(name.startswith("e") for name in crowd.inside) == reserved
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("cancelled_first", [True, False])
@pytest.mark.parametrize("waiting", [("e1", "e2"), ("e1", "r1"), ("r1", "r2")])
async def test_slot_handed_to_a_waiter_that_is_cancelled_is_passed_on(
    cancelled_first: bool, waiting: tuple[str, str], anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            lanes = Lanes(1, rollouts=1, eval_concurrency=1)
            await lanes.enter(evaluation=False)
            crowd = Crowd(lanes, tasks)
            await crowd.come(*waiting)
            # Both in one step of the loop, so that the waiter learns of them together.
            if cancelled_first:
                crowd.scopes[waiting[0]].cancel()
            lanes.leave(evaluation=False)
            if not cancelled_first:
                crowd.scopes[waiting[0]].cancel()
            await wait_all_tasks_blocked()
            assert crowd.inside == [waiting[1]]
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@given(seed=st.integers(0, 10_000), slots=st.integers(1, 9), rollouts=st.integers(1, 9), evaluations=st.integers(1, 9))
async def test_slots_are_neither_overdrawn_nor_lost_whoever_is_cancelled(
    seed: int, slots: int, rollouts: int, evaluations: int, anyio_backend: Any
) -> None:
    chance = random.Random(seed)
    lanes = Lanes(slots, rollouts, evaluations)
    most = max(1, min(rollouts, slots - min(slots // 4, evaluations)))
    inside: Counter[bool] = Counter()

    async def visit(evaluation: bool, scope: anyio.CancelScope) -> None:
        with scope:
            await lanes.enter(evaluation)
            inside[evaluation] += 1
            assert inside.total() <= slots
            assert inside[False] <= most
            try:
                for _ in range(chance.randrange(3)):
                    await anyio.lowlevel.checkpoint()
            finally:
                inside[evaluation] -= 1
                lanes.leave(evaluation)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            scopes = [anyio.CancelScope() for _ in range(20)]
            for scope in scopes:
                tasks.start_soon(visit, chance.random() < 0.5, scope)
            for _ in range(12):
                await anyio.lowlevel.checkpoint()
                if chance.random() < 0.5:
                    chance.choice(scopes).cancel()
        assert lanes._free == slots
        assert lanes._rollouts_free == most
        assert not lanes._waiting_evaluations
        assert not lanes._waiting_rollouts


# Widths of a run ------------------------------------------------------------------------------------------------------


class Gauge:
    """How many are inside at once, and how many there have been at most."""

    def __init__(self) -> None:
        self.most = self._now = 0

    async def __aenter__(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)

    async def __aexit__(self, *error: object) -> None:
        self._now -= 1


class Measured:
    """An executor that tells rollouts of workers from evaluations by their specs, and holds each for a while."""

    takes_callables = True

    def __init__(self, slots: int | None = None) -> None:
        self.slots = slots
        self.rollouts = Gauge()
        self.evaluations = Gauge()
        self.all = Gauge()

    async def __aenter__(self) -> Measured:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def attach_actors(self, actors: Any) -> Measured:
        return self

    async def rollout(self, spec: RolloutSpec) -> Result:
        lane = self.evaluations if " " in spec.lease_id else self.rollouts
        async with self.all, lane:
            await trio.sleep(1.0)
        return Result(spec.lease_id, spec.task.id, "out", Score(float(spec.task.prompt in spec.rendered.split())))


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
@pytest.mark.parametrize(("n_workers", "max_concurrency"), [(6, None), (6, 2), (6, 1), (2, 5)])
@pytest.mark.parametrize("eval_concurrency", [1, 5])
async def test_rollouts_and_evaluations_are_bounded_apart(
    world: Any,
    autojump_clock: Any,
    schedule: str,
    n_workers: int,
    max_concurrency: int | None,
    eval_concurrency: int,
) -> None:
    measured = Measured()
    result = await world.evolve(
        schedule,
        n_workers=n_workers,
        max_concurrency=max_concurrency,
        eval_concurrency=eval_concurrency,
        policies=Policies(executor=measured),
        rounds=5,
    )
    assert result.rollouts == 5 * n_workers
    assert measured.rollouts.most == min(n_workers, max_concurrency or n_workers)
    assert measured.evaluations.most == eval_concurrency


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_executor_with_few_slots_keeps_some_for_evaluations(
    world: Any, autojump_clock: Any, schedule: str
) -> None:
    measured = Measured(slots=8)
    await world.evolve(schedule, n_workers=10, eval_concurrency=8, policies=Policies(executor=measured))
    assert measured.rollouts.most == 6
    assert measured.evaluations.most == 8
    assert measured.all.most == 8

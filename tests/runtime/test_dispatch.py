"""Two lanes to the executor, and the one layer that tries again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
import trio
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st

from adescent.budget import Account, Budget
from adescent.errors import Transient
from adescent.policies import Policies
from adescent.runtime.control import Control
from adescent.runtime.dispatch import Dispatch, Lanes, ProposeFailed
from adescent.runtime.health import Health
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec

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


# Trying again ---------------------------------------------------------------------------------------------------------


class Flaky:
    """An executor that fails in a given way so many times, and notes when it was asked."""

    takes_callables = True
    slots: int | None = None

    def __init__(self, failure: Failure, times: int) -> None:
        self._failure = failure
        self.times = times
        self.asked: list[float] = []
        self.attempts: list[int] = []

    async def __aenter__(self) -> Flaky:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def attach_actors(self, actors: Any) -> Flaky:
        return self

    async def rollout(self, spec: RolloutSpec) -> Result:
        self.asked.append(trio.current_time())
        self.attempts.append(spec.attempt)
        if len(self.asked) <= self.times:
            return Result(spec.lease_id, spec.task.id, error=self._failure, attempt=spec.attempt)
        return Result(spec.lease_id, spec.task.id, "out", Score(0.5), attempt=spec.attempt)


class Sent:
    """A dispatch over an executor, with its account and what it counted."""

    def __init__(self, executor: Any, budget: Budget | None = None, **options: Any) -> None:
        self.counted: Counter[str] = Counter()
        self.account = Account(budget or Budget())
        control = Control()
        health = Health(control, patience=8, strict=False, count=self._count)
        parts: dict[str, Any] = {"lanes": None, "timeout": None, "seed": 0, **options}
        self.dispatch = Dispatch(executor, account=self.account, health=health, count=self._count, **parts)

    def _count(self, name: str) -> None:
        self.counted[name] += 1


def passing(retry_after: float | None = None) -> Failure:
    return Failure("model", "run", "Transient", "busy", transient=True, retry_after=retry_after)


@pytest.mark.trio
@pytest.mark.parametrize("failures", [1, 3, 4])
async def test_failure_that_may_pass_is_tried_again_after_growing_pauses(autojump_clock: Any, failures: int) -> None:
    flaky = Flaky(passing(), failures)
    sent = Sent(flaky)
    result = await sent.dispatch.rollout(SPEC)
    assert result.score == Score(0.5)
    assert flaky.attempts == list(range(failures + 1))
    for number, (before, after) in enumerate(pairwise(flaky.asked)):
        assert 0.1 * 2**number <= after - before <= 0.15 * 2**number
    assert sent.counted["retries"] == sent.account.by_purpose["rollout"] == failures
    assert "rollouts_failed" not in sent.counted


@pytest.mark.trio
async def test_failure_that_does_not_pass_is_one_failed_rollout(autojump_clock: Any) -> None:
    flaky = Flaky(passing(), 99)
    sent = Sent(flaky)
    result = await sent.dispatch.rollout(SPEC)
    assert result.error is not None
    assert (result.lease_id, result.attempt) == ("lease", 4)
    assert sent.counted == {"retries": 4, "rollouts_failed": 1}


@pytest.mark.trio
async def test_the_other_side_says_how_long_to_wait(autojump_clock: Any) -> None:
    flaky = Flaky(passing(retry_after=7.0), 2)
    await Sent(flaky).dispatch.rollout(SPEC)
    assert [after - before for before, after in pairwise(flaky.asked)] == [7.0, 7.0]


@pytest.mark.trio
async def test_a_wait_beyond_the_deadline_is_not_begun(autojump_clock: Any) -> None:
    flaky = Flaky(passing(retry_after=100.0), 99)
    sent = Sent(flaky)
    await sent.dispatch.rollout(SPEC)
    assert len(flaky.asked) == 2
    assert sent.account.by_purpose == {"rollout": 1}


@pytest.mark.trio
@pytest.mark.parametrize("kind", ["model", "infrastructure", "caller"])
async def test_other_failures_are_not_tried_again(autojump_clock: Any, kind: Any) -> None:
    flaky = Flaky(Failure(kind, "run", "ValueError", "no"), 1)
    sent = Sent(flaky)
    result = await sent.dispatch.evaluate(SPEC, "gate")
    assert result.kind == kind
    assert len(flaky.asked) == 1
    assert sent.counted == {"rollouts_failed": 1}


@pytest.mark.trio
async def test_a_retry_is_paid_or_not_made(autojump_clock: Any) -> None:
    flaky = Flaky(passing(), 99)
    sent = Sent(flaky, Budget(calls=2))
    await sent.dispatch.evaluate(SPEC, "gate")
    assert len(flaky.asked) == 3  # the first was paid by who asked
    assert sent.account.calls == 2
    assert sent.account.refused == {"gate"}


@pytest.mark.trio
async def test_one_that_waits_to_try_again_holds_no_slot(autojump_clock: Any) -> None:
    flaky = Flaky(passing(retry_after=50.0), 1)
    sent = Sent(flaky, lanes=Lanes(1, 1, 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sent.dispatch.rollout, SPEC)
        await trio.testing.wait_all_tasks_blocked()
        await sent.dispatch.rollout(SPEC)
        assert trio.current_time() - flaky.asked[0] < 1.0


class Slow(Flaky):
    async def rollout(self, spec: RolloutSpec) -> Result:
        self.asked.append(trio.current_time())
        await trio.sleep(60.0)
        raise AssertionError("nobody waits so long")


@pytest.mark.trio
async def test_rollout_that_takes_too_long_is_cut_off_and_not_tried_again(autojump_clock: Any) -> None:
    slow = Slow(passing(), 0)
    sent = Sent(slow, timeout=3.0, lanes=Lanes(1, 1, 1))
    result = await sent.dispatch.rollout(SPEC)
    assert result.error is not None
    assert (result.kind, result.error.type, result.seconds) == ("infrastructure", "RolloutTimeout", 3.0)
    assert trio.current_time() - slow.asked[0] == 3.0
    assert len(slow.asked) == 1
    assert sent.counted == {"rollouts_timed_out": 1, "rollouts_failed": 1}
    await sent.dispatch.rollout(SPEC)  # the slot was given back
    assert len(slow.asked) == 2


@pytest.mark.trio
@pytest.mark.parametrize(
    "error", [lambda: Transient("busy", 7.0), lambda: ConnectionError("reset"), lambda: TimeoutError("late")]
)
async def test_proposer_is_tried_again_by_the_same_rules(autojump_clock: Any, error: Callable[[], Exception]) -> None:
    asked: list[float] = []

    async def ask(wanted: int) -> str:
        asked.append(trio.current_time())
        if len(asked) < wanted:
            raise error()
        return "proposal"

    sent = Sent(Flaky(passing(), 0))
    assert await sent.dispatch.propose(ask, 3) == "proposal"
    pauses = [after - before for before, after in pairwise(asked)]
    if isinstance(error(), Transient):
        assert pauses == [7.0, 7.0]
    else:
        assert 0.1 <= pauses[0] <= 0.15
        assert 0.2 <= pauses[1] <= 0.3
    assert sent.account.by_purpose == {"proposal": 2}
    with pytest.raises(ProposeFailed) as failed:
        await sent.dispatch.propose(ask, 99)
    assert type(failed.value.__cause__) is type(error())
    assert failed.value.failure.transient


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
@pytest.mark.parametrize("actor", ["run", "propose", "reward"])
async def test_calls_of_a_run_count_every_try(world: Any, autojump_clock: Any, schedule: str, actor: str) -> None:
    original, met = getattr(world, actor), set()

    async def busy_at_first(*args: Any) -> Any:
        known = str([getattr(argument, "id", argument) for argument in args])
        if known not in met:
            met.add(known)
            world.calls["busy"] += 1
            await trio.lowlevel.checkpoint()
            raise Transient("busy", retry_after=2.0)
        return await original(*args)

    setattr(world, actor, busy_at_first)
    result = await world.evolve(schedule)
    assert result.error == ""
    assert result.counters["retries"] == world.calls["busy"] > 3
    busy = 0 if actor == "reward" else world.calls["busy"]
    assert result.calls == world.calls["run"] + world.calls["propose"] + busy
    assert "rollouts_failed" not in result.counters
    assert result.seed_reward == 0.0
    assert (result.final_reward or 0.0) > 0.5
    assert result.seed.trials == result.final.trials == 12


@pytest.mark.trio
async def test_a_proposer_that_never_answers_has_its_time_too(world: Any, autojump_clock: Any) -> None:
    async def propose(*_: Any) -> None:
        await trio.sleep_forever()

    result = await world.evolve("stream", propose=propose, rounds=3, rollout_timeout=5.0)
    assert result.counters["rollouts_timed_out"] >= 8
    assert "propose: RolloutTimeout: not done within rollout_timeout=5.0 s" in result.causes
    assert "propose failed" in result.error

"""The one layer that tries again: how often, after how long, from where, and who pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
import trio
from attrs import evolve

from adescent.budget import Account, Budget
from adescent.errors import Transient
from adescent.runtime.control import Control
from adescent.runtime.dispatch import Dispatch, Lanes, ProposeFailed
from adescent.runtime.health import Health
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec

BOUND = 30.0
TASK = Task("t", "?")
SPEC = RolloutSpec("rules", TASK, lease_id="lease")


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


class Forgetful(Flaky):
    """Keeps a state in its first attempt, and in the others says nothing of it."""

    def __init__(self, times: int, tries_itself: int) -> None:
        super().__init__(passing(), times)
        self.states: list[Any] = []
        self._tries_itself = tries_itself

    async def rollout(self, spec: RolloutSpec) -> Result:
        self.states.append(spec.resume_state)
        result = await super().rollout(spec)
        kept = {"step": 1} if len(self.states) == 1 else None
        return evolve(result, checkpoint=kept, attempt=spec.attempt + self._tries_itself)


@pytest.mark.trio
@pytest.mark.parametrize("tries_itself", [0, 2])
async def test_another_attempt_goes_on_from_the_last_state_that_was_kept(
    autojump_clock: Any, tries_itself: int
) -> None:
    forgetful = Forgetful(3, tries_itself)
    result = await Sent(forgetful).dispatch.rollout(SPEC)
    assert result.score == Score(0.5)
    assert forgetful.states == [None, {"step": 1}, {"step": 1}, {"step": 1}]
    assert forgetful.attempts == [number * (1 + tries_itself) for number in range(4)]


@pytest.mark.parametrize("schedule", ["rounds", "stream"])
@pytest.mark.anyio
async def test_a_run_goes_on_from_checkpoints_of_its_actors(world: Any, schedule: str) -> None:
    begun: Counter[Any] = Counter()

    async def run(rendered: str, task: Task, ctx: Any) -> bool:
        begun[ctx.resume_state] += 1
        if ctx.resume_state is None:
            await ctx.checkpoint("half way")
            raise Transient("busy", retry_after=0.0)
        return task.prompt in rendered.split()

    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, run=run, rounds=1)
    assert result.counters["retries"] == begun[None] == begun["half way"] > 0
    assert result.final_reward > result.seed_reward


@pytest.mark.trio
@pytest.mark.parametrize(("calls", "paid"), [(None, 2), (5, 2), (1, 1)])
async def test_what_an_executor_sends_again_by_itself_is_paid_while_there_is_something_left(
    calls: int | None, paid: int
) -> None:
    sent = Sent(Forgetful(0, tries_itself=2), None if calls is None else Budget(calls=calls))
    result = await sent.dispatch.evaluate(SPEC, "gate")
    assert result.attempt == 2
    assert sent.account.by_purpose.get("gate", 0) == sent.account.calls == paid
    assert "retries" not in sent.counted


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

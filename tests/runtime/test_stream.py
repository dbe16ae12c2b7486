"""Workers without a barrier: credits, back-pressure, lag, and the end of every card."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial
from typing import Any

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from adescent.aggregator import GuardedStaleness, Merger
from adescent.budget import Budget
from adescent.errors import RunCancelled
from adescent.evolution import Evolution
from adescent.evolvable import Evolvable
from adescent.ledger import MemoryLedger
from adescent.policies import Policies
from adescent.runtime import stream
from adescent.runtime.credits import Credits
from adescent.runtime.result import EvolutionResult

BOUND = 60.0


class CheckedCredits(Credits):
    """Credits that look after each step whether there are fewer than none or more than there were."""

    made: list[CheckedCredits] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, n_units: int, each: int) -> None:
        super().__init__(n_units, each)
        self.each = each
        self.made.append(self)

    def try_take(self, unit: int) -> bool:
        took = super().try_take(unit)
        self.check()
        return took

    def give_back(self, unit: int) -> None:
        super().give_back(unit)
        self.check()

    def check(self) -> None:
        assert all(0 <= free <= self.each for free in self._free), self._free

    @property
    def out(self) -> int:
        return self.total - sum(self._free)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[CheckedCredits]:
    CheckedCredits.made.clear()
    monkeypatch.setattr(stream, "Credits", CheckedCredits)
    return CheckedCredits.made


def moody(world: Any, seed: int) -> None:
    """Let actors do whatever actors do, each as chance has it."""
    chance = random.Random(seed)

    async def some_time() -> None:
        for _ in range(chance.randrange(4)):
            await checkpoint()
        if world.calls.total() > 20 and chance.random() < 0.15:
            raise ZeroDivisionError("a mood")

    async def propose(rendered: str, task: Any, output: object, score: object) -> Any:
        world.calls["propose"] += 1
        await some_time()
        mood = chance.randrange(8)
        if mood == 0:
            return None
        if mood == 1:
            return {"remove": ["what is not there"]}
        if mood == 2:
            return ["x" * 40_000]
        if mood == 3:
            return [f"rule {number}" for number in range(9)]
        return f"{task.prompt} nonsense-{chance.randrange(3)}" if mood == 4 else task.prompt

    world.before_run = world.before_reward = some_time
    world.propose = propose


ENDS: dict[str, dict[str, Any]] = {
    "leases": {"rounds": 6},
    "rollouts": {"budget": Budget(rollouts=11)},
    "calls": {"budget": Budget(calls=160)},
    "patience": {"patience": 2, "rounds": 20},
    "target": {"target_reward": 0.5, "rounds": 20},
    "seconds": {"budget": Budget(seconds=0.02)},
    "stop": {"rounds": 1000},
    "failure": {"rounds": 20},
}


@pytest.mark.anyio
@pytest.mark.parametrize("end", ENDS)
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000))
async def test_every_card_ends_once_and_no_credit_is_lost_however_it_ends(
    new_world: Any, ends: Any, end: str, seed: int, anyio_backend: Any
) -> None:
    CheckedCredits.made.clear()
    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(BOUND):
        patch.setattr(stream, "Credits", CheckedCredits)
        chance = random.Random(seed)
        world = new_world()
        moody(world, seed)
        options = world.options(
            chance.choice(["rounds", "stream"]),
            n_workers=chance.randint(1, 5),
            eval_concurrency=chance.randint(1, 5),
            self_verify=chance.random() < 0.3,
            noise=chance.choice(["yes", "no"]),
            on_event=world.watch,
            **ENDS[end],
        )
        if options["schedule"] == "stream":
            options["max_unmerged"] = chance.randint(1, 4)
        else:
            options["max_concurrency"] = chance.randint(1, 5)
        async with Evolution(world.tasks, world.reward, **options) as run:
            if end in ("stop", "failure"):
                for _ in range(chance.randint(1, 150)):
                    await checkpoint()
                assert run._engine is not None
                control = run._engine.control
                control.stop("stopped", grace=0.0) if end == "stop" else control.break_off(RunCancelled("a test"))
            result = await run.result()
    settled, ingested = ends(result, world.events)
    assert settled == ingested
    assert sum(row.considered for row in result.history) <= settled
    assert run._engine is not None
    account = run._engine.wiring.account
    assert account._reserved == 0
    assert result.calls == account.calls
    assert account.rollouts >= result.calls_by_purpose.get("rollout", 0) - result.counters.get("retries", 0)
    for each in CheckedCredits.made:
        still_out = result.outcomes().get("unmeasured", 0) + len(result.under_way)
        assert each.out <= still_out, "a credit was lost"


async def test_what_is_cut_off_in_a_promotion_has_been_merged(world: Any, anyio_backend: Any) -> None:
    CheckedCredits.made.clear()

    async def endless(merger: Merger, artifact_id: str) -> None:
        assert run._engine is not None
        run._engine.control.work.cancel()
        await anyio.sleep_forever()

    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(BOUND):
        patch.setattr(stream, "Credits", CheckedCredits)
        patch.setattr(Merger, "promote_due", endless)
        async with Evolution(world.tasks, world.reward, **world.options("stream", n_workers=2)) as run:
            result = await run.result()
    unmeasured = result.outcomes().get("unmeasured", 0)
    assert sum(result.outcomes().values()) > unmeasured
    [made] = CheckedCredits.made
    assert made.out <= unmeasured + len(result.under_way)


@pytest.mark.trio
@pytest.mark.parametrize(("n_workers", "max_unmerged"), [(1, 1), (3, 1), (2, 4)])
async def test_merge_that_waits_stops_the_workers(
    world: Any, autojump_clock: Any, checked: list[CheckedCredits], n_workers: int, max_unmerged: int
) -> None:
    """Each may have so many cards unmerged, and does not begin a rollout beyond them."""
    gate_opens = 10_000.0

    async def run(rendered: str, task: Any) -> bool:
        if rendered and trio.current_time() < gate_opens:
            await trio.sleep_until(gate_opens)  # a candidate is measured
        await trio.sleep(1.0)
        return task.prompt in rendered.split()

    started = trio.current_time()
    gate_opens += started
    begun: list[float] = []

    async def propose(rendered: str, task: Any, output: object, score: object) -> str:
        begun.append(trio.current_time())
        return str(task.prompt)

    result = await world.evolve(
        "stream",
        run=run,
        propose=propose,
        n_workers=n_workers,
        max_unmerged=max_unmerged,
        noise="no",
        rounds=20,
        policies=Policies(ledger=MemoryLedger()),
    )
    before = [at for at in begun if at < gate_opens]
    assert len(before) == n_workers * max_unmerged
    assert result.rollouts == 20 * n_workers
    assert checked[0].out == 0


@pytest.mark.trio
async def test_stop_during_back_pressure_waits_for_the_merge_and_no_longer(world: Any, autojump_clock: Any) -> None:
    async def run(rendered: str, task: Any) -> bool:
        await trio.sleep(100.0 if rendered else 1.0)
        return task.prompt in rendered.split()

    options = world.options("stream", run=run, n_workers=2, max_unmerged=1, noise="no", rounds=50)
    async with Evolution(world.tasks, world.reward, **options) as evolution:
        await trio.sleep(20.0)  # both cards are being measured, both workers wait
        evolution.stop()
        result = await evolution.result()
    assert result.rollouts == 2
    assert result.outcomes() == {"committed": 2}
    assert result.under_way == ()


class Versions(MemoryLedger):
    """A ledger that knows which version each text was."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, int] = {"": 1}
        self.newest = 1

    def commit(self, *args: Any, **options: Any) -> Evolvable:
        committed = super().commit(*args, **options)
        self.newest = committed.version
        self.of["\n".join(f"- {rule}" for rule in committed.state.values())] = committed.version
        return committed


@pytest.mark.trio
@pytest.mark.parametrize(("resync", "async_ratio"), [(True, 3), (False, 0), (False, 1), (False, 3)])
async def test_no_worker_lags_more_versions_than_it_may(
    new_world: Any, autojump_clock: Any, resync: bool, async_ratio: int
) -> None:
    world, ledger = new_world(60), Versions()
    lags: Counter[int] = Counter()
    trained = set()

    async def run(rendered: str, task: Any) -> bool:
        if task.prompt in trained and task.id in train:
            lags[ledger.newest - ledger.of[rendered]] += 1
        await trio.sleep(1.0)
        return task.prompt in rendered.split()

    async def propose(rendered: str, task: Any, output: object, score: object) -> str:
        await trio.sleep(1.0)
        return str(task.prompt)

    trained = {row["prompt"] for row in world.tasks}
    world.tasks, held_out = world.tasks[:30], world.tasks[30:]
    train = {row["id"] for row in world.tasks}
    await world.evolve(
        "stream",
        run=run,
        propose=propose,
        held_out=held_out,
        n_workers=1,
        resync_on_commit=resync,
        async_ratio=async_ratio,
        max_unmerged=1,
        noise="no",
        rounds=30,
        eval_concurrency=60,
        policies=Policies(ledger=ledger),
    )
    assert ledger.newest > async_ratio + 1
    assert max(lags) == (0 if resync else async_ratio)


@pytest.mark.trio
async def test_workers_whose_cards_are_all_too_old_are_told_to_let_go(new_world: Any, autojump_clock: Any) -> None:
    world = new_world(60)
    world.before_run = partial(trio.sleep, 1.0)
    result = await world.evolve(
        "stream",
        n_workers=2,
        resync_on_commit=False,
        async_ratio=1000,
        max_unmerged=1,
        rounds=60,
        policies=Policies(staleness=GuardedStaleness()),
        on_event=world.watch,
    )
    assert result.outcomes()["stale"] >= 6
    assert result.counters["forced_refreshes"] >= 1
    assert result.final_reward == 1.0
    refreshed = [event for event in world.events if type(event).__name__ == "WorkersRefreshed"]
    assert len(refreshed) == result.counters["forced_refreshes"]


@pytest.mark.trio
@pytest.mark.parametrize("end", ["rounds", "rollouts", "calls"])
async def test_leases_that_are_paid_for_may_finish_however_long_they_take(
    world: Any, autojump_clock: Any, end: str
) -> None:
    budgets: dict[str, dict[str, Any]] = {
        "rounds": {"rounds": 2},
        "rollouts": {"budget": Budget(rollouts=8)},
        "calls": {"budget": Budget(calls=60)},
    }
    worked = 0

    async def run(rendered: str, task: Any) -> bool:
        nonlocal worked
        worked += 1
        await trio.sleep(1000.0 if worked in (14, 17) else 1.0)
        return task.prompt in rendered.split()

    result: EvolutionResult = await world.evolve("stream", run=run, noise="no", **budgets[end])
    assert result.under_way == ()
    assert result.stop_reason == (end if end == "rounds" else f"budget:{end}")
    assert result.calls_by_purpose["rollout"] == result.rollouts


@pytest.mark.trio
async def test_stop_cuts_off_what_takes_longer_than_its_grace(world: Any, autojump_clock: Any) -> None:
    options = world.options("stream", noise="no", rounds=50, n_workers=3)

    async def longer_each_time() -> None:  # 4, 8 and 12 seconds
        await trio.sleep(world.calls["propose"] * 4.0)

    world.before_propose = longer_each_time
    async with Evolution(world.tasks, world.reward, **options) as evolution:
        await trio.sleep(6.0)
        stopped = trio.current_time()
        evolution.stop()
        result = await evolution.result()
    assert trio.current_time() - stopped == 5.0
    assert result.stop_reason == "stopped"
    assert len(result.under_way) == 2
    assert result.outcomes()["committed"] == 2


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_the_earliest_end_of_a_grace_stands(world: Any, autojump_clock: Any, schedule: str) -> None:
    async def first_is_endless() -> None:
        await trio.sleep(math.inf if world.calls["propose"] == 1 else 1.0)

    world.before_propose = first_is_endless
    options = world.options(schedule, noise="no", rounds=1, n_workers=2)
    async with Evolution(world.tasks, world.reward, **options) as evolution:
        await trio.sleep(100.0)  # all leases are out, and paid for: the run would wait for ever
        stopped = trio.current_time()
        evolution.stop()
        await trio.sleep(4.0)
        evolution.stop()
        result = await evolution.result()
    assert trio.current_time() - stopped == 5.0
    assert len(result.under_way) == 1
    assert result.stop_reason == ("rounds" if schedule == "stream" else "stopped")

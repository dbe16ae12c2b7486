"""Rounds that do not come to their natural end: stopped, paused, cut short."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from adescent.aggregator import UnionFusion
from adescent.budget import Budget
from adescent.evolution import Evolution
from adescent.policies import Policies


@pytest.mark.trio
async def test_stop_begins_no_lease_of_the_round_that_nobody_has_begun(world: Any, autojump_clock: Any) -> None:
    world.before_propose = partial(trio.sleep, 1.0)
    options = world.options("rounds", rounds=50, n_workers=20, max_concurrency=2, budget=Budget(calls=5000))
    async with Evolution(world.tasks, world.reward, **options) as run:
        await trio.sleep(2.5)  # two leases a second, in pairs
        run.stop()
        result = await run.result()
        assert run._engine is not None
        account = run._engine.wiring.account
    assert result.stop_reason == "stopped"
    assert result.rollouts == result.calls_by_purpose["rollout"] == 6
    assert result.under_way == ()
    assert account._reserved == 0
    assert sum(result.outcomes().values()) == 6
    assert result.outcomes()["committed"] >= 1
    assert sum(row.considered for row in result.history) == 6


@pytest.mark.trio
async def test_stop_cuts_off_what_takes_too_long_and_merges_the_rest(world: Any, autojump_clock: Any) -> None:
    async def slow_third() -> None:
        await trio.sleep(1000.0 if world.calls["propose"] == 3 else 1.0)

    world.before_propose = slow_third
    options = world.options("rounds", rounds=50, n_workers=6, max_concurrency=3)
    async with Evolution(world.tasks, world.reward, **options) as run:
        await trio.sleep(0.5)
        stopped = trio.current_time()
        run.stop()
        result = await run.result()
    assert trio.current_time() - stopped == 5.0
    assert len(result.under_way) == 1
    assert result.outcomes() == {"committed": 2}
    assert result.rollouts == 3
    assert result.history[-1].committed == 1


@pytest.mark.trio
async def test_pause_lets_a_lease_end_and_begins_none(world: Any, autojump_clock: Any) -> None:
    world.before_propose = partial(trio.sleep, 1.0)
    options = world.options("rounds", rounds=2, n_workers=6, max_concurrency=1)
    async with Evolution(world.tasks, world.reward, **options) as run:
        await trio.sleep(1.5)
        run.pause()
        await trio.sleep(100.0)
        assert world.calls["propose"] == 2
        assert run.status().phase == "paused"
        run.resume()
        await wait_all_tasks_blocked()
        assert world.calls["propose"] == 3
        result = await run.result()
    assert result.rollouts == 12


@pytest.mark.trio
async def test_stop_of_a_paused_run_ends_it(world: Any, autojump_clock: Any) -> None:
    world.before_propose = partial(trio.sleep, 1.0)
    options = world.options("rounds", rounds=2, n_workers=6, max_concurrency=1)
    async with Evolution(world.tasks, world.reward, **options) as run:
        await trio.sleep(1.5)
        run.pause()
        await trio.sleep(100.0)
        run.stop()
        result = await run.result()
    assert (result.stop_reason, result.rollouts) == ("stopped", 2)


@pytest.mark.trio
@pytest.mark.parametrize("max_concurrency", [1, 2, 6])
async def test_round_that_takes_too_long_goes_on_with_what_it_has(
    world: Any, autojump_clock: Any, max_concurrency: int
) -> None:
    async def slow_at_times() -> None:
        await trio.sleep(100.0 if world.calls["propose"] % 4 == 3 else 1.0)

    world.before_propose = slow_at_times
    options = world.options(
        "rounds", rounds=3, n_workers=6, max_concurrency=max_concurrency, round_timeout=3.5, on_event=world.watch
    )
    async with Evolution(world.tasks, world.reward, **options) as run:
        result = await run.result()
        assert run._engine is not None
        assert run._engine.wiring.account._reserved == 0
    assert result.stop_reason == "rounds"
    assert result.rollouts == result.calls_by_purpose["rollout"] == 18
    assert result.counters["rollouts_cut_by_round_timeout"] >= 1
    assert result.under_way == ()
    assert result.version > 1


@pytest.mark.trio
async def test_leases_that_a_round_shed_are_made_up_for(world: Any, autojump_clock: Any) -> None:
    """Rounds that are cut short are more rounds, and not fewer rollouts."""
    world.before_propose = partial(trio.sleep, 1.0)
    result = await world.evolve("rounds", rounds=2, n_workers=4, max_concurrency=1, round_timeout=1.5)
    assert result.rollouts == 8
    assert len(result.history) > 2


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_what_one_merge_cannot_hold_is_merged_in_the_next_and_at_the_latest_at_the_end(
    world: Any, autojump_clock: Any, schedule: str
) -> None:
    async def propose(rendered: str, task: Any, output: object, score: object) -> list[str]:
        world.calls["propose"] += 1
        number = world.calls["propose"]
        return [task.prompt, *(f"filler {number}.{part}" for part in range(5))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "propose", propose)
        result = await world.evolve(
            schedule, rounds=1, n_workers=30, policies=Policies(fusion=UnionFusion(tournament=True))
        )
    assert result.rollouts == sum(result.outcomes().values()) == 30
    assert "unmeasured" not in result.outcomes()
    assert len(result.history) > 1
    assert sum(row.considered for row in result.history) == 30
    assert [row.index for row in result.history] == list(range(len(result.history)))
    assert sum(result.fusion_stats().values()) >= 1


@pytest.mark.anyio
@pytest.mark.parametrize("ending", [{"rounds": 1}, {"patience": 2}])
async def test_rounds_too_short_to_begin_come_to_an_end_all_the_same(
    world: Any, anyio_backend: Any, ending: dict[str, int]
) -> None:
    with anyio.fail_after(20):
        result = await world.evolve("rounds", round_timeout=1e-9, n_workers=2, **ending)
    assert result.stop_reason in ("rounds", "patience")
    assert len(result.history) <= 4

"""What a run may spend is never overspent, and what ends a run means the same in both schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adescent.budget import Budget
from adescent.errors import ContractError, Transient
from adescent.evolution import Evolution
from adescent.policies import Policies
from adescent.runtime.control import STOP_GRACE
from adescent.runtime.result import EvolutionResult

BOUND = 60.0


def made(world: Any) -> int:
    """The calls that a budget counts, as the actors saw them."""
    return int(world.calls["run"] + world.calls["propose"] + world.calls["oracle"])


async def run(world: Any, schedule: str, **options: Any) -> EvolutionResult:
    with anyio.fail_after(BOUND):
        result: EvolutionResult = await world.evolve(schedule, **options)
    return result


@pytest.fixture(autouse=True, scope="module")
def no_waiting_between_tries() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adescent.runtime.dispatch.FIRST_BACKOFF", 0.0)
        yield


# Calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("n_workers", [1, 4, 10])
async def test_a_budget_that_ends_inside_a_batch_is_kept(
    new_world: Any, schedule: str, n_workers: int, anyio_backend: Any
) -> None:
    world = new_world(tasks=10)
    result = await run(world, schedule, n_workers=n_workers, budget=Budget(calls=25))
    assert made(world) == result.calls <= 25
    assert result.stop_reason == "budget:calls"
    assert result.rollouts > 0
    assert result.final_reward is not None


@pytest.mark.anyio
@settings(max_examples=40)
@given(
    calls=st.integers(20, 160),
    schedule=st.sampled_from(["rounds", "stream"]),
    n_workers=st.integers(1, 12),
    evaluations=st.sampled_from([1, 3, 8]),
    repeats=st.integers(1, 2),
    noise=st.sampled_from(["auto", "yes", "no"]),
    verify=st.booleans(),
    audited=st.booleans(),
    troubled=st.sampled_from([0, 0, 5, 3]),
    stubborn=st.booleans(),
    test_frac=st.sampled_from([0.0, 0.2]),
)
async def test_no_mix_of_purposes_overspends(
    anyio_backend: Any,
    new_world: Any,
    calls: int,
    schedule: str,
    n_workers: int,
    evaluations: int,
    repeats: int,
    noise: str,
    verify: bool,
    audited: bool,
    troubled: int,
    stubborn: bool,
    test_frac: float,
) -> None:
    world = new_world(tasks=10)

    async def now_and_then() -> None:
        await anyio.lowlevel.checkpoint()
        if troubled and made(world) % troubled == 0:
            raise Transient

    async def oracle(task: Any, output: Any) -> float:
        world.calls["oracle"] += 1
        return float(output is True)

    world.before_run = world.before_propose = now_and_then
    options: dict[str, Any] = {"oracle": oracle, "blast_radius": 0.5} if audited else {}
    if stubborn:
        options["policies"] = Policies(proposal=AsksThrice())
    options |= {
        "budget": Budget(calls=calls),
        "n_workers": n_workers,
        "eval_concurrency": evaluations,
        "eval_repeats": repeats,
        "noise": "auto" if noise == "no" and repeats > 1 else noise,  # the two contradict each other
        "self_verify": verify,
        "test_frac": test_frac,
    }
    reported = 4 * repeats * 2 + 2 * repeats * (test_frac > 0) + 4 * (noise == "auto" and repeats == 1)
    if calls < reported:
        with pytest.raises(ContractError, match="does not cover what every run measures"):
            await run(world, schedule, **options)
        assert made(world) == 0
        return
    result = await run(world, schedule, **options)
    assert made(world) <= result.calls <= calls
    assert sum(result.calls_by_purpose.values()) == result.calls
    assert result.stop_reason in ("budget:calls", "error")


class AsksThrice:
    """A proposal policy for which every call of the proposer counts."""

    async def propose(self, context: Any, ask: Callable[[Any], Any]) -> Any:
        return [await ask(context) for _ in range(3)][-1]


@pytest.mark.anyio
async def test_every_call_of_the_proposer_is_paid(world: Any, schedule: str, anyio_backend: Any) -> None:
    result = await run(world, schedule, rounds=1, policies=Policies(proposal=AsksThrice()))
    assert world.calls["propose"] == result.calls_by_purpose["proposal"] == 3 * result.rollouts


class AsksNobody:
    async def propose(self, context: Any, ask: Callable[[Any], Any]) -> Any:
        return context.task.prompt


@pytest.mark.anyio
async def test_a_proposer_that_is_not_asked_costs_nothing(world: Any, schedule: str, anyio_backend: Any) -> None:
    result = await run(world, schedule, policies=Policies(proposal=AsksNobody()))
    assert world.calls["propose"] == 0
    assert "proposal" not in result.calls_by_purpose
    assert result.version > 1


@pytest.mark.anyio
async def test_calls_are_metered_by_purpose(world: Any, schedule: str, anyio_backend: Any) -> None:
    result = await run(world, schedule, self_verify=True, test_frac=0.2, oracle=world.reward, blast_radius=0.5)
    by = result.calls_by_purpose
    assert by["seed"] == by["final"] == 12
    assert by["noise"] == 8
    assert by["test"] == 6
    assert by["rollout"] == result.rollouts == 12
    assert by["proposal"] == world.calls["propose"]
    assert min(by[purpose] for purpose in ("self-verify", "gate", "rule", "audit")) > 0
    # An oracle's scoring is two calls, and here the reward plays it: of them, run sees one.
    assert sum(by.values()) - by["audit"] // 2 == made(world)


@pytest.mark.anyio
async def test_what_cannot_be_measured_ends_and_the_rest_is_reported(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    """A budget that leaves a few leases and no gate."""
    result = await run(world, schedule, budget=Budget(calls=12 + 8 + 12 + 13))
    assert result.stop_reason == "budget:calls"
    assert made(world) == result.calls
    assert result.final_reward == 0.0


# Rollouts -------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@settings(max_examples=25)
@given(rollouts=st.integers(1, 40), n_workers=st.integers(1, 12), schedule=st.sampled_from(["rounds", "stream"]))
async def test_a_budget_of_rollouts_is_used_up_and_kept(
    anyio_backend: Any, new_world: Any, rollouts: int, n_workers: int, schedule: str
) -> None:
    world = new_world()
    result = await run(world, schedule, budget=Budget(rollouts=rollouts), n_workers=n_workers)
    assert result.rollouts == result.calls_by_purpose["rollout"] == rollouts
    assert result.stop_reason == "budget:rollouts"


@pytest.mark.anyio
@pytest.mark.parametrize(("rounds", "n_workers"), [(1, 1), (3, 4), (2, 9), (5, 40)])
async def test_rounds_are_as_many_rollouts_a_worker_in_both_schedules(
    world: Any, schedule: str, rounds: int, n_workers: int, anyio_backend: Any
) -> None:
    result = await run(world, schedule, rounds=rounds, n_workers=n_workers)
    assert (result.rollouts, result.stop_reason) == (rounds * n_workers, "rounds")


@pytest.mark.anyio
async def test_fifteen_rounds_where_nothing_else_ends_a_run(world: Any, schedule: str, anyio_backend: Any) -> None:
    result = await run(world, schedule, rounds=None, n_workers=3)
    assert (result.rollouts, result.stop_reason) == (45, "rounds")


# Other ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("n_workers", [1, 4, 8])
async def test_patience_counts_rollouts_without_a_commit(
    world: Any, schedule: str, n_workers: int, anyio_backend: Any
) -> None:
    async def never(*_: Any) -> None:
        world.calls["propose"] += 1

    result = await run(world, schedule, patience=3, n_workers=n_workers, propose=never)
    assert result.stop_reason == "patience"
    beyond = 0 if schedule == "rounds" else n_workers - 1  # those that others had begun meanwhile
    assert 3 * n_workers <= result.rollouts <= 3 * n_workers + beyond


@pytest.mark.anyio
async def test_patience_counts_from_the_last_commit(world: Any, schedule: str, anyio_backend: Any) -> None:
    result = await run(world, schedule, patience=2, n_workers=4)
    assert result.stop_reason == "patience"
    assert result.final_reward == 1.0, "commits made it start again"
    if schedule == "rounds":
        last = max(row.rollouts for row in result.history if row.committed)
        assert result.rollouts == last + 8


@pytest.mark.anyio
async def test_refused_cards_use_up_patience(world: Any, schedule: str, anyio_backend: Any) -> None:
    async def useless(*_: Any) -> str:
        world.calls["propose"] += 1
        return f"nothing-{world.calls['propose']}"

    result = await run(world, schedule, patience=2, n_workers=4, propose=useless)
    assert result.stop_reason == "patience"
    assert result.version == 1
    assert 8 <= result.rollouts <= 8 + (0 if schedule == "rounds" else 4 * 3)  # cards under way are within the credits


@pytest.mark.anyio
async def test_a_target_ends_the_run_at_the_commit_that_reaches_it(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    result = await run(world, schedule, target_reward=0.6, patience=50)
    assert result.stop_reason == "target_reward"
    reached = next(row for row in result.history if (row.held_out_reward or 0.0) >= 0.6)
    assert result.rollouts == reached.rollouts, "no lease was begun after it"
    assert (result.final_reward or 0.0) >= 0.6


@pytest.mark.anyio
async def test_a_head_that_is_good_enough_needs_no_rollout(world: Any, schedule: str, anyio_backend: Any) -> None:
    lessons = "\n".join(f"- lesson-{number}" for number in range(6))
    result = await run(world, schedule, initial_state=lessons, target_reward=0.9, patience=5)
    assert (result.stop_reason, result.rollouts, result.seed_reward) == ("target_reward", 0, 1.0)


@pytest.mark.anyio
async def test_an_artifact_that_solves_everything_still_ends(world: Any, schedule: str, anyio_backend: Any) -> None:
    """Nothing is proposed, so there is nothing to merge, and patience is all that ends the run."""
    lessons = "\n".join(f"- lesson-{number}" for number in range(6))
    result = await run(world, schedule, initial_state=lessons, patience=3)
    assert result.stop_reason == "patience"
    assert world.calls["propose"] == 0


# Time -----------------------------------------------------------------------------------------------------------------


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_seconds_end_a_run_and_what_was_under_way_is_listed(
    schedule: str, new_world: Any, autojump_clock: Any
) -> None:
    world = new_world()

    async def a_second() -> None:
        await anyio.sleep(1.0)

    world.before_run = a_second
    started = anyio.current_time()
    result = await run_on_this_clock(world, schedule, budget=Budget(seconds=10.5), eval_concurrency=4)
    assert result.stop_reason == "budget:seconds"
    assert result.rollouts > 0
    assert len(result.under_way) <= 4
    # Three more for the final measurement of twelve tasks, four at a time.
    assert anyio.current_time() - started == pytest.approx(10.5 + 3.0)
    assert result.final_reward is not None


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_seconds_that_do_not_last_for_the_first_measurement(
    schedule: str, new_world: Any, autojump_clock: Any
) -> None:
    world = new_world()

    async def a_minute() -> None:
        await anyio.sleep(60.0)

    world.before_run = a_minute
    result = await run_on_this_clock(world, schedule, budget=Budget(seconds=90.0))
    assert (result.stop_reason, result.error, result.rollouts) == ("budget:seconds", "", 0)
    assert result.seed_reward is None
    assert result.final_reward == 0.0
    assert result.history == ()


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_time_passes_while_a_run_is_paused(schedule: str, new_world: Any, autojump_clock: Any) -> None:
    world = new_world()
    options = world.options(schedule, budget=Budget(seconds=100.0))
    with anyio.fail_after(1000):
        async with Evolution(world.tasks, world.reward, **options) as run:
            run.pause()
            started = anyio.current_time()
            result = await run.result()
    assert anyio.current_time() - started == pytest.approx(100.0)
    assert (result.stop_reason, result.rollouts) == ("budget:seconds", 0)


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_what_has_been_paid_for_is_not_cut_off_when_leases_run_out(
    schedule: str, new_world: Any, autojump_clock: Any
) -> None:
    """One worker comes to the end of the leases long before the others have done theirs."""
    world = new_world()
    waits = iter(range(100))

    async def ever_longer() -> None:
        if world.calls["run"] > 20:  # the first measurements are over
            await anyio.sleep(30.0 * next(waits))

    world.before_run = ever_longer
    for budget in (Budget(rollouts=4), Budget(calls=100)):
        world.calls.clear()
        result = await run_on_this_clock(world, schedule, budget=budget, noise="auto")
        assert result.under_way == ()
        assert sum(result.outcomes().values()) > 0
        assert result.outcomes().get("unmeasured", 0) == 0


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_a_stop_cuts_off_what_outlives_its_grace(schedule: str, new_world: Any, autojump_clock: Any) -> None:
    world = new_world()

    async def one_in_four_for_long() -> None:
        if world.calls["run"] > 20:  # the first measurements are over
            await anyio.sleep(3600.0 if world.calls["run"] % 4 == 0 else 1.0)

    async def never(*_: Any) -> None:
        """Without cards there is no merge, and all that hangs are rollouts."""

    world.before_run = one_in_four_for_long
    options = world.options(schedule, rounds=100, propose=never)
    with anyio.fail_after(3000):
        async with Evolution(world.tasks, world.reward, **options) as run:
            await anyio.sleep(2.5)
            run.stop()
            stopped = anyio.current_time()
            world.before_run = anyio.lowlevel.checkpoint
            result = await run.result()
    assert anyio.current_time() - stopped == pytest.approx(STOP_GRACE)
    assert result.stop_reason == "stopped"
    assert len(result.under_way) >= 1
    assert result.final_reward is not None


@pytest.mark.trio
async def test_a_round_timeout_leaves_the_slow_ones_behind(new_world: Any, autojump_clock: Any) -> None:
    world = new_world()

    async def the_fourth_hangs() -> None:
        if world.calls["run"] > 20 and world.calls["run"] % 4 == 0:
            await anyio.sleep(3600.0)

    world.before_run = the_fourth_hangs
    with anyio.fail_after(7200):
        result = await world.evolve("rounds", rounds=3, round_timeout=10.0, rollout_timeout=60.0, noise="auto")
    assert result.counters["rollouts_cut_by_round_timeout"] > 0
    assert result.under_way == (), "the run went on without them"
    assert result.rollouts == 12


@pytest.mark.trio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_one_evaluation_that_hangs_is_one_that_failed(schedule: str, new_world: Any, autojump_clock: Any) -> None:
    world = new_world()
    hung: list[str] = []

    async def run_once_for_ever(rendered: str, task: Any) -> bool:
        world.calls["run"] += 1
        await anyio.sleep(0.1)
        if "lesson-3" in rendered and not hung:
            hung.append(task.id)
            await anyio.sleep_forever()
        return task.prompt in rendered.split()

    with anyio.fail_after(1e6):
        result = await world.evolve(schedule, rounds=10, run=run_once_for_ever, rollout_timeout=300.0)
    assert len(hung) == 1
    assert result.counters["rollouts_timed_out"] == 1
    assert (result.stop_reason, result.error, result.rollouts) == ("rounds", "", 40)
    assert result.final_reward == 1.0


async def run_on_this_clock(world: Any, schedule: str, **options: Any) -> EvolutionResult:
    with anyio.fail_after(100_000):
        result: EvolutionResult = await world.evolve(schedule, **options)
    return result

"""The handle of a run, and what both doors promise a host."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError, RunCancelled, WrongThread
from adescent.evolution import Evolution, async_evolve
from adescent.runtime.reporting import RunStatus
from adescent.telemetry import ArtifactPromoted, CardIngested, RoundFinished, RunFinished, RunStarted
from adescent.telemetry import hub as telemetry_hub

pytestmark = pytest.mark.anyio

BOUND = 20.0
LESSONS = 5


class Gate:
    """Actors that teach one word a task, and wait where a test closes a door."""

    def __init__(self) -> None:
        self.run_open = anyio.Event()
        self.run_open.set()
        self.calls = 0
        self.at_door = anyio.Event()
        self.scores: Callable[[bool], Any] = float

    def close(self) -> None:
        self.run_open = anyio.Event()
        self.at_door = anyio.Event()

    async def run(self, rendered: str, task: Any) -> bool:
        self.calls += 1
        await checkpoint()
        if not self.run_open.is_set():
            self.at_door.set()
            await self.run_open.wait()
        return task.prompt in rendered

    async def reward(self, task: Any, output: Any) -> Any:
        return self.scores(output)

    async def propose(self, rendered: str, task: Any, output: Any, score: Any) -> str:
        await checkpoint()
        return f"know {task.prompt}"

    def evolution(self, **options: Any) -> Evolution:
        return Evolution(TASKS, self.reward, run=self.run, propose=self.propose, **{"rounds": 4, **options})


TASKS = [{"id": f"t{at}", "prompt": f"lesson-{at % LESSONS}"} for at in range(20)]
ENDLESS: Any = {"rounds": 1_000_000}


@pytest.fixture
def actors() -> Gate:
    return Gate()


@pytest.fixture(params=["rounds", "stream"])
def schedule(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def until(run: Evolution, wanted: Callable[[RunStatus], bool]) -> None:
    """Let the run go on until its status is what a test waits for."""
    with anyio.fail_after(BOUND):
        while not wanted(run.status()):
            await checkpoint()


# Events ---------------------------------------------------------------------------------------------------------------


async def test_every_subscriber_sees_everything_from_the_start_to_the_end(
    actors: Gate, schedule: str, anyio_backend: Any
) -> None:
    seen: list[list[Any]] = [[], []]

    async def watch(run: Evolution, events: list[Any]) -> None:
        async with run.events() as stream:
            async for event in stream:
                events.append(event)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as watchers, actors.evolution(schedule=schedule) as run:
            for events in seen:
                watchers.start_soon(watch, run, events)
            result = await run.result()
    assert seen[0] == seen[1]
    first, last = seen[0][0], seen[0][-1]
    assert isinstance(first, RunStarted)
    assert (first.schedule, first.seed_reward, first.tasks) == (schedule, 0.0, {"train": 12, "held_out": 8, "test": 0})
    assert isinstance(last, RunFinished)
    assert (last.stop_reason, last.error, last.final_reward) == (result.stop_reason, "", result.final_reward)
    ingested = [event for event in seen[0] if isinstance(event, CardIngested)]
    assert len(ingested) == sum(result.outcomes().values()) > 0
    rows = [event.index for event in seen[0] if isinstance(event, RoundFinished)]
    assert rows == [row.index for row in result.history]
    assert [event.elapsed for event in seen[0]] == sorted(event.elapsed for event in seen[0])


async def test_a_version_becomes_stable_once(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule) as run, run.events() as events:
            result = await run.result()
            promoted = [event.version async for event in events if isinstance(event, ArtifactPromoted)]
    assert promoted == sorted(set(promoted))
    assert promoted[-1:] == [result.stable_version] == [result.version]
    assert result.stable_reward == result.final_reward is not None


async def test_who_does_not_read_loses_events_and_holds_nobody_up(
    actors: Gate, schedule: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    monkeypatch.setattr(telemetry_hub.EventHub.__init__, "__defaults__", (3,))
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule) as run, run.events() as asleep, run.events() as awake:
            seen = [event async for event in awake]
            result = await run.result()
            kept = [event async for event in asleep]
    assert len(kept) == 3
    assert len(seen) > 3
    assert result.counters["events_dropped"] >= len(seen) - 4


async def test_a_subscriber_that_leaves_is_forgotten(actors: Gate, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution() as run:
            async with run.events() as events:
                assert isinstance(await events.receive(), RunStarted)
            result = await run.result()
            async with run.events() as late:
                assert [event async for event in late] == []
    assert "events_dropped" not in result.counters


# Steering -------------------------------------------------------------------------------------------------------------


async def test_a_paused_run_begins_nothing_until_it_is_resumed(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    async with actors.evolution(schedule=schedule, **ENDLESS, n_workers=2) as run:
        await until(run, lambda status: status.rollouts > 4)
        for _ in range(2):
            run.pause()
        assert run.status().phase == "paused"
        await anyio.wait_all_tasks_blocked()
        calls, rollouts = actors.calls, run.status().rollouts
        assert not run.status().under_way
        await anyio.wait_all_tasks_blocked()
        assert (actors.calls, run.status().rollouts) == (calls, rollouts)
        for _ in range(2):
            run.resume()
        assert run.status().phase == "running"
        await until(run, lambda status: status.rollouts > rollouts + 4)


async def test_a_paused_run_can_be_stopped(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule, **ENDLESS) as run:
            await until(run, lambda status: status.rollouts > 4)
            run.pause()
            await anyio.wait_all_tasks_blocked()
            run.stop()
            run.pause()
            assert (await run.result()).stop_reason == "stopped"


async def test_a_stop_merges_measures_and_reports(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule, **ENDLESS, test_frac=0.2) as run:
            await until(run, lambda status: status.version > 1)
            for _ in range(3):
                run.stop()
            assert run.status().phase == "stopping"
            result = await run.result()
            run.stop()
    assert (result.stop_reason, result.error) == ("stopped", "")
    assert result.final_reward is not None
    assert result.test_reward is not None
    assert result.stable_version == result.version > 1


async def test_a_stop_during_the_first_measurement_needs_no_rollout(
    actors: Gate, schedule: str, anyio_backend: Any
) -> None:
    actors.close()
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule, **ENDLESS) as run:
            await actors.at_door.wait()
            assert run.status().phase == "starting"
            run.stop()
            actors.run_open.set()
            result = await run.result()
    assert (result.stop_reason, result.rollouts) == ("stopped", 0)
    assert result.seed_reward == result.final_reward == 0.0


async def test_phases_in_their_order(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    phases: list[str] = []

    def note(run: Evolution) -> None:
        if phases[-1:] != [run.status().phase]:
            phases.append(run.status().phase)

    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule, **ENDLESS) as run:
            note(run)
            async with run.events() as events:
                async for event in events:
                    note(run)
                    if isinstance(event, RoundFinished) and len(phases) == 2:
                        run.pause()
                        note(run)
                        run.resume()
                        note(run)
                        run.stop()
            await run.result()
            note(run)
    assert phases == ["starting", "running", "paused", "running", "stopping", "ended"]
    assert run.status().phase == "ended"


async def test_status_says_what_is_under_way(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule, **ENDLESS, n_workers=3) as run:
            await until(run, lambda status: status.rollouts >= 3)
            actors.close()
            await actors.at_door.wait()
            await anyio.wait_all_tasks_blocked()
            status = run.status()
            actors.run_open.set()
    assert set(status.under_way.values()) <= {task["id"] for task in TASKS}
    assert 1 <= len(status.under_way) <= 3
    assert status.rollouts > 0 < status.calls
    assert status.held_out_reward is not None
    assert status.elapsed > 0


# Results --------------------------------------------------------------------------------------------------------------


async def test_any_number_may_wait_for_the_result(actors: Gate, anyio_backend: Any) -> None:
    results = []

    async def wait(run: Evolution) -> None:
        results.append(await run.result())

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as waiters, actors.evolution() as run:
            for _ in range(5):
                waiters.start_soon(wait, run)
            results.append(await run.result())
    results.append(await run.result())
    assert len(results) == 7
    assert all(result is results[0] for result in results)


async def test_leaving_is_a_graceful_stop(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule, **ENDLESS) as run:
            await until(run, lambda status: status.rollouts > 4)
        result = await run.result()
    assert (result.stop_reason, result.error) == ("stopped", "")
    assert result.final_reward is not None


async def test_leaving_does_not_wait_for_ever(
    actors: Gate, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    monkeypatch.setattr("adescent.evolution.LEAVING_GRACE", 0.05)
    actors.close()
    with anyio.fail_after(BOUND):
        async with actors.evolution() as run:
            await actors.at_door.wait()
        assert run.status().phase == "ended"
        with pytest.raises(RunCancelled):
            await run.result()


async def test_an_exception_in_the_block_cancels_and_comes_out_bare(
    actors: Gate, schedule: str, anyio_backend: Any
) -> None:
    waiting: list[BaseException] = []

    async def wait(run: Evolution) -> None:
        try:
            await run.result()
        except RunCancelled as error:
            waiting.append(error)

    actors.close()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as waiters:
            with pytest.raises(KeyError, match="mine"):
                async with actors.evolution(schedule=schedule) as run:
                    waiters.start_soon(wait, run)
                    await actors.at_door.wait()
                    raise KeyError("mine")
    assert len(waiting) == 1
    assert run.status().phase == "ended"


async def test_a_cancelled_block_cancels_the_run(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    actors.close()
    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:
            async with actors.evolution(schedule=schedule) as run:
                await actors.at_door.wait()
                scope.cancel()
                await run.result()
        assert scope.cancelled_caught
        with pytest.raises(RunCancelled):
            await run.result()


async def test_a_cancelled_run_lists_what_was_under_way(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        with pytest.raises(KeyError):
            async with actors.evolution(schedule=schedule, **ENDLESS, n_workers=3) as run, run.events() as events:
                await until(run, lambda status: status.rollouts >= 3)
                actors.close()
                await actors.at_door.wait()
                await anyio.wait_all_tasks_blocked()
                while events.statistics().current_buffer_used:
                    await events.receive()
                under_way = run.status().under_way
                told = events.clone()
                raise KeyError
        with told:
            last = [event async for event in told][-1]
    assert isinstance(last, RunFinished)
    assert last.stop_reason == "cancelled"
    assert under_way
    assert set(last.under_way) == set(run.status().under_way) == set(under_way)


async def test_an_error_of_the_run_is_raised_to_who_waits(actors: Gate, schedule: str, anyio_backend: Any) -> None:
    actors.scores = lambda output: "void"
    with anyio.fail_after(BOUND):
        async with actors.evolution(schedule=schedule) as run:
            with pytest.raises(ContractError, match="no valid score"):
                await run.result()
            assert run.status().phase == "ended"


async def test_an_error_of_the_run_that_nobody_waited_for_is_raised_on_leaving(
    actors: Gate, schedule: str, anyio_backend: Any
) -> None:
    actors.scores = lambda output: "void"
    with anyio.fail_after(BOUND):
        with pytest.raises(ContractError, match="no valid score"):
            async with actors.evolution(schedule=schedule) as run, run.events() as events:
                last = [event async for event in events][-1]
    assert isinstance(last, RunFinished)
    assert last.stop_reason == "error"
    assert "no valid score" in last.error


async def test_giving_up_on_the_result_does_not_hide_an_error(actors: Gate, anyio_backend: Any) -> None:
    actors.close()
    actors.scores = lambda output: "void"
    with anyio.fail_after(BOUND):
        with pytest.raises(ContractError, match="no valid score"):
            async with actors.evolution() as run:
                with anyio.move_on_after(0.01):
                    await run.result()
                actors.run_open.set()
                await until(run, lambda status: status.phase == "ended")


# Use and misuse -------------------------------------------------------------------------------------------------------

METHODS: dict[str, Callable[[Evolution], Any]] = {
    "events": lambda run: run.events(),
    "pause": lambda run: run.pause(),
    "resume": lambda run: run.resume(),
    "stop": lambda run: run.stop(),
    "status": lambda run: run.status(),
}


@pytest.mark.parametrize("method", METHODS)
async def test_before_its_block_a_handle_is_of_no_use(method: str, actors: Gate, anyio_backend: Any) -> None:
    run = actors.evolution()
    with pytest.raises(ContractError, match=rf"{method}\(\) is for inside its block"):
        METHODS[method](run)
    with pytest.raises(ContractError, match=r"result\(\) is for inside its block"):
        await run.result()
    assert actors.calls == 0


@pytest.mark.parametrize("method", METHODS)
async def test_another_thread_has_no_business_with_a_handle(method: str, actors: Gate, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(**ENDLESS) as run:
            with pytest.raises(WrongThread, match=rf"Evolution\.{method}.*from_thread"):
                await anyio.to_thread.run_sync(METHODS[method], run)
            if method == "status":
                status = await anyio.to_thread.run_sync(anyio.from_thread.run_sync, run.status)
                assert status.phase in ("starting", "running")


async def test_a_handle_is_one_run(actors: Gate, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with actors.evolution(rounds=1) as run:
            with pytest.raises(RuntimeError, match="already been entered"):
                async with run:
                    pass
            await run.result()
        calls = actors.calls
        with pytest.raises(ContractError, match="one run"):
            async with run:
                pass
    assert actors.calls == calls


async def test_bad_actors_are_refused_on_entering(actors: Gate, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        with pytest.raises(ContractError, match="run is"):
            async with Evolution(TASKS, actors.reward, run=lambda rendered: "", propose=actors.propose):
                raise AssertionError("the block must not be entered")
    assert actors.calls == 0


async def test_a_run_leaves_the_thread_it_was_made_in_alone(actors: Gate, anyio_backend: Any) -> None:
    """A handle may be made anywhere; it belongs to the thread that enters it."""
    made: list[Evolution] = []
    maker = threading.Thread(target=lambda: made.append(actors.evolution(rounds=1)))
    maker.start()
    await anyio.to_thread.run_sync(maker.join)
    with anyio.fail_after(BOUND):
        async with made[0] as run:
            assert (await run.result()).stop_reason == "rounds"


async def test_the_handle_and_the_door_do_the_same(actors: Gate, anyio_backend: Any) -> None:
    options: Any = {"run": actors.run, "propose": actors.propose, "rounds": 3, "schedule": "rounds", "seed": 7}
    with anyio.fail_after(BOUND):
        awaited = await async_evolve(TASKS, actors.reward, **options)
        async with Evolution(TASKS, actors.reward, **options) as run:
            handled = await run.result()
    assert [commit.tree for commit in handled.log] == [commit.tree for commit in awaited.log]
    assert handled.outcomes() == awaited.outcomes()

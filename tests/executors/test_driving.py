"""Driving an executor by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import LoopRunning, OptionError
from adescent.executors import InlineExecutor, ThreadExecutor, collect_rollouts, map_rollouts, run_rollouts
from adescent.policies import Actors, Executor
from adescent.tasks import Task
from adescent.workspec import RolloutSpec

BOUND = 10.0
TASK = Task("t1", "?")


def specs(count: int) -> list[RolloutSpec]:
    return [RolloutSpec(str(number), TASK, lease_id=str(number)) for number in range(count)]


def endless() -> Iterator[RolloutSpec]:
    while True:
        yield RolloutSpec("again", TASK)


async def echo(rendered: str, task: Task) -> str:
    return rendered


async def full(task: Task, output: object) -> float:
    return 1.0


def test_a_script_gets_results_in_the_order_of_its_specs(
    fresh: Callable[..., Executor], actors: Callable[..., Actors]
) -> None:
    executor = fresh(actors=actors("echo"))
    for _ in range(2):  # closed and opened again
        results = run_rollouts(specs(20), executor)
        assert [result.output for result in results] == [f"{number}:t1" for number in range(20)]


@pytest.mark.anyio
async def test_inside_a_loop_the_script_form_says_what_to_await() -> None:
    with pytest.raises(LoopRunning, match=r"await collect_rollouts\(executor, specs\)"):
        run_rollouts(specs(1), InlineExecutor())


@pytest.mark.anyio
async def test_results_come_in_the_order_in_which_they_complete() -> None:
    done = [anyio.Event() for _ in range(4)]

    async def run(rendered: str, task: Task) -> str:
        if int(rendered) + 1 < len(done):
            await done[int(rendered) + 1].wait()
        return rendered

    came: list[str] = []
    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(run, full)) as executor, map_rollouts(executor, specs(4)) as results:
            async for result in results:
                came.append(result.output)
                done[int(result.output)].set()
    assert came == ["3", "2", "1", "0"]


@pytest.mark.anyio
@pytest.mark.parametrize(("concurrency", "expected"), [(1, 1), (5, 5), (None, 64)])
async def test_as_many_are_under_way_as_asked_for(concurrency: int | None, expected: int) -> None:
    under_way = most = 0
    full_house = anyio.Event()

    async def run(rendered: str, task: Task) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == expected:
            full_house.set()
        await full_house.wait()
        under_way -= 1

    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(run, full)) as executor:
            assert len(await collect_rollouts(executor, specs(100), concurrency=concurrency)) == 100
    assert most == expected


@pytest.mark.anyio
async def test_the_slots_of_an_executor_are_its_concurrency() -> None:
    under_way = most = 0

    async def run(rendered: str, task: Task) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(3):
            await checkpoint()
        under_way -= 1

    with anyio.fail_after(BOUND):
        async with ThreadExecutor(3, actors=Actors(run, full)) as executor:
            await collect_rollouts(executor, specs(30))
    assert most == 3


@pytest.mark.anyio
@pytest.mark.parametrize("concurrency", [1, 64])
async def test_actors_that_never_suspend_leave_the_loop_to_others(concurrency: int) -> None:
    """In a pass of the loop there are rollouts for 2 ms, and one more for each under way; trio shuffles the turns."""
    turns = rollouts = most = 0

    async def busy(rendered: str, task: Task) -> None:
        nonlocal rollouts, most
        until = perf_counter() + 0.0002
        while perf_counter() < until:
            pass
        rollouts += 1
        most = max(most, rollouts)

    async def tick() -> None:
        nonlocal turns, rollouts
        while True:
            await checkpoint()
            turns, rollouts = turns + 1, 0

    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(busy, full)) as executor, anyio.create_task_group() as group:
            group.start_soon(tick)
            await collect_rollouts(executor, specs(1500), concurrency=concurrency)
            group.cancel_scope.cancel()
    assert most <= 2 * (concurrency + 11)
    assert turns >= 10


@pytest.mark.anyio
async def test_leaving_early_cancels_the_rest_of_an_endless_stream() -> None:
    read = 0

    def counted() -> Iterator[RolloutSpec]:
        nonlocal read
        for spec in endless():
            read += 1
            yield spec

    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(echo, full)) as executor:
            async with map_rollouts(executor, counted(), concurrency=4) as results:
                for _ in range(10):
                    await results.receive()
            left_at = read
            for _ in range(10):
                await checkpoint()
    assert read == left_at <= 10 + 4 + 4 + 4  # taken, buffered, waiting to be buffered, under way


@pytest.mark.anyio
async def test_closing_the_stream_ends_the_work_and_the_block_goes_on() -> None:
    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(echo, full)) as executor:
            async with map_rollouts(executor, endless()) as results:
                await results.receive()
                results.close()
                for _ in range(10):
                    await checkpoint()
            assert (await executor.rollout(specs(1)[0])).kind == "ok"


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [LookupError, anyio.BrokenResourceError])  # rows may come out of a stream, too
async def test_errors_of_the_block_and_of_the_specs_come_out_bare(kind: type[Exception]) -> None:
    def broken() -> Iterator[RolloutSpec]:
        yield from specs(3)
        raise kind("row 3 is unreadable")

    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(echo, full)) as executor:
            with pytest.raises(KeyError, match="mine"):
                async with map_rollouts(executor, specs(8)) as results:
                    await results.receive()
                    raise KeyError("mine")
            with pytest.raises(kind, match="row 3"):
                async with map_rollouts(executor, broken()) as results:
                    await anyio.sleep_forever()
            with pytest.raises(kind, match="row 3"):
                await collect_rollouts(executor, broken())


@pytest.mark.anyio
async def test_a_cancelled_block_is_cancelled() -> None:
    with anyio.fail_after(BOUND):
        async with InlineExecutor(Actors(echo, full)) as executor:
            with anyio.CancelScope() as scope:
                async with map_rollouts(executor, endless()) as results:
                    await results.receive()
                    scope.cancel()
                    await anyio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5])
def test_a_concurrency_that_means_nothing_is_refused(concurrency: int) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        run_rollouts(specs(1), InlineExecutor(Actors(echo, full)), concurrency=concurrency)


def test_who_runs_rollouts_in_this_process_loads_nothing_that_processes_need() -> None:
    script = (
        "import sys; from adescent.executors import InlineExecutor, ThreadExecutor, run_rollouts; "
        "assert not {'trio', 'asyncio', 'pygit2', 'cattrs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

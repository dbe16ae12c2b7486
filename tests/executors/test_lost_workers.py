"""Workers that are killed from outside, that hang, that die of one rollout or are only thought late: none is lost."""

from __future__ import annotations

import os
import random
import runpy
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_readable

from adescent.executors import ProcessExecutor, collect_rollouts
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("importable", "anyio_backend")]

BOUND = 60.0
KILLED = ("killed by SIGKILL",)


def ref(name: str, module: str = "process_actors") -> Ref:
    return Ref(f"{module}:{name}", call=False)


def actors(run: str | Ref) -> Actors:
    run = ref(run) if isinstance(run, str) else run
    return Actors(run, ref("full"), resolver=Resolver(("process_actors:", "faulty_actors:")))


def at(line: Any) -> RolloutSpec:
    """A rollout of `gate` that says when it has begun and ends when it is let through."""
    return RolloutSpec("", Task("t", line.path))


async def exit_of(pid: int) -> None:
    """Wait for a child of this process to end."""
    try:
        exit_ = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await wait_readable(exit_)
    finally:
        os.close(exit_)


async def both(view: ProcessExecutor, line: Any) -> list[int]:
    """Two rollouts at once: the numbers of the two workers."""
    pids: list[int] = []
    async with anyio.create_task_group() as rollouts:
        for _ in range(2):
            rollouts.start_soon(view.rollout, at(line))
        for _ in range(2):
            pids.append(await line.begun())
        line.go(2)
    assert len(set(pids)) == 2
    return pids


@pytest.mark.mainly("asyncio")
@pytest.mark.parametrize("victims", [1, 2])
async def test_idle_workers_may_be_killed(line: Any, victims: int) -> None:
    executor = ProcessExecutor(2)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("gate")) as view:
            for pid in (await both(view, line))[:victims]:
                os.kill(pid, signal.SIGKILL)
                await exit_of(pid)
            results = await collect_rollouts(view, [RolloutSpec("", Task("t", ""), run=ref("pid"))] * 20)
            await both(view, line)
    assert [result.kind for result in results] == ["ok"] * 20
    assert executor.counters()["workers_lost"] == victims
    assert executor.counters()["workers_started"] == 2 + victims


@pytest.mark.mainly("trio")
async def test_all_workers_may_be_killed_at_once_in_the_middle_of_their_work(line: Any) -> None:
    executor = ProcessExecutor(2)
    results: list[Result] = []
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("gate")) as view:

            async def work() -> None:
                results.extend(await collect_rollouts(view, [at(line)] * 20, concurrency=20))

            async with anyio.create_task_group() as group:
                group.start_soon(work)
                victims = [await line.begun(), await line.begun()]
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                for pid in victims:
                    await exit_of(pid)
                line.go(20)
    assert [result.kind for result in results] == ["ok"] * 20
    assert sorted(result.deaths for result in results) == [()] * 18 + [KILLED] * 2
    assert executor.counters()["redispatched"] == executor.counters()["workers_lost"] == 2


@pytest.mark.slow
async def test_all_else_is_done_though_one_worker_after_the_other_is_killed() -> None:
    executor = ProcessExecutor(2)
    brief = actors(ref("brief", "faulty_actors"))
    chance, alive, killed = random.Random(3), set[int](), set[int]()
    results: list[Result] = []
    specs = (RolloutSpec(str(number), Task("t", "")) for number in range(400))
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(brief) as view, view.map_rollouts(specs) as stream:
            async for result in stream:
                results.append(result)
                alive.add(result.output[1])
                # Rarely enough for what is tried again to be done meanwhile: three deaths would be the end of it.
                if len(results) in range(20, 320, 20) and (victims := sorted(alive - killed)):
                    killed.add(victim := chance.choice(victims))
                    os.kill(victim, signal.SIGKILL)
    assert {result.kind for result in results} == {"ok"}
    assert sorted(int(result.output[0]) for result in results) == list(range(400))
    assert executor.counters()["workers_lost"] == len(killed) > 10


@pytest.mark.mainly("asyncio")
async def test_two_that_hang_on_two_workers_do_not_keep_sixty_from_being_done(line: Any) -> None:
    executor = ProcessExecutor(2, hang_timeout=0.6)
    specs = [RolloutSpec("hang", Task("t", line.path)) for _ in range(2)] + [RolloutSpec("", Task("t", ""))] * 60
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("hanging")) as view:
            hung, *done = await collect_rollouts(view, specs, concurrency=62)
            results = [hung, *done]
    assert [result.kind for result in results] == ["infrastructure"] * 2 + ["ok"] * 60
    assert [result.deaths for result in results[:2]] == [("not a word within 0.6 s",) * 3] * 2
    assert executor.counters()["workers_lost"] == 6


@pytest.mark.mainly("trio")
async def test_of_those_that_shared_a_worker_with_a_poisoned_one_only_that_is_given_up(line: Any) -> None:
    executor = ProcessExecutor(2, in_flight_per_worker=4)
    results: dict[str, Result] = {}

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("gate_async")) as view, anyio.create_task_group() as rollouts:

            async def roll_out(name: str, run: Ref | None = None) -> None:
                results[name] = await view.rollout(RolloutSpec("", Task(name, line.path), run))

            for number in range(7):
                rollouts.start_soon(roll_out, f"innocent {number}")
            for _ in range(7):
                await line.begun()
            rollouts.start_soon(roll_out, "poisoned", ref("doomed"))
            await line.begun()  # one that was beside it, in another worker
            line.go(7)
    poisoned = results.pop("poisoned")
    assert (poisoned.kind, poisoned.deaths) == ("infrastructure", ("killed by SIGSEGV",) * 3)
    assert poisoned.died_every_time
    assert [result.kind for result in results.values()] == ["ok"] * 7
    assert sorted(result.deaths for result in results.values()) == [()] * 4 + [("killed by SIGSEGV",)] * 3
    assert executor.counters()["workers_lost"] == 3
    assert executor.counters()["redispatched"] == 5


def struck_at_random(seed: int) -> Iterator[RolloutSpec]:
    """Three hundred rollouts in two sandboxes, one in ten of which strikes in some way at some time."""
    chance = random.Random(seed)
    faults = list(runpy.run_path(str(Path(__file__).with_name("faulty_actors.py")))["FAULTS"])
    for number in range(300):
        when = chance.choice(["once", "the end", f"{chance.uniform(0.0, 0.05)}"])
        prompt = f"{chance.choice(faults)} at {when}" if chance.random() < 0.1 else ""
        yield RolloutSpec("", Task(str(number), prompt), sandbox=SandboxSpec(memory_mb=chance.choice([256, 256, 257])))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("run", "options"),
    [
        ("strike_at_some_time", {}),
        ("strike_at_some_time", {"max_tasks_per_worker": 7}),
        ("strike_beside_others", {"in_flight_per_worker": 4}),
    ],
    ids=["one by one", "recycled", "side by side"],
)
async def test_whatever_happens_at_any_time_each_is_answered(seed: int, run: str, options: dict[str, Any]) -> None:
    executor = ProcessExecutor(3, hang_timeout=1.5, **options)
    specs = list(struck_at_random(seed))
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors(ref(run, "faulty_actors"))) as view:
            results = await collect_rollouts(view, specs, concurrency=20)
    for spec, result in zip(specs, results, strict=True):
        # To be out of memory is an answer, and in threads beside the main one some faults are merely errors.
        assert (result.kind, result.output) == ("ok", spec.task.id) or (result.kind == "model" and spec.task.prompt)
        assert result.attempt == len(result.deaths) <= 2
    counters = executor.counters()
    ended = counters["workers_lost"] + counters["workers_recycled"]
    assert counters["workers_started"] - 3 <= ended <= counters["workers_started"]
    assert counters["redispatched"] >= sum(len(result.deaths) for result in results) > 0


@pytest.mark.mainly("asyncio")
async def test_who_finds_memory_used_up_by_others_is_tried_where_it_is_not() -> None:
    executor = ProcessExecutor(1, sandbox=SandboxSpec(memory_mb=256))
    specs = [RolloutSpec("", Task("t", megabytes)) for megabytes in ("1", "", "16", "16", "1000")]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors(ref("keep_memory", "faulty_actors"))) as view:
            first, keeping, innocent, last, greedy = [await view.rollout(spec) for spec in specs]
    assert [result.kind for result in (first, keeping, innocent, last)] == ["ok"] * 4
    assert [result.deaths for result in (first, keeping, innocent, last)] == [(), (), ("ran out of memory",), ()]
    assert (greedy.kind, str(greedy.error), greedy.deaths) == ("model", "run: MemoryError", ("ran out of memory",))


@pytest.mark.slow
async def test_nobody_is_late_who_was_done_in_time_while_the_loop_was_held_up() -> None:
    executor = ProcessExecutor(1, sandbox=SandboxSpec(timeout_s=0.4))
    results: list[Result] = []

    async def roll_out(view: ProcessExecutor) -> None:
        results.append(await view.rollout(RolloutSpec("", Task("t", ""))))

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors(ref("brief", "faulty_actors"))) as view:
            await roll_out(view)
            for _ in range(6):  # trio wakes tasks in any order: each time there is an even chance to see it go wrong
                async with anyio.create_task_group() as rollouts:
                    rollouts.start_soon(roll_out, view)
                    await anyio.wait_all_tasks_blocked()
                    time.sleep(0.5)  # noqa: ASYNC251 - this is what holds up the loop
    assert [result.kind for result in results] == ["ok"] * 7

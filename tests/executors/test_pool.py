"""Worker processes at work: who shares one, who gets a new one, and who ends when something is late or cancelled."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import CancelScope, create_task_group
from anyio.lowlevel import checkpoint

from adescent.executors import ProcessExecutor, collect_rollouts
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.tasks import Task
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.mainly("trio"),
    pytest.mark.usefixtures("importable", "anyio_backend"),
]

BOUND = 30.0
TASK = Task("t1", "?")
SMALL, OTHER = SandboxSpec(memory_mb=256), SandboxSpec(memory_mb=257)
PATIENT = 20.0


def ref(name: str) -> Ref:
    return Ref(f"process_actors:{name}", call=False)


def actors(run: str, reward: str = "full") -> Actors:
    return Actors(ref(run), ref(reward), resolver=Resolver(("process_actors:",)))


def spec_of(rendered: str = "rules", task: Task = TASK, **more: Any) -> RolloutSpec:
    return RolloutSpec(rendered, task, **more)


def failure_of(result: Result) -> Failure:
    assert result.error is not None
    return result.error


class Rollouts:
    """Rollouts of a view beside the test: each can be cancelled, and their results are kept by name."""

    def __init__(self, view: ProcessExecutor, group: Any, line: Any = None) -> None:
        self._view = view
        self._group = group
        self._line = line
        self._scopes: dict[str, CancelScope] = {}
        self._ended: dict[str, anyio.Event] = {}
        self.results: dict[str, Result] = {}

    def start(self, name: str, run: str = "gate", **more: Any) -> None:
        self._scopes[name], self._ended[name] = CancelScope(), anyio.Event()
        self._group.start_soon(self._roll_out, name, spec_of(name, Task(name, self._line.path), run=ref(run), **more))

    async def _roll_out(self, name: str, spec: RolloutSpec) -> None:
        with self._scopes[name]:
            self.results[name] = await self._view.rollout(spec)
        self._ended[name].set()

    async def ended(self, name: str) -> Result:
        await self._ended[name].wait()
        return self.results[name]

    async def cancel(self, name: str) -> None:
        self._scopes[name].cancel()
        await self._ended[name].wait()


@asynccontextmanager
async def stage(executor: ProcessExecutor, line: Any, reward: str = "full") -> AsyncIterator[Rollouts]:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid", reward)) as view, create_task_group() as group:
            yield Rollouts(view, group, line)
            group.cancel_scope.cancel()


async def gone(pid: int) -> None:
    """Wait until the process has ended, and see that there is nothing left of its group either."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(ended)
    finally:
        os.close(ended)


# Who shares a worker --------------------------------------------------------------------------------------------------


async def test_views_share_the_workers(line: Any) -> None:
    executor = ProcessExecutor(1)
    with anyio.fail_after(BOUND):
        async with executor:
            views = [executor.attach_actors(actors(run)) for run in ("pid", "pid_async", "pid")]
            pids = {(await view.rollout(spec_of())).output for view in views}
            assert len(pids) == 1
            assert views[0].statistics() == executor.statistics()
            assert executor.statistics().idle == executor.statistics().workers_started == 1


async def test_as_many_workers_are_started_as_there_is_work_for(line: Any) -> None:
    executor = ProcessExecutor(3)
    async with stage(executor, line) as rollouts:
        assert executor.statistics().workers_started == 0
        for name in ("a", "b"):
            rollouts.start(name)
        pids = {await line.begun() for _ in "ab"}
        assert len(pids) == 2
        assert (executor.statistics().busy, executor.statistics().in_flight) == (2, 2)
        assert executor.statistics().workers_started == 2
        line.go(2)
        assert {(await rollouts.ended(name)).output for name in ("a", "b")} == pids
        assert (executor.statistics().idle, executor.statistics().busy) == (2, 0)


async def test_async_rollouts_overlap_in_one_worker(line: Any) -> None:
    async with stage(ProcessExecutor(1, in_flight_per_worker=3), line) as rollouts:
        for name in "abcd":
            rollouts.start(name, "gate_async")
        pids = [await line.begun() for _ in range(3)]
        assert len(set(pids)) == 1
        line.go(4)
        assert await line.begun() == pids[0]  # the fourth, once one of the three had ended
        assert {(await rollouts.ended(name)).kind for name in "abcd"} == {"ok"}


async def test_a_plain_function_holds_up_plain_functions_only(line: Any) -> None:
    """The async ones beside it in its worker go on, and are seen to end while it is still there."""
    async with stage(ProcessExecutor(1, in_flight_per_worker=3), line, "full_async") as rollouts:
        rollouts.start("plain")
        pid = await line.begun()
        rollouts.start("held up")
        for number in range(5):
            rollouts.start(f"async {number}", "pid_async")
            assert (await rollouts.ended(f"async {number}")).output == pid
        assert "held up" not in rollouts.results
        line.go()
        assert await line.begun() == pid
        line.go()
        assert {(await rollouts.ended(name)).output for name in ("plain", "held up")} == {pid}


async def test_logs_of_rollouts_side_by_side_are_apart() -> None:
    specs = [spec_of(word) for word in ("left", "right", "middle")]
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1, in_flight_per_worker=3).attach_actors(actors("chatting")) as view:
            results = await collect_rollouts(view, specs, concurrency=3)
    assert [result.log for result in results] == ["left\n" * 3, "right\n" * 3, "middle\n" * 3]


async def test_a_worker_is_replaced_after_so_many_rollouts() -> None:
    executor = ProcessExecutor(1, max_tasks_per_worker=2)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            results = await collect_rollouts(view, [spec_of()] * 6)
    pids = [result.output for result in results]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 2]
    counters = executor.counters()
    assert counters["workers_recycled"] in (2, 3)  # the last may have been told to end for good before
    assert counters["workers_lost"] == counters["redispatched"] == 0


async def test_sandboxes_take_turns_on_workers_and_none_waits_for_ever() -> None:
    executor = ProcessExecutor(1, sandbox=SMALL)
    specs = [spec_of(sandbox=sandbox) for sandbox in (None, OTHER, SMALL, OTHER, None, OTHER)]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            results = await collect_rollouts(view, specs, concurrency=6)
    assert {result.kind for result in results} == {"ok"}
    small, other = ({result.output for result in results[start::2]} for start in (0, 1))
    assert small.isdisjoint(other)
    assert executor.counters()["workers_recycled"] >= 1
    assert executor.counters()["workers_lost"] == 0


async def test_what_a_sandbox_has_no_process_for_is_no_other_sandbox() -> None:
    """Times are a rollout's; only what a process is confined by is its own."""
    executor = ProcessExecutor(1)
    confined = [SandboxSpec(timeout_s=PATIENT), SandboxSpec(cpu_seconds=PATIENT), None]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            assert len({(await view.rollout(spec_of(sandbox=sandbox))).output for sandbox in confined}) == 1
    assert executor.counters()["workers_started"] == 1


# What is late ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["hanging", "hanging_async"])
async def test_a_rollout_that_takes_too_long_is_not_sent_again(line: Any, run: str) -> None:
    executor = ProcessExecutor(2)
    async with stage(executor, line) as rollouts:
        rollouts.start("other")
        other = await line.begun()
        rollouts.start("hang", run, sandbox=SandboxSpec(timeout_s=0.2), attempt=1)
        result = await rollouts.ended("hang")
        failure = failure_of(result)
        assert (failure.kind, failure.stage, failure.type) == ("infrastructure", "worker", "RolloutTimeout")
        assert "timeout_s" in failure.message
        assert (result.deaths, result.attempt) == (("no answer within 0.2 s",), 1)
        line.go()
        assert (await rollouts.ended("other")).output == other
        rollouts.start("next", "pid")
        assert (await rollouts.ended("next")).kind == "ok"
    assert executor.counters()["redispatched"] == 0
    assert executor.counters()["workers_lost"] == 1


async def test_a_worker_that_says_nothing_is_taken_for_wedged(line: Any) -> None:
    executor = ProcessExecutor(2, hang_timeout=0.5)
    async with stage(executor, line) as rollouts:
        rollouts.start("hang", "hanging")
        result = await rollouts.ended("hang")
        assert failure_of(result).type == "WorkerLost"
        assert result.deaths == ("not a word within 0.5 s",) * 3
        rollouts.start("next", "pid")
        assert (await rollouts.ended("next")).kind == "ok"
    assert executor.counters()["workers_lost"] == 3


@pytest.mark.slow
async def test_a_rollout_that_uses_too_much_processor_time_is_given_up() -> None:
    spec = spec_of("spin", sandbox=SandboxSpec(cpu_seconds=1))
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1).attach_actors(actors("busy")) as view:
            spun, fine = await collect_rollouts(view, [spec, spec_of(sandbox=SandboxSpec(cpu_seconds=1))])
    assert (spun.kind, failure_of(spun).type, len(spun.deaths)) == ("infrastructure", "CpuTimeExceeded", 1)
    assert fine.kind == "ok"


async def test_too_much_memory_is_a_failure_of_the_model() -> None:
    """It was tried a second time, in a worker whose memory nothing else had used."""
    executor = ProcessExecutor(1, sandbox=SMALL)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("greedy")) as view:
            specs = [spec_of(), spec_of("eat", Task("t1", "400")), spec_of("eat", Task("t1", "4")), spec_of()]
            first, greedy, modest, last = await collect_rollouts(view, specs)
    assert (greedy.kind, failure_of(greedy).type, failure_of(greedy).stage) == ("model", "MemoryError", "run")
    assert greedy.deaths == ("ran out of memory",)
    assert [result.kind for result in (first, modest, last)] == ["ok"] * 3


# What dies ------------------------------------------------------------------------------------------------------------


async def test_who_waited_behind_a_death_hears_nothing_of_it() -> None:
    """While rollouts are quick a worker holds some that have not begun; these are none of its business."""
    executor = ProcessExecutor(1)
    doomed = RolloutSpec("rules", TASK, run=ref("doomed"))
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            await collect_rollouts(view, [spec_of()] * 20)
            lost, *others = await collect_rollouts(view, [doomed, *[spec_of()] * 3], concurrency=4)
    assert lost.log.count("Fatal Python error: Segmentation fault") == 3
    assert {(result.kind, result.log, result.attempt) for result in others} == {("ok", "", 0)}


# What is cancelled ----------------------------------------------------------------------------------------------------


async def test_cancelling_a_rollout_ends_its_worker_and_no_other(line: Any) -> None:
    executor = ProcessExecutor(2)
    async with stage(executor, line) as rollouts:
        rollouts.start("one")
        one = await line.begun()
        rollouts.start("other")
        other = await line.begun()
        await rollouts.cancel("one")
        await gone(one)
        line.go()
        assert (await rollouts.ended("other")).output == other
        rollouts.start("next", "pid")
        assert (await rollouts.ended("next")).kind == "ok"
        assert "one" not in rollouts.results
    assert executor.counters()["redispatched"] == executor.counters()["workers_lost"] == 0


async def test_cancelling_what_usually_ends_soon_costs_no_worker_and_what_does_not_does(line: Any) -> None:
    executor = ProcessExecutor(1)
    async with stage(executor, line) as rollouts:
        rollouts.start("quick", "pid")
        pid = (await rollouts.ended("quick")).output
        rollouts.start("soon")
        await line.begun()
        await rollouts.cancel("soon")
        line.go()
        rollouts.start("next", "pid")
        assert (await rollouts.ended("next")).kind == "ok"
        rollouts.start("hang", "hanging")
        last = await line.begun()
        await rollouts.cancel("hang")
        rollouts.start("after", "pid")
        assert (await rollouts.ended("after")).output not in (last, pid)


async def test_cancelling_an_async_rollout_beside_others_ends_no_worker(line: Any) -> None:
    executor = ProcessExecutor(1, in_flight_per_worker=2)
    async with stage(executor, line) as rollouts:
        for name in ("one", "other"):
            rollouts.start(name, "gate_async")
        pids = {await line.begun() for _ in range(2)}
        await rollouts.cancel("one")
        rollouts.start("next", "gate_async")
        pids.add(await line.begun())
        line.go(2)
        assert {(await rollouts.ended(name)).output for name in ("other", "next")} == pids
    assert executor.counters()["workers_started"] == 1
    assert executor.counters()["duplicates_dropped"] == 0


async def test_cancelling_what_waits_disturbs_nobody(line: Any) -> None:
    executor = ProcessExecutor(1)
    async with stage(executor, line) as rollouts:
        rollouts.start("first")
        pid = await line.begun()
        for number in range(10):
            rollouts.start(f"waiting {number}")
        await anyio.wait_all_tasks_blocked()
        for number in (0, 9, 4):
            await rollouts.cancel(f"waiting {number}")
        line.go(8)
        for number in (1, 2, 3, 5, 6, 7, 8):
            assert (await rollouts.ended(f"waiting {number}")).output == pid
            assert await line.begun() == pid
    assert executor.counters()["workers_started"] == 1


@pytest.mark.parametrize("run", ["gate", "gate_async"])
async def test_a_deadline_around_everything_is_kept(line: Any, run: str) -> None:
    executor = ProcessExecutor(2, in_flight_per_worker=2)
    view = executor.attach_actors(actors(run))
    begun: list[int] = []
    with anyio.fail_after(BOUND):
        with CancelScope() as scope:
            async with view, create_task_group() as group:
                for _ in range(50):
                    group.start_soon(view.rollout, spec_of(task=Task("t1", line.path)))
                begun += [await line.begun(), await line.begun()]
                scope.deadline = anyio.current_time()
                await anyio.sleep_forever()
        late = anyio.current_time() - scope.deadline
    assert scope.cancelled_caught
    assert late < 5.0  # a second where nothing else is at work
    assert executor.statistics().stopping == executor.statistics().busy == 0
    for pid in begun:
        await gone(pid)


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8)]])
async def test_cancelled_at_random_the_others_end_once_each(seed: int, in_flight: int) -> None:
    chance = random.Random(seed)
    executor = ProcessExecutor(2, in_flight_per_worker=in_flight)
    ended: list[int] = []

    async def one(view: ProcessExecutor, number: int, run: str) -> None:
        with anyio.move_on_after(chance.random() / 5 if number % 3 == 0 else BOUND):
            result = await view.rollout(spec_of(str(number), Task("t1", "?"), run=ref(run)))
            assert (result.kind, result.lease_id) == ("ok", "")
            ended.append(number)

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view, create_task_group() as group:
            for number in range(150):
                run = "hanging_async" if number % 15 == 0 else chance.choice(["pid", "pid_async", "briefly"])
                group.start_soon(one, view, number, run)
                for _ in range(chance.choice([0, 0, 0, 200])):  # some come later than others
                    await checkpoint()
    assert len(ended) == len(set(ended))
    assert set(ended) >= {number for number in range(150) if number % 3}
    assert executor.counters()["workers_lost"] == executor.counters()["duplicates_dropped"] == 0


async def test_a_worker_that_is_still_starting_is_ended_too() -> None:
    executor = ProcessExecutor(2)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view, create_task_group() as group:
            group.start_soon(view.rollout, spec_of())
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        async with executor.attach_actors(actors("pid")) as view:
            assert (await view.rollout(spec_of())).kind == "ok"

"""A run is a guest: it leaves its host's loop, threads, files and settings as they are."""

from __future__ import annotations

import json
import locale
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.budget import Budget
from adescent.config import RunConfig
from adescent.errors import ContractError, LoopRunning
from adescent.evolution import evolve
from adescent.executors import InlineExecutor, ThreadExecutor
from adescent.ledger import MemoryLedger
from adescent.policies import Policies
from adescent.runtime.result import EvolutionResult
from adescent.tasks import Splits
from adescent.verifier import MemoryCache

BOUND = 60.0


def decided(result: EvolutionResult) -> Any:
    return [commit.tree for commit in result.log], result.outcomes(), result.rollouts, result.stop_reason


# The host's loop ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("patient", [True, False], ids=["actors that wait", "actors that never wait"])
async def test_others_get_their_turn_beside_many_workers(
    world: Any, schedule: str, patient: bool, anyio_backend: Any
) -> None:
    """Between two turns of the host's task no worker does more than two rollouts, since trio shuffles the turns."""
    done = False
    most = ticks = 0

    async def no_wait() -> None:
        """Never suspends."""

    async def tick() -> None:
        nonlocal most, ticks
        while not done:
            before = world.calls["run"]
            await checkpoint()
            most, ticks = max(most, world.calls["run"] - before), ticks + 1

    if not patient:
        world.before_run = world.before_reward = world.before_propose = no_wait
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:
            host.start_soon(tick)
            await world.evolve(schedule, n_workers=64, rounds=10)
            done = True
    assert 0 < most <= 2 * (64 + 8)
    assert ticks >= world.calls["run"] / (64 + 8)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_ticker_keeps_its_time_beside_64_workers(world: Any, schedule: str, anyio_backend: Any) -> None:
    """Kept is a tick that comes before the next one is due."""
    due = kept = 0
    period = 0.01

    async def tick() -> None:
        nonlocal due, kept
        next_one = anyio.current_time()
        while True:
            next_one += period
            await anyio.sleep_until(next_one)
            due, kept = due + 1, kept + (anyio.current_time() < next_one + period)

    async def twenty_milliseconds() -> None:
        await anyio.sleep(0.02)

    world.before_run = twenty_milliseconds
    async with anyio.create_task_group() as host:
        host.start_soon(tick)
        await world.evolve(schedule, n_workers=64, budget=Budget(seconds=3.0))
        host.cancel_scope.cancel()
    assert due > 250
    assert kept >= 0.8 * due


@pytest.mark.anyio
@pytest.mark.parametrize("tasks", [40, 900])
async def test_many_tasks_are_read_here_and_hashed_elsewhere(
    world: Any, tasks: int, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    here = threading.get_ident()
    read_by, hashed_by = set(), set()

    def rows() -> Iterator[dict[str, str]]:
        for number in range(tasks):
            read_by.add(threading.get_ident())
            yield {"prompt": f"lesson-{number % 6}"}

    split = RunConfig.splits

    def splits(config: RunConfig) -> Splits:
        hashed_by.add(threading.get_ident())
        return split(config)

    monkeypatch.setattr(RunConfig, "splits", splits)
    world.tasks = rows()
    with anyio.fail_after(BOUND):
        assert (await world.evolve("rounds", rounds=1)).rollouts == 4
    assert read_by == {here}
    assert (hashed_by == {here}) is (tasks == 40)


@pytest.mark.anyio
async def test_the_blocking_door_tells_a_host_what_to_await(world: Any, schedule: str, anyio_backend: Any) -> None:
    with pytest.raises(LoopRunning, match=r"await async_evolve"):
        evolve(world.tasks, world.reward, **world.options(schedule))
    assert not world.calls


@pytest.mark.anyio
async def test_a_failing_scorer_is_one_bare_error_in_the_hosts_group(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("no score today")

    world.before_reward = fail
    caught: list[BaseException] = []
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:

            async def guest() -> None:
                try:
                    await world.evolve(schedule)
                except BaseException as error:  # noqa: BLE001 - a group would be one, too
                    caught.append(error)

            host.start_soon(guest)
            host.start_soon(guest)
    assert [type(error) for error in caught] == [ContractError] * 2
    assert "no score today" in str(caught[0])
    assert isinstance(caught[0].__cause__, ZeroDivisionError)
    assert caught[0] is not caught[1]


@pytest.mark.anyio
async def test_a_host_that_does_not_catch_gets_a_group_of_one(world: Any, schedule: str, anyio_backend: Any) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("no score today")

    world.before_reward = fail
    with anyio.fail_after(BOUND), pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as host:
            host.start_soon(world.evolve, schedule)
    assert [type(error) for error in raised.value.exceptions] == [ContractError]


# Threads --------------------------------------------------------------------------------------------------------------


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * len(calls)

    def keep(index: int, call: Callable[[], Any]) -> None:
        try:
            results[index] = call()
        except BaseException as error:  # noqa: BLE001 - compared below
            results[index] = error

    threads = [threading.Thread(target=keep, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
        assert not thread.is_alive()
    return results


def test_the_blocking_door_opens_in_any_thread_and_in_several_at_once(new_world: Any, schedule: str) -> None:
    lockstep = {"n_workers": 1, "max_unmerged": 1} if schedule == "stream" else {}

    def go() -> EvolutionResult:
        world = new_world()
        return evolve(world.tasks, world.reward, **world.options(schedule, rounds=6, **lockstep))

    here = go()
    assert here.version > 1
    there = in_threads(go, go, go)
    assert [decided(result) for result in there] == [decided(here)] * 3


# Several runs in one host ---------------------------------------------------------------------------------------------


SIZES = {"small": 24, "middle": 27, "large": 33}


@pytest.mark.anyio
@pytest.mark.parametrize("make", [InlineExecutor, lambda: ThreadExecutor(5)], ids=["inline", "threads"])
@pytest.mark.parametrize("entered", [True, False])
async def test_runs_that_share_everything_disturb_each_other_in_nothing(
    new_world: Any, schedule: str, make: Callable[[], Any], entered: bool, anyio_backend: Any
) -> None:
    limiter = anyio.CapacityLimiter(3)
    executor = make()
    shared = Policies(executor=executor, eval_cache=MemoryCache(), ledger=MemoryLedger())
    lockstep = {"n_workers": 1, "max_unmerged": 1} if schedule == "stream" else {}
    beside: dict[str, EvolutionResult] = {}

    async def limited() -> None:
        async with limiter:
            await checkpoint()

    async def guest(name: str, policies: Policies) -> EvolutionResult:
        world = new_world(tasks=SIZES[name])
        world.before_run = limited
        result: EvolutionResult = await world.evolve(
            schedule, rounds=12, artifact_id=name, policies=policies, **lockstep
        )
        return result

    async def share(name: str) -> None:
        beside[name] = await guest(name, shared)

    with anyio.fail_after(BOUND):
        alone = {name: await guest(name, Policies(executor=make())) for name in SIZES}
        async with AsyncExitStack() as host:
            if entered:
                await host.enter_async_context(executor)
            async with anyio.create_task_group() as guests:
                for name in SIZES:
                    guests.start_soon(share, name)
    for name in SIZES:
        assert told(beside[name]) == told(alone[name])
        assert beside[name].version > 1


def told(result: EvolutionResult) -> Any:
    """What a run says of itself; the trees hold the other artifacts of a shared ledger, too."""
    rewards = [row.held_out_reward for row in result.history]
    return (
        result.state,
        result.version,
        result.outcomes(),
        rewards,
        result.rollouts,
        result.counters,
        result.stop_reason,
    )


@pytest.mark.anyio
async def test_a_run_that_fails_leaves_its_neighbours_alone(new_world: Any, schedule: str, anyio_backend: Any) -> None:
    executor = ThreadExecutor(4)
    good, bad = new_world(), new_world()
    result: list[EvolutionResult] = []

    async def fail() -> None:
        raise ValueError("no score today")

    async def run_the_good_one() -> None:
        result.append(await good.evolve(schedule, rounds=20, policies=Policies(executor=executor)))

    bad.before_reward = fail
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:
            host.start_soon(run_the_good_one)
            with pytest.raises(ContractError):
                await bad.evolve(schedule, policies=Policies(executor=executor))
    assert result[0].final_reward == 1.0
    assert result[0].rollouts == 80
    assert "scores_void" not in result[0].counters
    assert "reward_failed" not in result[0].counters


@pytest.mark.anyio
async def test_counters_of_a_shared_executor_are_each_runs_own(new_world: Any, anyio_backend: Any) -> None:
    executor = ThreadExecutor(2, thread_grace=0.0)
    held, let_go = threading.Event(), threading.Event()

    def hang(rendered: str, task: Any) -> str:
        held.set()
        let_go.wait(BOUND)
        return ""

    world = new_world()
    with anyio.fail_after(BOUND):
        async with executor:
            with anyio.move_on_after(BOUND) as scope:
                async with anyio.create_task_group() as host:

                    async def cancel() -> None:
                        await anyio.to_thread.run_sync(held.wait, BOUND)
                        scope.cancel()

                    host.start_soon(cancel)
                    await world.evolve("rounds", run=hang, policies=Policies(executor=executor))
            let_go.set()
            assert executor.counters()["abandoned_threads"] > 0
            result = await new_world().evolve("rounds", policies=Policies(executor=executor))
    assert "abandoned_threads" not in result.counters


# The host's settings --------------------------------------------------------------------------------------------------

whose: ContextVar[str] = ContextVar("whose", default="nobody's")


def settings() -> dict[str, Any]:
    """What a guest has no business to change."""
    return {
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "random numbers": random.getstate(),
        "environment": dict(os.environ),
        "working directory": Path.cwd(),
        "recursion limit": sys.getrecursionlimit(),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.gettrace(), sys.getprofile()),
        "locale": locale.setlocale(locale.LC_ALL),
        "umask": os.umask(os.umask(0o022)),
        "logging": (logging.root.level, list(logging.root.handlers), logging.getLogger("adescent").level),
        "warnings": list(warnings.filters),
        "standard streams": (sys.stdin, sys.stdout, sys.stderr),
    }


@pytest.mark.anyio
async def test_a_guest_changes_none_of_its_hosts_settings(
    world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    before = settings()
    during: list[dict[str, Any]] = []

    async def look() -> None:
        await checkpoint()
        if not during:
            during.append(settings())

    world.before_propose = look
    whose.set("the host's")
    with anyio.fail_after(BOUND):
        await world.evolve(schedule, run_dir=tmp_path / "run")
    assert during == [before]
    assert settings() == before
    assert whose.get() == "the host's"


def test_a_script_gets_its_settings_back(new_world: Any, schedule: str) -> None:
    world, before = new_world(), settings()
    evolve(world.tasks, world.reward, **world.options(schedule))
    assert settings() == before


WATCHED = """
import json, os, sys
from adescent import evolve
import adescent.verifier, adescent.runtime.engine, adescent.ledger.memory, cattrs.preconf.json

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
seen, watching = [], False

def watch(event, arguments):
    if not watching:
        return
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        seen.append([event, str(arguments[0])])
    elif event.partition(".")[0] in ("subprocess", "shutil", "tempfile") or event in (
        "os.mkdir", "os.rename", "os.remove", "os.chdir", "os.putenv", "os.system", "os.fork", "os.exec",
        "socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto",
    ):
        seen.append([event, str(arguments)])

sys.addaudithook(watch)
tasks = [{"prompt": f"lesson-{number % 5}"} for number in range(20)]
watching = True
for asynchronous in (False, True):
    result = evolve(
        tasks, lambda task, output: float(output), asynchronous=asynchronous, rounds=4,
        run=lambda rendered, task: task.prompt in rendered, propose=lambda rendered, task, output, score: task.prompt,
    )
    assert result.version > 1, result
    result.to_json()
watching = False
print(json.dumps(seen))
"""


def test_without_a_directory_nothing_is_written_and_nobody_is_called(tmp_path: Path) -> None:
    command = [sys.executable, "-B", "-W", "error", "-c", WATCHED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=BOUND)
    assert done.stderr == ""
    assert json.loads(done.stdout) == []
    assert not list(tmp_path.iterdir())

"""A run that is cancelled, at whatever moment, ends at once, leaves nothing behind and swallows nothing."""

from __future__ import annotations

import asyncio
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from anyio.lowlevel import checkpoint, current_token
from hypothesis import given, settings
from hypothesis import strategies as st

from adescent.budget import Budget
from adescent.errors import RunCancelled
from adescent.evolution import Evolution
from adescent.executors import ThreadExecutor
from adescent.ledger import GitLedger
from adescent.policies import Policies
from adescent.runtime.control import Control
from adescent.telemetry import RunFinished

BOUND = 60.0
PROMPT = 5.0
"""Seconds within which a cancelled run is back, where no thread is blocked."""

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "audited": {"blast_radius": 0.9},
    "verified": {"self_verify": True, "max_concurrency": 2},
    "noisy": {"noise": "yes", "eval_repeats": 2},
    "short of slots": {"max_concurrency": 1, "eval_concurrency": 1},
    "limited": {"rollout_timeout": 5.0, "budget": Budget(seconds=30.0, rollouts=8)},
}


class Assassin:
    """Awaits something and cancels it when it is told to, or after so many turns of the loop."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self.returned: Any = None

    async def watch(self, function: Callable[[], Any], *, turns: int = 0, seconds: float = 0.0) -> bool:
        """Whether the cancellation got through; False where the run had ended by itself."""
        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks:
                if turns or seconds:
                    tasks.start_soon(self._strike, turns, seconds)
                with self.scope:
                    self.returned = await function()
                self._ended.set()
                tasks.cancel_scope.cancel()
        return self.scope.cancelled_caught

    async def _strike(self, turns: int, seconds: float) -> None:
        for _ in range(turns):
            await checkpoint()
        await anyio.sleep(seconds)
        self.scope.cancel()
        with anyio.fail_after(PROMPT):
            await self._ended.wait()


@pytest.mark.anyio
@pytest.mark.parametrize("options", RUNS)
async def test_cancelled_after_any_number_of_turns_of_the_loop(
    new_world: Any, schedule: str, options: str, anyio_backend: Any
) -> None:
    turns = random.Random(f"{schedule} {options}")
    struck, after = True, 1
    while struck:
        world, assassin = new_world(), Assassin()
        struck = await assassin.watch(lambda: world.evolve(schedule, n_workers=3, **RUNS[options]), turns=after)  # noqa: B023
        assert (assassin.returned is None) == struck
        after += turns.randint(1, 9)
    assert after > 30, "the run was over before it had begun"


@pytest.mark.anyio
@pytest.mark.parametrize("actor", ["run", "reward", "propose"])
async def test_cancelled_from_inside_any_call_of_an_actor(
    new_world: Any, schedule: str, actor: str, anyio_backend: Any
) -> None:
    struck, call = True, 0
    while struck:
        call += 1
        world, assassin = new_world(), Assassin()

        async def strike() -> None:
            if world.calls[actor] >= call:  # noqa: B023
                assassin.scope.cancel()  # noqa: B023
            await checkpoint()

        setattr(world, f"before_{actor}", strike)
        struck = await assassin.watch(lambda: world.evolve(schedule, rounds=2, n_workers=3))  # noqa: B023
        assert (assassin.returned is None) == struck
    assert call > 3


@pytest.mark.anyio
async def test_cancelled_before_it_begins(world: Any, schedule: str, tmp_path: Path, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND), anyio.CancelScope() as scope:
        scope.cancel()
        await world.evolve(schedule, run_dir=tmp_path / "run")
    assert scope.cancelled_caught
    assert not world.calls


@pytest.mark.anyio
@settings(max_examples=6)
@given(milliseconds=st.integers(0, 60))
async def test_the_hosts_own_timeout_is_what_the_host_gets(
    new_world: Any, milliseconds: int, anyio_backend: Any
) -> None:
    for schedule in ("rounds", "stream"):
        world = new_world()
        world.before_run = lambda: anyio.sleep(0.005)
        with pytest.raises(TimeoutError), anyio.fail_after(milliseconds / 1000):
            await world.evolve(schedule, rounds=1000)
        with anyio.move_on_after(milliseconds / 1000) as scope:
            await world.evolve(schedule, rounds=1000)
        assert scope.cancelled_caught


@pytest.mark.anyio
async def test_actors_that_never_suspend_can_be_cancelled_too(world: Any, schedule: str, anyio_backend: Any) -> None:
    async def at_once() -> None:
        if world.calls["run"] == 500:
            scope.cancel()

    world.before_run = world.before_reward = world.before_propose = at_once
    with anyio.fail_after(BOUND), anyio.CancelScope() as scope:
        await world.evolve(schedule, rounds=100_000)
    assert scope.cancelled_caught
    assert world.calls["run"] < 600


# What it leaves -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_cancelled_anywhere_leaves_a_directory_that_goes_on(
    new_world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    chance = random.Random(schedule)
    place = tmp_path / "run"
    version = attempts = 0
    while attempts < 12 or version < 2:  # each has a little longer, so that even a busy machine gets somewhere
        attempts += 1
        world, assassin = new_world(), Assassin()
        await assassin.watch(
            lambda: world.evolve(schedule, run_dir=place, rounds=2, n_workers=2),  # noqa: B023
            seconds=chance.uniform(0.0, 0.01 * attempts),
        )
        assert not (place / "ledger.git").exists() or sound(place) >= version
        version = sound(place) if (place / "ledger.git").exists() else 0
    with anyio.fail_after(BOUND):
        result = await new_world().evolve(schedule, run_dir=place, rounds=10)
    assert result.resumed_from == version
    assert result.final_reward == 1.0
    assert sound(place) == result.version


def sound(place: Path) -> int:
    """The version of the head of a repository that git finds nothing wrong with."""
    check = subprocess.run(
        ["git", "-C", place / "ledger.git", "fsck", "--strict", "--no-dangling"], capture_output=True, text=True
    )
    assert (check.returncode, check.stdout) == (0, ""), check.stderr
    ledger = GitLedger(place / "ledger.git")
    try:
        return ledger.head("artifact").version if ledger.versions() else 0
    finally:
        ledger.close()


@pytest.mark.anyio
async def test_commit_that_a_cut_off_run_was_making_is_in_its_result(
    world: Any, schedule: str, tmp_path: Path, ends: Any, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    """The ledger finishes what it has begun, so the result must know of it."""
    ledger = BlockedCommit(tmp_path / "ledger.git")
    limit = Control.limit
    monkeypatch.setattr(Control, "limit", lambda control, seconds: limit(ledger.watch(control), seconds))
    try:
        with anyio.fail_after(BOUND):
            result = await world.evolve(
                schedule,
                budget=Budget(seconds=BOUND),
                policies=Policies(ledger=ledger),
                on_event=world.events.append,
            )
        assert result.stop_reason == "budget:seconds"
        assert result.version == ledger.head("artifact").version == 2
        assert result.state == ledger.head("artifact").state
        assert result.outcomes()["committed"] >= 1
        assert result.history[-1].committed == 1
        settled, ingested = ends(result, world.events)
        assert settled == ingested
    finally:
        ledger.close()


class BlockedCommit(GitLedger):
    """A ledger on a disk so slow that the time of the run is over when its first commit is done."""

    def watch(self, control: Control) -> Control:
        self.control, self.token = control, current_token()
        return control

    def commit(self, *args: Any, **options: Any) -> Any:
        done = super().commit(*args, **options)
        anyio.from_thread.run_sync(self.control.limit, 0.0, token=self.token)
        return done


# Threads --------------------------------------------------------------------------------------------------------------


class Blocked:
    """A plain run that blocks from its ``nth`` call on, until it is let go."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.go = threading.Event()
        self.blocked = threading.Event()
        self._lock = threading.Lock()
        self._calls = 0

    def run(self, rendered: str, task: Any) -> bool:
        with self._lock:
            self._calls += 1
            blocks = self._calls >= self.nth
        if blocks:
            self.blocked.set()
            self.go.wait(BOUND)
        return task.prompt in rendered.split()


async def cancel_once(blocked: Blocked, scope: anyio.CancelScope) -> None:
    await anyio.to_thread.run_sync(blocked.blocked.wait, BOUND)
    scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("nth", [1, 15, 40])
async def test_blocked_thread_is_left_after_its_grace_and_counted(
    world: Any, schedule: str, nth: int, anyio_backend: Any
) -> None:
    blocked = Blocked(nth)
    executor = ThreadExecutor(4, thread_grace=0.05)

    try:
        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks:
                with anyio.CancelScope() as scope:
                    tasks.start_soon(cancel_once, blocked, scope)
                    await world.evolve(schedule, run=blocked.run, policies=Policies(executor=executor), rounds=50)
        assert scope.cancelled_caught
        assert executor.counters()["abandoned_threads"] >= 1
        assert not blocked.go.is_set()
    finally:
        blocked.go.set()


@pytest.mark.anyio
async def test_result_counts_the_threads_that_a_stop_left_behind(
    world: Any, schedule: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    blocked = Blocked(nth=3)

    def propose(rendered: str, task: Any, output: Any, score: Any) -> str:
        blocked.run(rendered, task)
        return str(task.prompt)

    policies = Policies(executor=ThreadExecutor(4, thread_grace=0.05))
    try:
        with anyio.fail_after(BOUND):
            options = world.options(schedule, propose=propose, policies=policies, rounds=1000)
            async with Evolution(world.tasks, world.reward, **options) as run:
                await anyio.to_thread.run_sync(blocked.blocked.wait, BOUND)
                engine = run._engine
                assert engine is not None
                engine.control.stop("stopped", grace=0.05)
                result = await run.result()
        assert result.stop_reason == "stopped"
        assert result.counters["abandoned_threads"] >= 1
        assert len(result.under_way) == result.counters["abandoned_threads"]
    finally:
        blocked.go.set()


@pytest.mark.anyio
async def test_run_that_is_cancelled_leaves_another_on_the_same_threads_alone(
    new_world: Any, schedule: str, anyio_backend: Any
) -> None:
    blocked, other = Blocked(nth=30), new_world()
    shared = ThreadExecutor(4, thread_grace=0.05)
    results, ended = [], anyio.Event()

    async def neighbour() -> None:
        run = Blocked(nth=10_000).run
        results.append(await other.evolve(schedule, run=run, policies=Policies(executor=shared), rounds=10))
        ended.set()

    try:
        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as tasks, shared:
                with anyio.CancelScope() as scope:
                    tasks.start_soon(neighbour)
                    tasks.start_soon(cancel_once, blocked, scope)
                    await new_world().evolve(
                        schedule, run=blocked.run, policies=Policies(executor=shared), rounds=1000, n_workers=2
                    )
                await ended.wait()
        assert scope.cancelled_caught
        [result] = results
        assert (result.error, result.final_reward, result.rollouts) == ("", 1.0, 40)
    finally:
        blocked.go.set()


# Who is told ----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_watchers_are_told_how_a_cancelled_run_ended(world: Any, schedule: str, anyio_backend: Any) -> None:
    seen: list[Any] = []

    async def on_event(event: Any) -> None:
        await checkpoint()
        seen.append(event)

    async def hang() -> None:
        if world.calls["propose"] > 2:
            hanging.set()
            await anyio.sleep_forever()

    hanging = anyio.Event()
    world.before_propose = hang
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: world.evolve(schedule, on_event=on_event, n_workers=2))
            await hanging.wait()
            tasks.cancel_scope.cancel()
    finished = seen[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.stop_reason, finished.error, finished.final_reward) == ("cancelled", "", None)
    assert len(finished.under_way) in (1, 2)


@pytest.mark.anyio
async def test_handle_of_a_cancelled_run_tells_where_it_stood(world: Any, schedule: str, anyio_backend: Any) -> None:
    async def hang() -> None:
        if world.calls["propose"] > 2:
            hanging.set()
            await anyio.sleep_forever()

    hanging = anyio.Event()
    world.before_propose = hang
    waiters: list[BaseException] = []

    async def wait_for(run: Evolution) -> None:
        try:
            await run.result()
        except RunCancelled as error:
            waiters.append(error)

    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:
            async with Evolution(world.tasks, world.reward, **world.options(schedule, n_workers=2)) as run:
                await hanging.wait()
                scope.cancel()
                await checkpoint()
        status = run.status()
        assert status.phase == "ended"
        assert 1 <= len(status.under_way) <= 2
        await wait_for(run)
        await wait_for(run)
    assert len(waiters) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("blocking", [False, True])
async def test_watcher_that_hangs_does_not_hold_up_the_end(
    world: Any, schedule: str, blocking: bool, anyio_backend: Any
) -> None:
    go = threading.Event()

    async def hangs(event: Any) -> None:
        await anyio.sleep_forever()

    def blocks(event: Any) -> None:
        go.wait(BOUND)

    executor = ThreadExecutor(20, thread_grace=0.05)
    assassin = Assassin()
    try:
        struck = await assassin.watch(
            lambda: world.evolve(
                schedule,
                rounds=10_000,
                on_event=blocks if blocking else hangs,
                policies=Policies(executor=executor),
            ),
            turns=60,
        )
        assert struck
    finally:
        go.set()


# At random instants ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.anyio
async def test_cancelled_at_fifty_random_instants(
    new_world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    chance = random.Random(f"instants {schedule}")
    place = tmp_path / "run"
    for _ in range(50):
        world, assassin = new_world(60), Assassin()
        pause = chance.uniform(0.0, 0.01)
        world.before_run = lambda pause=pause: anyio.sleep(pause)

        await assassin.watch(
            lambda: world.evolve(schedule, rounds=10_000, run_dir=place, n_workers=8),  # noqa: B023
            seconds=chance.uniform(0.0, 0.3),
        )
        assert assassin.scope.cancelled_caught
        if (place / "ledger.git").exists():
            sound(place)
    with anyio.fail_after(BOUND):
        result = await new_world(60).evolve(schedule, run_dir=place, rounds=3)
    assert result.final_reward == 1.0


# Natively, as hosts on asyncio may ---------------------------------------------------------------------------------


async def cancelled_natively(function: Callable[[], Any], *, turns: int = 0, seconds: float = 0.0) -> bool:
    task = asyncio.ensure_future(function())  # noqa: TID251 - what a host does is not for us to say
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.sleep(seconds)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=PROMPT)
    assert done, "it is not back"
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return bool(task.cancelled())


@pytest.mark.parametrize("options", RUNS)
def test_native_cancellation_after_any_number_of_turns(new_world: Any, schedule: str, options: str) -> None:
    async def host() -> None:
        turns = random.Random(f"natively {schedule} {options}")
        struck, after = True, 0
        while struck:
            world = new_world()
            struck = await cancelled_natively(
                lambda: world.evolve(schedule, n_workers=3, **RUNS[options]),  # noqa: B023
                turns=after,
            )
            after += turns.randint(1, 9)
        assert after > 30, "the run was over before it had begun"

    asyncio.run(host())


def test_native_cancellation_gives_the_directory_back(new_world: Any, schedule: str, tmp_path: Path) -> None:
    async def host() -> None:
        chance = random.Random(f"natively {schedule}")
        for _ in range(12):
            await cancelled_natively(
                lambda: new_world().evolve(schedule, run_dir=tmp_path / "run", rounds=100),
                turns=chance.randint(0, 40),
                seconds=chance.choice([0.0, 0.01, 0.03, 0.06]),
            )
        with anyio.fail_after(BOUND):
            result = await new_world().evolve(schedule, run_dir=tmp_path / "run", rounds=10)
        assert result.final_reward == 1.0
        assert sound(tmp_path / "run") == result.version

    asyncio.run(host())

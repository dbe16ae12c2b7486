"""Whatever goes wrong in a worker, whenever it does: other rollouts end as if nothing had, and the pool is full again.

A cell of the table is a fault and the state of the worker that it meets. In each one, a rollout is under way in the
other worker all the while; each event of the pool is followed by a look at all that its rules hold for true; and in the
end nothing is left of the process groups of the workers.
"""

from __future__ import annotations

import os
import runpy
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread, wait_readable
from attrs import define, field, frozen

from adescent.executors import ProcessExecutor
from adescent.executors.pool import Order, Pool
from adescent.executors.pool_rules import PoolStatistics
from adescent.policies import Actors
from adescent.refs import Ref
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

BOUND = 30.0
SANDBOX = SandboxSpec(memory_mb=256)
ANOTHER = SandboxSpec(memory_mb=257)
HERE = Path(__file__).parent
MODULE = "faulty_actors"
ACTORS = Actors(Ref(f"{MODULE}:run", call=False), Ref(f"{MODULE}:full", call=False))


# The table ------------------------------------------------------------------------------------------------------------

LOST = "lost"
"""The worker is gone, and another has taken its place; what it was at is done by that one."""
LIVES = "lives"
"""The worker goes on."""
FAILS = "fails"
"""The rollout has failed, and another worker has taken the place of its own, which cannot be trusted any more."""
ENDS = "ends"
"""The worker is gone, as it was told to be, and nobody calls that a loss."""


@frozen
class Impossible:
    """Why there is no such cell."""

    reason: str


NEVER = Impossible("a worker that has a lease, has had one, or is told to end has been ready")

STATES = ("starting", "idle", "busy", "stopping")
MATRIX: dict[str, tuple[str | Impossible, ...]] = {
    "exit 0": (LOST, LOST, LOST, ENDS),
    "exit 42": (LOST, LOST, LOST, ENDS),
    "SIGKILL": (LOST, LOST, LOST, ENDS),
    "SIGSTOP": (LOST, LOST, LOST, ENDS),
    "segfault": (LOST, LOST, LOST, ENDS),
    "stack overflow": (LOST, LOST, LOST, ENDS),
    "memory hog": (LOST, LIVES, FAILS, ENDS),
    "never ready": (LOST, NEVER, NEVER, NEVER),
    "garbage frame": (LOST, LOST, LOST, ENDS),
    "oversized frame": (LOST, LOST, LOST, ENDS),
    "stdout flood": (LIVES, LIVES, LIVES, ENDS),
    "stderr flood": (LIVES, LIVES, LIVES, ENDS),
    "closes its pipe": (LOST, LOST, LOST, ENDS),
    "ignores SIGTERM": (LOST, LIVES, LOST, ENDS),
    "forks a sleeping grandchild": (LIVES, LIVES, LIVES, ENDS),
}
WEDGED = {"SIGSTOP", "never ready", "ignores SIGTERM"}
"""Those after which the process is there and does nothing: only time tells."""


def cells(state: str) -> Iterator[Any]:
    """The cells of a state, which the two loops share out between them; with the slow tests, each has all."""
    column = STATES.index(state)
    for row, (fault, outcomes) in enumerate(MATRIX.items()):
        if not isinstance(outcomes[column], Impossible):
            mainly = pytest.mark.mainly(("asyncio", "trio")[(row + column) % 2])
            yield pytest.param(fault, outcomes[column], id=fault, marks=mainly)


def each_fault_when(state: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("fault", "outcome"), list(cells(state)))


SITECUSTOMIZE = """
from pathlib import Path
import faulty_actors
faulty_actors.at_start(Path(__file__).parent)
"""
"""What an interpreter loads before anything else, if it finds it."""


# The stage ------------------------------------------------------------------------------------------------------------


class Fifo:
    """What tests and rollouts speak over: it can be written to whether or not the other side is there yet."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._kept = b""

    def let_through(self, many: int) -> None:
        os.write(self._fd, b"." * many)

    async def numbers(self, many: int) -> list[int]:
        while self._kept.count(b"\n") < many:
            try:
                self._kept += os.read(self._fd, 4096)
            except BlockingIOError:
                await wait_readable(self._fd)
        *lines, self._kept = self._kept.split(b"\n", many)
        return [int(line) for line in lines]

    def close(self) -> None:
        os.close(self._fd)


@define(eq=False)
class Stage:
    """An executor of two workers, and the means to know and to decide where its rollouts are."""

    executor: ProcessExecutor
    fifos: dict[str, Fifo]
    endings: Counter[Order]
    results: list[Result] = field(factory=list)
    pids: set[int] = field(factory=set)

    async def rollout(self, do: str, fault: str = "", sandbox: SandboxSpec | None = None) -> Result:
        """Have it done. It announces itself in ``arrivals`` and waits, where it does, at ``gate`` or ``trigger``."""
        meta = {"do": do, "fault": fault, **{name: fifo.path for name, fifo in self.fifos.items()}}
        result = await self.executor.rollout(RolloutSpec("rules", Task("t", "Go.", meta), sandbox=sandbox))
        self.results.append(result)
        if isinstance(result.output, int):
            self.pids.add(result.output)
        return result

    async def arrived(self, many: int = 1) -> list[int]:
        """The processes in which something has begun."""
        pids = await self.fifos["arrivals"].numbers(many)
        self.pids.update(pids)
        return pids

    @asynccontextmanager
    async def played(self, *, lost: int = 0, recycled: int = 0, redispatched: int = 0) -> AsyncIterator[None]:
        """The executor is open; at the end both workers have served and are idle, and this has happened meanwhile."""
        with anyio.fail_after(BOUND):
            async with self.executor:
                yield
                statistics = self.executor.statistics()
            await nothing_left_of(*self.pids)
        self._check(statistics, lost, recycled, redispatched)

    def _check(self, statistics: PoolStatistics, lost: int, recycled: int, redispatched: int) -> None:
        assert (statistics.idle, statistics.queued, statistics.in_flight) == (2, 0, 0)
        assert (statistics.workers_lost, statistics.workers_recycled) == (lost, recycled)
        assert statistics.workers_started == 2 + lost + recycled
        assert statistics.redispatched == redispatched == sum(len(result.deaths) for result in self.results)
        assert redispatched == sum(result.attempt for result in self.results)
        assert statistics.duplicates_dropped == 0
        assert list(self.endings.values()) == [1] * len(self.results)

    @asynccontextmanager
    async def one_under_way(self) -> AsyncIterator[None]:
        """A rollout is under way in one of the workers until the block ends, and then ends as it should."""
        results: list[Result] = []

        async def innocent() -> None:
            results.append(await self.rollout("wait"))

        async with anyio.create_task_group() as rollouts:
            rollouts.start_soon(innocent)
            (worker,) = await self.arrived()
            yield
            self.fifos["gate"].let_through(1)
        assert [(result.kind, result.output, result.deaths) for result in results] == [("ok", worker, ())]

    async def both_serve(self, first: SandboxSpec = SANDBOX, second: SandboxSpec = SANDBOX) -> None:
        """Two rollouts are under way at once, in two processes, and end as they should."""
        before = len(self.results)
        async with anyio.create_task_group() as rollouts:
            rollouts.start_soon(self.rollout, "wait", "", first)
            rollouts.start_soon(self.rollout, "wait", "", second)
            assert len(set(await self.arrived(2))) == 2
            self.fifos["gate"].let_through(2)
        assert [result.kind for result in self.results[before:]] == ["ok", "ok"]


@pytest.fixture
def fifos(tmp_path: Path) -> Iterator[dict[str, Fifo]]:
    made = {name: Fifo(tmp_path / name) for name in ("arrivals", "gate", "trigger", "survivors")}
    yield made
    for fifo in made.values():
        fifo.close()


@pytest.fixture
def stage(fifos: dict[str, Fifo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> Stage:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.syspath_prepend(tmp_path)  # where an interpreter that starts may find something
    act = Pool._act

    def act_and_validate(pool: Pool) -> None:
        act(pool)
        pool._rules.validate()

    monkeypatch.setattr(Pool, "_act", act_and_validate)
    executor = ProcessExecutor(
        2,
        actors=ACTORS,
        allow=(f"{MODULE}:",),
        sandbox=SANDBOX,
        start_timeout=2.0 if fault in WEDGED else BOUND,
        hang_timeout=1.5 if fault in WEDGED else BOUND,
    )
    return Stage(executor, fifos, counted_endings(monkeypatch))


def counted_endings(monkeypatch: pytest.MonkeyPatch) -> Counter[Order]:
    """How often each lease ends."""
    endings: Counter[Order] = Counter()

    def counted(end: Callable[..., None]) -> Callable[..., None]:
        def ended(order: Order, *what: Any) -> None:
            endings[order] += 1
            end(order, *what)

        return ended

    for name in ("settle", "lose"):
        monkeypatch.setattr(Order, name, counted(getattr(Order, name)))
    return endings


async def gone(pid: int) -> None:
    """Wait for the process to end."""
    try:
        exit_ = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await wait_readable(exit_)
    finally:
        os.close(exit_)


async def stopped(pid: int) -> None:
    """Wait until our child has been stopped."""
    which = os.WSTOPPED | os.WEXITED | os.WNOWAIT
    await to_thread.run_sync(os.waitid, os.P_PID, pid, which, abandon_on_cancel=True)


def group(pgid: int) -> list[int]:
    """The processes of a group that have not ended."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(its_group) == pgid and state not in "ZX":
            members.append(int(stat.parent.name))
    return members


async def nothing_left_of(*pgids: int, but: int = 0) -> None:
    """Everything of these groups is gone, or has been killed and is about to be."""
    with anyio.fail_after(2.0):
        for pid in [pid for pgid in pgids for pid in group(pgid)]:
            if pid != but:
                await gone(pid)
    assert not {pid for pgid in pgids for pid in group(pgid)} - {but}


# The tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@each_fault_when("starting")
async def test_starting(stage: Stage, tmp_path: Path, fault: str, outcome: str, anyio_backend: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    (tmp_path / "order-1").write_text(f"{fault}\n{stage.fifos['arrivals'].path}")
    async with stage.played(lost=outcome == LOST):
        async with anyio.create_task_group() as rollouts:
            for _ in range(4):
                rollouts.start_soon(stage.rollout, "answer")
            (struck,) = await stage.arrived()
            if outcome == LOST:
                await gone(struck)
                await nothing_left_of(struck)
        await stage.both_serve()
    assert {result.kind for result in stage.results} == {"ok"}


@pytest.mark.anyio
@each_fault_when("idle")
async def test_idle(stage: Stage, fault: str, outcome: str, anyio_backend: Any) -> None:
    # That a worker stands still shows when it is given work.
    async with stage.played(lost=outcome == LOST, redispatched=fault == "SIGSTOP"):
        async with stage.one_under_way():
            struck = (await stage.rollout("strike when idle", fault)).output
            stage.fifos["trigger"].let_through(1)
            if outcome == LIVES:
                assert await stage.fifos["survivors"].numbers(1) == [struck]
            elif fault == "SIGSTOP":
                await stopped(struck)
            else:
                await gone(struck)
                await nothing_left_of(struck)
        await stage.both_serve()
        await nothing_left_of(struck, but=struck)
    assert {result.kind for result in stage.results} == {"ok"}


@pytest.mark.anyio
@each_fault_when("busy")
async def test_busy(stage: Stage, fault: str, outcome: str, anyio_backend: Any) -> None:
    struck: list[Result] = []

    async def strike() -> None:
        struck.append(await stage.rollout("strike", fault))

    lost = outcome == LOST or fault == "memory hog"
    async with stage.played(lost=lost, redispatched=outcome == LOST):
        async with stage.one_under_way():
            async with anyio.create_task_group() as rollouts:
                rollouts.start_soon(strike)
                (worker,) = await stage.arrived()
                for _ in range(4):
                    rollouts.start_soon(stage.rollout, "answer")
            await nothing_left_of(worker, but=0 if lost else worker)
        await stage.both_serve()
    assert Counter(result.kind for result in stage.results)["ok"] == len(stage.results) - (outcome == FAILS)
    if outcome == FAILS:
        assert str(struck[0].error) == "run: MemoryError"
    if "flood" in fault:
        assert "characters left out" in struck[0].log
        assert len(struck[0].log) < 32_768


@pytest.mark.anyio
@each_fault_when("stopping")
async def test_stopping(stage: Stage, fault: str, outcome: str, anyio_backend: Any) -> None:
    assert outcome == ENDS
    async with stage.played(recycled=1):
        async with stage.one_under_way():
            struck = (await stage.rollout("strike at the end", fault)).output
            await stage.rollout("answer", sandbox=ANOTHER)  # for which an idle worker has to go
            await gone(struck)
            await nothing_left_of(struck)
        await stage.both_serve(SANDBOX, ANOTHER)
    assert {result.kind for result in stage.results} == {"ok"}


def test_the_table_is_complete() -> None:
    assert set(MATRIX) == set(runpy.run_path(f"{HERE / MODULE}.py")["FAULTS"])
    for fault, outcomes in MATRIX.items():
        assert len(outcomes) == len(STATES), fault
        for state, outcome in zip(STATES, outcomes, strict=True):
            tested = {cell.values[0] for cell in cells(state)}
            assert (fault in tested) != (isinstance(outcome, Impossible) and bool(outcome.reason))

"""The executors that one behaviour suite is run against, and the line between its tests and their actors."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.executors import InlineExecutor, ProcessExecutor, ThreadExecutor
from adescent.executors.local import LocalExecutor
from adescent.executors.threads import ThreadPool
from adescent.policies import Actors, Executor
from adescent.refs import Ref, Resolver
from adescent.sandbox import Workspaces
from adescent.tasks import Task
from adescent.workspec import RolloutSpec

SIZE = 4
"""Threads of each local executor under test."""
WORKERS = 2
"""Processes of the other one."""
BOUND = 30.0

Make = Callable[[float], LocalExecutor]


# Executors that take functions ----------------------------------------------------------------------------------------


@pytest.fixture(params=["inline", "thread"])
def make(request: pytest.FixtureRequest) -> Make:
    """A maker of executors; its argument is the grace for blocked threads in seconds."""
    if request.param == "inline":
        return lambda grace: InlineExecutor(threads=ThreadPool(SIZE, grace))
    return lambda grace: ThreadExecutor(SIZE, grace)


@pytest.fixture
def local_executor(make: Make) -> LocalExecutor:
    """An executor that waits long for its threads; not open yet."""
    return make(30.0)


# Executors of all kinds -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def importable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The modules of actors beside this file can be imported, and one that exits when it is."""
    exiting = tmp_path_factory.mktemp("actors") / "exiting_actors.py"
    exiting.write_text("raise SystemExit(4)\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(exiting.parent))
        patch.syspath_prepend(str(Path(__file__).parent))
        yield


@pytest.fixture(scope="module", params=["inline", "thread", "process"])
def where(request: pytest.FixtureRequest) -> str:
    """Where rollouts run. Of module scope, so that the tests of one kind follow each other."""
    kind: str = request.param
    return kind


@pytest.fixture
def fresh(where: str, importable: None) -> Callable[..., Executor]:
    """A maker of executors of one kind, each its own; not open yet."""
    if where == "inline":
        return lambda **options: InlineExecutor(threads=ThreadPool(SIZE, 30.0), **options)
    if where == "thread":
        return lambda **options: ThreadExecutor(SIZE, 30.0, **options)
    return lambda **options: ProcessExecutor(WORKERS, **options)


@pytest.fixture
def executor(where: str, open_pool: ProcessExecutor | None, fresh: Callable[..., Executor]) -> Executor:
    """An executor to be entered by the test: one of its own, but for that of processes, which outlives the test.

    Starting processes is what costs, and nothing in these tests ends one.
    """
    return fresh() if open_pool is None else open_pool


@pytest.fixture(scope="module")
async def open_pool(
    where: str, importable: None, anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProcessExecutor | None]:
    """Processes, all of them started: what a test finds started is not what it left behind."""
    if where != "process":
        yield None
        return
    places = Workspaces(tmp_path_factory.mktemp("places"))  # where nobody has left anything to be reaped
    async with ProcessExecutor(WORKERS, provider=places) as executor:
        with Line(tmp_path_factory.mktemp("line")) as line, anyio.fail_after(BOUND):
            async with anyio.create_task_group() as group:
                view = executor.attach_actors(_actors("gate", "full"))
                for _ in range(WORKERS):
                    group.start_soon(view.rollout, RolloutSpec("", Task("t", line.path)))
                for _ in range(WORKERS):
                    await line.begun()
                line.go(WORKERS)
        before = executor.statistics()
        assert before.idle == WORKERS
        yield executor
        assert executor.statistics() == before


# Actors by name -------------------------------------------------------------------------------------------------------


def _ref(name: str, **config: Any) -> Ref:
    return Ref(f"behaviour_actors:{name}", config, call=bool(config))


def _actors(run: str | Ref, reward: str | Ref = "full", **more: Any) -> Actors:
    run, reward = (_ref(actor) if isinstance(actor, str) else actor for actor in (run, reward))
    return Actors(run, reward, **{"resolver": Resolver(("behaviour_actors:", "exiting_actors:")), **more})


@pytest.fixture(scope="session")
def ref() -> Callable[..., Ref]:
    """The Ref to an actor of the suite; with a config, to the factory of one."""
    return _ref


@pytest.fixture(scope="session")
def actors() -> Callable[..., Actors]:
    """Actors of the suite, by their names or Refs."""
    return _actors


class Line:
    """Two named pipes from a test to actors, wherever they are: who has begun, and who may go on."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory)
        ends = []
        for name in ("begun", "go"):
            os.mkfifo(directory / name)
            ends.append(os.open(directory / name, os.O_RDWR | os.O_NONBLOCK))
        self._begun, self._go = ends
        self._heard = b""

    async def begun(self) -> int:
        """Wait for the next actor that says so; the number of its process."""
        while b"\n" not in self._heard:
            await anyio.wait_readable(self._begun)
            self._heard += os.read(self._begun, 1024)
        pid, _, self._heard = self._heard.partition(b"\n")
        return int(pid)

    def go(self, count: int = 1) -> None:
        """Let so many of them go on."""
        os.write(self._go, b"." * count)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._begun)
        os.close(self._go)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with Line(tmp_path) as opened:
        yield opened

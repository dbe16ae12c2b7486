"""A worker process at the end of its pipes, and a parent that says exactly what a test has it say."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

import pytest

import adescent
from adescent.executors.framing import FrameDecoder, frame
from adescent.executors.wire import (
    VERSION,
    ArtifactText,
    Done,
    Failed,
    Hello,
    Job,
    Log,
    Message,
    Ready,
    Run,
    decode,
    encode,
)

BOUND = 30.0
ACTORS = "scripted_actors"
PACKAGE = str(Path(adescent.__file__).parents[1])

Kind = TypeVar("Kind")


class Worker:
    """One child and the parent's ends of its pipes. Nothing of it waits longer than `BOUND`."""

    def __init__(self, workspace: Path, **environment: str) -> None:
        self.workspace = workspace
        lifeline, self.lifeline = os.pipe()
        reads, self.into = os.pipe()
        self.out, writes = os.pipe()
        self.err, errors = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "adescent.executors.child", str(reads), str(writes)],
            stdin=lifeline,
            stdout=errors,
            stderr=errors,
            pass_fds=(reads, writes),
            cwd=workspace,
            env={**os.environ, "PYTHONPATH": PACKAGE, **environment},
            start_new_session=True,
        )
        for theirs in (lifeline, reads, writes, errors):
            os.close(theirs)
        self._decoder = FrameDecoder()
        self._heard: list[Message] = []
        self.printed = b""
        self.jobs = 0

    # What it is told --------------------------------------------------------------------------------------------------

    def send(self, *messages: Message) -> None:
        self.send_bytes(b"".join(part for message in messages for part in frame(encode(message))))

    def send_bytes(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.into, data) :]

    def greet(self, **hello: Any) -> Message:
        path = [str(Path(__file__).parent), PACKAGE, *sys.path]
        self.send(
            Hello(**{"version": VERSION, "path": path, "workspace": str(self.workspace), "level": "none", **hello})
        )
        return self.next()

    def has(self, run: str | None = "run", reward: str | None = None, **job: Any) -> int:
        """Make known a job with actors of the module beside this one; its number."""
        self.jobs += 1
        self.send(Job(self.jobs, _named(run), _named(reward), **{"allow": [f"{ACTORS}:", "exiting_actors:"], **job}))
        return self.jobs

    def begin(self, lease: int, code: str = "", job: int = 1, artifact: str = "artifact", **run: Any) -> None:
        self.send(Run(lease, job, artifact, f"task {lease}", dedent(code), **run))

    # What it says -----------------------------------------------------------------------------------------------------

    def next(self) -> Message:
        """The next message. Raises EOFError when it has closed its pipe."""
        deadline = time.monotonic() + BOUND
        while not self._heard:
            ready, _, _ = select.select([self.out, self.err], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing heard; it printed {self.printed[-2000:]!r}")
            if self.err in ready:
                self.printed += os.read(self.err, 2**16)
            if self.out in ready:
                data = os.read(self.out, 2**16)
                if not data:
                    raise EOFError(self.rest())
                self._heard += map(decode, self._decoder.feed(data))
        return self._heard.pop(0)

    def expect(self, kind: type[Kind]) -> Kind:
        message = self.next()
        assert isinstance(message, kind), (message, self.printed)
        return message

    def answer(self, *args: Any, **kwargs: Any) -> tuple[Done | Failed, str]:
        """Begin a rollout and wait until it has ended: its answer, and what it has logged."""
        self.begin(*args, **kwargs)
        log = ""
        while not isinstance(message := self.next(), Done | Failed):
            log += message.text if isinstance(message, Log) else ""
        return message, log

    def output(self, *args: Any, **kwargs: Any) -> Any:
        """The output of a rollout in which nothing goes wrong."""
        answer, _ = self.answer(*args, **kwargs)
        assert isinstance(answer, Done), (answer, self.printed)
        return answer.output

    def failure(self, *args: Any, **kwargs: Any) -> Failed:
        """How a rollout fails."""
        answer, _ = self.answer(*args, **kwargs)
        assert isinstance(answer, Failed), answer
        return answer

    def rest(self) -> str:
        """Everything it has printed past its rollouts, up to the end of it and of all that it has started."""
        while select.select([self.err], [], [], BOUND)[0] and (data := os.read(self.err, 2**16)):
            self.printed += data
        return self.printed.decode()

    # How it ends ------------------------------------------------------------------------------------------------------

    def stop_talking(self) -> None:
        os.close(self.into)
        self.into = -1

    def let_go(self) -> None:
        """Be gone, as far as it can tell."""
        os.close(self.lifeline)
        self.lifeline = -1

    def exit_code(self) -> int:
        return self.process.wait(BOUND)

    def close(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(BOUND)
        for end in (self.lifeline, self.into, self.out, self.err):
            if end >= 0:
                os.close(end)


def _named(actor: str | None) -> dict[str, Any] | None:
    if actor is None:
        return None
    return {"$ref": actor if ":" in actor else f"{ACTORS}:{actor}", "config": {}, "call": False}


@contextmanager
def workers(folder: Path) -> Iterator[Callable[..., Worker]]:
    """A maker of workers that have been told nothing yet; all are gone at the end."""
    made: list[Worker] = []

    def spawn(**environment: str) -> Worker:
        workspace = folder / f"workspace {len(made)}"
        workspace.mkdir()
        made.append(Worker(workspace, **environment))
        return made[-1]

    try:
        yield spawn
    finally:
        for worker in made:
            worker.close()


def made_ready(worker: Worker, **hello: Any) -> Worker:
    assert isinstance(message := worker.greet(**hello), Ready), message
    worker.send(ArtifactText("artifact", "the artifact"))
    worker.has("run")
    worker.has("arun", "ajudge")
    return worker


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start a worker that has been told nothing yet."""
    with workers(tmp_path) as spawn:
        yield spawn


@pytest.fixture
def start(spawn: Callable[..., Worker]) -> Callable[..., Worker]:
    """Start a worker that is ready. Job 1 runs what a task's prompt says, as code; job 2 awaits that, and a scorer."""
    return lambda environment=(), **hello: made_ready(spawn(**dict(environment)), **hello)


@pytest.fixture
def worker(start: Callable[..., Worker]) -> Worker:
    """A worker that is ready, and the test's own."""
    return start()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that is ready, for all tests of a module that leave it in peace."""
    with workers(tmp_path_factory.mktemp("patient")) as spawn:
        yield made_ready(spawn())


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> str:
    """The kind of loop that async actors run on."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def looping(tmp_path_factory: pytest.TempPathFactory, loop: str) -> Iterator[Worker]:
    """The same for async actors."""
    with workers(tmp_path_factory.mktemp("looping")) as spawn:
        yield made_ready(spawn(), loop=loop)

"""Real interpreters, confined, and what the intruder in them achieved."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from adescent.sandbox import Level, bubblewrap, bubblewrap_command, interpreter_paths, landlock

INTRUDER = Path(__file__).with_name("intruder.py")
REPOSITORY = Path(__file__).parents[2]
SECONDS = 40
SCRATCH_MB = 16


KEYCTL = {"x86_64": 250}
VALUE = ctypes.c_uint64(42)
"""Something in this process that can be read from another one, if that is allowed to."""


@frozen
class Place:
    """A workspace, what lies beside it, and what listens there."""

    workspace: Path
    outside: Path
    shared: Path
    targets: dict[str, Any] = field(factory=dict)

    @staticmethod
    def need(level: Level) -> None:
        """Skip the test where ``level`` cannot be reached."""
        reason = ""
        if level == "landlock":
            reason = landlock.missing()
        elif level == "bubblewrap":
            reason = bubblewrap.missing(network=False)
        if reason:
            pytest.skip(f"{level}: {reason}")

    def command(
        self,
        level: Level,
        *attempts: str,
        network: bool = False,
        memory_mb: int | None = 512,
        readable: tuple[Path, ...] = (),
        **given: Any,
    ) -> list[str]:
        """How an intruder is started that confines itself to ``level`` and tries the ``attempts``, in order."""
        paths = [*interpreter_paths(), str(INTRUDER), str(self.shared), *map(str, readable)]
        confinement = {
            "level": level,
            "workspace": str(self.workspace),
            "memory_mb": memory_mb,
            "network": network,
            "readable": paths,
        }
        words = {"confinement": confinement, "attempts": attempts, "parent": os.getpid(), **self.targets, **given}
        argv = [sys.executable, "-B", str(INTRUDER), json.dumps(words)]
        if level != "bubblewrap":
            return argv
        return bubblewrap_command(
            argv, workspace=str(self.workspace), network=network, readable=paths, tmp_mb=SCRATCH_MB
        )

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """A process in a session of its own; its output is a pipe."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.workspace,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, self.shared, *sys.path))),
            },
            start_new_session=True,
            **options,
        )

    @contextmanager
    def started(self, command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A process whose whole group is killed at the end."""
        with self.start(command, **options) as process:
            try:
                yield process
            finally:
                end(process)

    def attempt(self, level: Level, *attempts: str, **options: Any) -> dict[str, Any]:
        """What came of each attempt: what it returned, or a text that begins with an exclamation mark."""
        with self.started(self.command(level, *attempts, **options)) as process:
            said = read_line(process)
            process.wait(SECONDS)
            end(process)  # what it left may hold the pipe of errors open
            assert process.stderr is not None
            errors = process.stderr.read().decode(errors="replace")
        if process.returncode:
            raise AssertionError(f"the intruder ended with {process.returncode}: {errors[-2000:]}")
        found: dict[str, Any] = json.loads(said)
        assert found.pop("level") == level
        return found

    def exit_code(self, level: Level, attempt: str, **options: Any) -> int:
        """How an intruder ended that did not outlive its attempt."""
        with self.started(self.command(level, attempt, **options)) as process:
            return process.wait(SECONDS)


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """What a process says first; the intruder's alarm bounds the wait."""
    assert process.stdout is not None
    return process.stdout.readline()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, as a pool does."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass


@pytest.fixture(scope="module")
def module_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One place for all tests of a module."""
    with _made_in(tmp_path_factory.mktemp("place")) as place:
        yield place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place of a test's own."""
    with _made_in(tmp_path) as place:
        yield place


@contextmanager
def _made_in(directory: Path) -> Iterator[Place]:
    place = Place(directory / "workspace", directory / "outside", directory / "shared")
    for path in (place.workspace, place.outside, place.shared):
        path.mkdir()
    for name in ("secret", "to be emptied", "to be removed", "to be moved"):
        (place.outside / name).write_text("secret")
    (place.shared / "scorer.py").write_text("NAME = 'neighbour'\n")
    with ExitStack() as stack:
        place.targets.update(_listeners(place.outside, stack))
        place.targets.update(outside=str(place.outside), shared=str(place.shared))
        place.targets.update({"address of a value": ctypes.addressof(VALUE)})
        place.targets.update(keyctl=KEYCTL.get(platform.machine(), 219))
        yield place


def _listeners(outside: Path, stack: ExitStack) -> dict[str, Any]:
    tcp, program, named = (
        stack.enter_context(socket.socket(family)) for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_UNIX)
    )
    tcp.bind(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    with _inside(outside):  # the path of a socket must be short
        program.bind("socket")
    name = f"adescent-test-{os.getpid()}-{port}"
    named.bind(f"\0{name}")
    for listening in (tcp, program, named):
        listening.listen()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        free = unused.getsockname()[1]
    return {"tcp": port, "free": free, "name": name}


@contextmanager
def _inside(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)

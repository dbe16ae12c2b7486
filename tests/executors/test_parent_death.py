"""However abruptly a process with workers ends, and whatever they are at: none of them outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from adescent.sandbox import Level, reach
from adescent.workspec import SandboxSpec

BOUND = 30.0
MOST = 1.0
"""Seconds in which everything has to be gone; in fact it takes a few milliseconds."""
WORKERS, CHILDREN = 6, 2
"""Those that are there on every level, and what one of them has started."""
HERE = Path(__file__).parent

PARENT = """
import os, sys, time
from pathlib import Path
import anyio
from adescent.executors import ProcessExecutor
from adescent.executors.pool import Pool
from adescent.executors.wire import Checkpoint
from adescent.policies import Actors
from adescent.refs import Ref
from adescent.tasks import Task
from adescent.workspec import RolloutSpec, SandboxSpec

backend, level, death, place, here = sys.argv[1:]
sys.path[:0] = [place, here]
ACTOR = {name: Ref(f"faulty_actors:{name}", call=False) for name in ("run", "never_end", "never_end_on_a_loop", "full")}
ENDLESS = ("in Python", "in C", "among its children", "stopped")
begun, begins = anyio.Semaphore(0), Pool._take_in

def take_in(pool, worker, message, now):
    begins(pool, worker, message, now)
    if isinstance(message, Checkpoint):
        begun.release()

Pool._take_in = take_in

def spec(name, prompt, **meta):
    return RolloutSpec("", Task("t", prompt, meta), run=ACTOR[name], reward=ACTOR["full"])

async def hang_at_start(executor, tasks):
    arrivals = os.open(f"{place}/arrivals", os.O_RDWR | os.O_NONBLOCK)
    Path(place, "order-1").write_text(f"never ready\\n{place}/arrivals")
    tasks.start_soon(executor.rollout, spec("run", "", do="answer"))
    await anyio.wait_readable(arrivals)

async def main():
    sandbox = SandboxSpec(level=level, require=True)
    async with ProcessExecutor(7, sandbox=sandbox, allow=("faulty_actors:",)) as executor:
        async with anyio.create_task_group() as tasks:
            for prompt in ENDLESS:
                tasks.start_soon(executor.rollout, spec("never_end", prompt))
            tasks.start_soon(executor.rollout, spec("never_end_on_a_loop", ""))
            for _ in range(5):
                await begun.acquire()
            if level == "limits":
                await hang_at_start(executor, tasks)
            await executor.rollout(spec("run", "", do="answer"))
            if death == "leaves a copy" and os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            print("ready", flush=True)
            await anyio.wait_readable(0)
            if death == "leaves at once":
                os._exit(3)
            raise LookupError("what the loop does not survive")

anyio.run(main, backend=backend)
"""
SITECUSTOMIZE = """
from pathlib import Path
import faulty_actors
faulty_actors.at_start(Path(__file__).parent)
"""


@contextmanager
def parent(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process with workers: one idle, five at what never ends, and at ``limits`` one that hangs at its start."""
    command = [sys.executable, "-c", PARENT, *arguments, str(HERE)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, cwd=HERE.parents[1], **pipes) as process:  # type: ignore[call-overload]
        try:
            assert select.select([process.stdout], [], [], BOUND)[0]
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            yield process
        finally:
            process.kill()


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listing.read_text().split()):
            found += [child, *descendants(child)]
    return found


def exits_of(pids: list[int], until: ExitStack) -> dict[int, int]:
    """What becomes readable when each of these ends, and which it is."""
    exits = {os.pidfd_open(pid): pid for pid in pids}
    for exit_ in exits:
        until.callback(os.close, exit_)
    return exits


def survivors(exits: dict[int, int], seconds: float) -> list[int]:
    """Those that have not ended after so many seconds."""
    left, deadline = dict(exits), time.monotonic() + seconds
    while left and (ended := select.select([*left], [], [], max(0.0, deadline - time.monotonic()))[0]):
        for exit_ in ended:
            del left[exit_]
    return list(left.values())


def end(exits: dict[int, int]) -> None:
    for pid in survivors(exits, 0.0):
        os.kill(pid, signal.SIGKILL)


CASES = [
    ("asyncio", "limits", "is killed"),
    ("trio", "limits", "is killed"),
    ("asyncio", "limits", "leaves at once"),
    ("trio", "limits", "raises"),
    ("asyncio", "limits", "leaves a copy"),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("trio", "limits", "leaves at once"),
            ("asyncio", "limits", "raises"),
            *(
                (loop, level, "is killed")
                for loop in ("asyncio", "trio")
                for level in ("none", "landlock", "bubblewrap")
            ),
        )
    ),
]


@pytest.mark.parametrize(("backend", "level", "death"), CASES)
def test_no_worker_outlives_its_parent(backend: str, level: Level, death: str, tmp_path: Path) -> None:
    if reach(SandboxSpec(level=level)) != level:
        pytest.skip(f"{level} cannot be had on this machine")
    os.mkfifo(tmp_path / "arrivals")
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    with ExitStack() as until, parent(backend, level, death, str(tmp_path)) as process:
        pids = descendants(process.pid)
        assert len(pids) >= WORKERS + CHILDREN
        exits = exits_of(pids, until)
        until.callback(end, exits)
        if death == "leaves a copy":
            exits = {exit_: pid for exit_, pid in exits.items() if os.getpgid(pid) != os.getpgid(process.pid)}
        if death in ("is killed", "leaves a copy"):
            process.kill()
        else:
            process.communicate("now\n", BOUND)
        process.wait(BOUND)
        assert survivors(exits, MOST) == []

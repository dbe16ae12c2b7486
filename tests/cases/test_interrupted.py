"""Ctrl-C ends a run that works in a process of its own: typed, told to who watches, soon, and nothing kept is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from adescent.evolution import Evolution
from adescent.ledger import GitLedger

BOUND = 30.0
PROMPT = 15.0
"""Seconds a child may take to be gone; less than the five that a blocked thread is waited for."""

CHILD = """
import json, signal, sys, threading
import anyio
from adescent.evolution import Evolution, async_evolve, evolve

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell without a terminal may have it ignored
how, place, stuck = sys.argv[1:]
proposals, events = 0, []
committed, seen = anyio.Event(), threading.Event()

async def run(rendered, task):
    return task.prompt in rendered.split()

async def reward(task, output):
    return float(output)

def count():
    global proposals
    proposals += 1
    return proposals

async def propose(rendered, task, output, score):
    number = count()
    if number > 2:
        await committed.wait()
        if number == 4:
            await anyio.wait_all_tasks_blocked()  # trio interrupts whatever is at work, and that might be who watches
            print("ready", flush=True)
        await anyio.sleep_forever()
    return task.prompt

def block(rendered, task, output, score):
    number = count()
    if number > 2:
        seen.wait()
        if number == 4:
            print("ready", flush=True)
        threading.Event().wait()
    return task.prompt

async def on_event(event):
    events.append(event)
    if type(event).__name__ == "ArtifactCommitted":
        committed.set()
        seen.set()

options = {
    "tasks": [{"id": f"t{number}", "prompt": f"lesson-{number % 6}"} for number in range(30)],
    "reward": reward, "run": run, "propose": block if stuck == "thread" else propose,
    "n_workers": 2, "rounds": 50, "run_dir": place, "on_event": on_event,
}

async def awaited():
    return await async_evolve(**options)

async def held():
    async with Evolution(**options) as evolution:
        return await evolution.result()

try:
    if how in ("rounds", "stream"):
        evolve(schedule=how, **options)
    else:
        function, backend = how.split(" on ")
        anyio.run({"awaited": awaited, "held": held}[function], backend=backend)
except KeyboardInterrupt:
    last = events[-1]
    told = [type(last).__name__, getattr(last, "stop_reason", ""), len(getattr(last, "under_way", ()))]
    print(json.dumps(told), flush=True)
    sys.exit(130)
"""


@contextmanager
def child(how: str, place: Path, stuck: str = "loop") -> Iterator[subprocess.Popen[str]]:
    """A child that has committed once and now waits in two proposals."""
    command = [sys.executable, "-c", CHILD, how, str(place), stuck]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", ["rounds", "stream", "awaited on asyncio", "awaited on trio", "held on trio"])
def test_one_ctrl_c_ends_the_run_and_tells_what_was_under_way(how: str, tmp_path: Path) -> None:
    with child(how, tmp_path / "run") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PROMPT)
    assert (process.returncode, err) == (130, "")
    assert json.loads(out) == ["RunFinished", "cancelled", 2]
    goes_on(tmp_path / "run")


@pytest.mark.parametrize(
    ("how", "stuck", "seconds"),
    [
        ("rounds", "loop", PROMPT),
        ("rounds", "thread", PROMPT),
        ("awaited on trio", "loop", PROMPT),
        # There an interrupt ends one task and not the loop, so that a thread is waited for all the same.
        pytest.param("awaited on trio", "thread", BOUND, marks=pytest.mark.slow),
    ],
)
def test_a_second_ctrl_c_does_no_harm_and_waits_for_no_thread(
    how: str, stuck: str, seconds: float, tmp_path: Path
) -> None:
    with child(how, tmp_path / "run", stuck) as process:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=seconds)
    # The second may find an interpreter that has done its work and handles no signals any more.
    assert process.returncode in (130, -signal.SIGINT)
    goes_on(tmp_path / "run")


def goes_on(place: Path) -> None:
    """What was committed is there, and a run of the same configuration continues from it."""
    with closing(GitLedger(place / "ledger.git")) as ledger:
        assert ledger.head("artifact").version >= 2
    check = subprocess.run(["git", "-C", place / "ledger.git", "fsck", "--strict"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    assert Evolution.load(place) is None


def test_the_signal_handlers_of_the_host_are_its_own_again(rows: Any, actors: Any, score: Any) -> None:
    from adescent.evolution import evolve

    before = signal.getsignal(signal.SIGINT)
    evolve(rows, score, **actors, rounds=1)
    assert signal.getsignal(signal.SIGINT) is before

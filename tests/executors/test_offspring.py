"""What rollouts start and leave running, and how long that lives."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_readable

from adescent.executors import ProcessExecutor
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.sandbox import reach
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

pytestmark = [pytest.mark.anyio, pytest.mark.mainly("trio"), pytest.mark.usefixtures("importable", "anyio_backend")]

BOUND = 30.0
MODULE = "faulty_actors"


def sleepers(seconds: str) -> list[int]:
    """The processes that sleep for so long."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(int(command.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


async def gone(seconds: str, *pids: int) -> None:
    """Wait until these have ended, and whatever else sleeps for so long: they have been killed, or are about to be."""
    with anyio.fail_after(2.0):
        for pid in pids:  # by number, since a process has no command for a moment when it is about to run another one
            await ended(pid)
        while sleeping := sleepers(seconds):
            await ended(sleeping[0])


async def ended(pid: int) -> None:
    try:
        exit_ = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await wait_readable(exit_)
    finally:
        os.close(exit_)


@pytest.fixture
def seconds() -> Iterator[str]:
    """How long the processes of this test sleep, if nobody ends them; the test itself does so in the end."""
    chosen = f"{random.uniform(3000, 4000):.9f}"
    yield chosen
    for pid in sleepers(chosen):
        os.kill(pid, signal.SIGKILL)


def pool(level: Any, run: str | Ref) -> ProcessExecutor:
    run = Ref(f"{MODULE}:{run}", call=False) if isinstance(run, str) else run
    actors = Actors(run, Ref(f"{MODULE}:full", call=False), resolver=Resolver((f"{MODULE}:",)))
    return ProcessExecutor(1, actors=actors, sandbox=SandboxSpec(level=level))


async def roll_out(executor: ProcessExecutor, prompt: str) -> Result:
    result = await executor.rollout(RolloutSpec("", Task("t", prompt)))
    assert result.kind == "ok", result
    return result


@pytest.mark.parametrize("run", ["leave_a_child", "leave_a_family"])
async def test_what_a_rollout_leaves_running_ends_with_it_and_its_worker_goes_on(seconds: str, run: str) -> None:
    with anyio.fail_after(BOUND):
        async with pool("limits", run) as executor:
            first = await roll_out(executor, seconds)
            second = await roll_out(executor, seconds)
            await gone(seconds, first.output[1], second.output[1])
    assert first.output[0] == second.output[0]


async def test_what_actors_need_to_be_there_stays_as_long_as_they_do(seconds: str) -> None:
    with anyio.fail_after(BOUND):
        async with pool("limits", Ref(f"{MODULE}:with_a_server", {"seconds": seconds})) as executor:
            for _ in range(3):
                assert (await roll_out(executor, "")).output is True
            assert len(sleepers(seconds)) == 1
        await gone(seconds)


async def test_where_nothing_is_confined_it_may_stay_and_ends_with_the_worker(seconds: str) -> None:
    with anyio.fail_after(BOUND):
        async with pool("none", "leave_a_child") as executor:
            _, child = (await roll_out(executor, seconds)).output
            await roll_out(executor, seconds)
            assert child in sleepers(seconds)
        await gone(seconds, child)


@pytest.mark.parametrize("level", ["limits", pytest.param("landlock", marks=pytest.mark.slow), "bubblewrap"])
async def test_what_becomes_a_daemon_is_stopped_by_namespaces_only(seconds: str, level: Any) -> None:
    if reach(SandboxSpec(level=level)) != level:
        pytest.skip(f"{level} cannot be had on this machine")
    with anyio.fail_after(BOUND):
        async with pool(level, "leave_a_daemon") as executor:
            await roll_out(executor, seconds)
        if level == "bubblewrap":
            await gone(seconds)
        else:
            assert len(sleepers(seconds)) == 1

"""A ceiling over processes, whatever becomes of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.sandbox.admission import Admission

BOUND = 30.0
CHILD = Path(__file__).with_name("admitting_child.py")

both_loops = pytest.mark.anyio


@contextmanager
def child(directory: Path, n: int, *what: object) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(CHILD), str(directory), str(n), *map(str, what)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(BOUND) == -signal.SIGKILL


async def all_free(admission: Admission) -> None:
    with anyio.fail_after(BOUND):
        async with AsyncExitStack() as inside:
            for _ in range(admission.n):
                await inside.enter_async_context(admission.admitted())


def in_line(directory: Path) -> int:
    return len(list((directory / "line").iterdir()))


def test_four_processes_never_pass_the_ceiling(tmp_path: Path) -> None:
    with ExitStack() as living:
        children = [living.enter_context(child(tmp_path, 2, "many", 4, 25)) for _ in range(4)]
        for process in children:
            assert [said(process), said(process), process.wait(BOUND)] == ["ready", "done", 0]
    anyio.run(all_free, Admission(2, tmp_path))
    assert in_line(tmp_path) == 0


@both_loops
async def test_who_uses_it_all_the_time_does_not_keep_others_out(anyio_backend: Any, tmp_path: Path) -> None:
    admission = Admission(1, tmp_path)
    with child(tmp_path, 1, "many", 8, 1_000_000) as greedy, anyio.fail_after(BOUND):
        assert said(greedy) == "ready"
        for _ in range(50):
            async with admission.admitted():
                pass


@both_loops
async def test_a_killed_holders_place_is_free_at_once(anyio_backend: Any, tmp_path: Path) -> None:
    admission = Admission(1, tmp_path)
    got_in = anyio.Event()

    async def wait() -> None:
        async with admission.admitted():
            got_in.set()

    with child(tmp_path, 1, "hold") as holder, anyio.fail_after(BOUND):
        assert said(holder) == "in"
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not got_in.is_set()
            killed(holder)
            await got_in.wait()


@both_loops
async def test_who_is_killed_in_line_leaves_it(anyio_backend: Any, tmp_path: Path) -> None:
    holder, behind = Admission(1, tmp_path), Admission(1, tmp_path)
    got_in = anyio.Event()

    async def wait() -> None:
        async with behind.admitted():
            got_in.set()

    with child(tmp_path, 1, "wait") as front, anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            async with holder.admitted():
                assert said(front) == "waiting"
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                killed(front)
                await anyio.wait_all_tasks_blocked()
                assert not got_in.is_set()
            await got_in.wait()
        await all_free(behind)  # and whoever comes next clears up
    assert in_line(tmp_path) == 0


@both_loops
async def test_who_is_stopped_in_line_keeps_one_place_back_and_not_all(anyio_backend: Any, tmp_path: Path) -> None:
    holder, behind = Admission(2, tmp_path), Admission(2, tmp_path)
    inside: list[int] = []

    async def wait(number: int) -> None:
        async with behind.admitted():
            inside.append(number)
            got_in.set()
            await leave.wait()

    with child(tmp_path, 2, "wait") as front, anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            got_in, leave = anyio.Event(), anyio.Event()
            async with holder.admitted(), holder.admitted():
                assert said(front) == "waiting"
                front.send_signal(signal.SIGSTOP)
                for number in range(2):
                    group.start_soon(wait, number)
                    await anyio.wait_all_tasks_blocked()
            await got_in.wait()
            await anyio.wait_all_tasks_blocked()
            assert inside == [0]
            front.send_signal(signal.SIGCONT)
            assert said(front) == "in"
            leave.set()
    assert inside == [0, 1]


def kill_at(directory: Path, call: int) -> None:
    """A process that is let in and out for ever kills itself, beside one that goes on and a wait that ends."""
    with child(directory, 2, "die", call) as dying, child(directory, 2, "many", 3, 30) as living:
        assert dying.wait(BOUND) == -signal.SIGKILL
        assert [said(living), said(living)] == ["ready", "done"]
    anyio.run(all_free, Admission(2, directory))
    assert in_line(directory) == 0


@pytest.mark.parametrize("call", [1, 8, 21, 34])
def test_killed_at_a_system_call(call: int, tmp_path: Path) -> None:
    kill_at(tmp_path, call)


@pytest.mark.slow
def test_killed_at_every_system_call(tmp_path: Path) -> None:
    for call in range(1, 50):
        kill_at(tmp_path, call)


@pytest.mark.slow
def test_killed_at_random_instants(tmp_path: Path) -> None:
    """Three go on for ever, one of them is killed and replaced again and again, and all the time others get in."""
    instants = random.Random(4)

    async def get_in(times: int) -> None:
        admission = Admission(2, tmp_path)
        with anyio.fail_after(BOUND):
            for _ in range(times):
                async with admission.admitted():
                    pass

    with child(tmp_path, 2, "many", 3, 1_000_000) as one, child(tmp_path, 2, "many", 3, 1_000_000) as other:
        for number in range(30):
            with child(tmp_path, 2, "many", 5, 1_000_000) as dying:
                assert said(dying) == "ready"
                try:
                    dying.wait(instants.uniform(0.0, 0.05))
                except subprocess.TimeoutExpired:
                    pass
                killed(dying)
            anyio.run(get_in, 5, backend="trio" if number % 2 else "asyncio")
        assert (one.poll(), other.poll()) == (None, None)
    anyio.run(all_free, Admission(2, tmp_path))
    assert in_line(tmp_path) == 0

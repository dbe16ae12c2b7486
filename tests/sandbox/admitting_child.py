"""A process that shares a ceiling.

usage: admitting_child.py DIRECTORY N hold               is let in, says so, and stays until its input ends
       admitting_child.py DIRECTORY N wait               waits, says so, and says again when it is let in
       admitting_child.py DIRECTORY N many TASKS TIMES   is let in TASKS x TIMES times, each time with a look at whether
                                                         there are too many, and says when all is well and done
       admitting_child.py DIRECTORY N die AT             the same without an end; kills itself at the AT-th system call
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

import anyio
from anyio.lowlevel import checkpoint

from adescent.sandbox.admission import Admission

CALLS = {"open", "os.listdir", "os.remove", "fcntl.fcntl"}


def die_at(call: int) -> None:
    left = call

    def watch(event: str, _: tuple[object, ...]) -> None:
        nonlocal left
        if event in CALLS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def say(what: str) -> None:
    print(what, flush=True)  # noqa: T201 - what it is for


def witness(directory: Path, n: int) -> int:
    """One of ``n`` locks of another kind. There is none where more than ``n`` have been let in."""
    for number in range(n):
        file = os.open(directory / f"witness-{number}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            return file
    sys.exit("too many have been let in")


async def hold(admission: Admission) -> None:
    async with admission.admitted():
        say("in")
        sys.stdin.read()


async def wait(admission: Admission) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(hold, admission)
        await anyio.wait_all_tasks_blocked()
        say("waiting")


async def many(admission: Admission, directory: Path, tasks: int, times: int) -> None:
    async def work() -> None:
        for _ in range(times):
            async with admission.admitted():
                file = witness(directory, admission.n)
                await checkpoint()
                os.close(file)

    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(work)
    say("done")


async def main(directory: Path, n: int, what: str, *numbers: int) -> None:
    admission = Admission(n, directory)
    if what == "hold":
        await hold(admission)
    elif what == "wait":
        await wait(admission)
    elif what == "many":
        say("ready")
        await many(admission, directory, *numbers)
    else:
        say("ready")
        die_at(*numbers)
        await many(admission, directory, 3, 1_000_000)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))

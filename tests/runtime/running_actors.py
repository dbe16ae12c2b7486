"""Actors of whole runs by name: a world of lessons whose tasks ask for one word each, at home in any process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def look_up(rendered: str, task: Any) -> bool:
    return task.prompt in rendered


async def look_up_async(rendered: str, task: Any) -> bool:
    from anyio.lowlevel import checkpoint

    for _ in range(sum(task.id.encode()) % 7):  # what began first need not come back first
        await checkpoint()
    return task.prompt in rendered


def looking(style: str) -> Callable[[str, Any], str]:
    def run(rendered: str, task: Any) -> str:
        return style if task.prompt in rendered else ""

    return run


def found(task: Any, output: object) -> float:
    return float(output is True)


async def found_async(task: Any, output: object) -> float:
    return found(task, output)


def lost_once(directory: str) -> Callable[[str, Any], bool]:
    """Looks up, but its process is killed when it does that for a task whose number can be divided by five first."""

    def run(rendered: str, task: Any) -> bool:
        seen = Path(directory, task.id)
        if int(task.id.strip("t")) % 5 == 0 and not seen.exists():
            seen.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task.prompt in rendered

    return run


def deadly(rendered: str, task: Any) -> bool:
    """Looks up; who does not know the first lesson dies of it."""
    if task.prompt == "lesson-0" and task.prompt not in rendered.split():
        print("about to look", flush=True)  # noqa: T201 - to be told
        os.kill(os.getpid(), signal.SIGSEGV)
    return task.prompt in rendered.split()


def stuck(directory: str) -> Callable[[str, Any], bool]:
    """Says who it is, and hangs."""

    def run(rendered: str, task: Any) -> bool:
        with Path(directory, "begun").open("ab", buffering=0) as begun:
            begun.write(b"%d\n" % os.getpid())
        time.sleep(3600)
        return False

    return run


def stuck_on(number: str) -> Callable[[str, Any], bool]:
    def run(rendered: str, task: Any) -> bool:
        if task.id == number:
            time.sleep(3600)
        return task.prompt in rendered

    return run


def named(variable: str) -> Callable[[str, Any], bool]:
    """What it knows is in its environment."""

    def run(rendered: str, task: Any) -> bool:
        return os.environ.get(variable) is not None and task.prompt in rendered

    return run

"""What the workers of every pool do: a task is ``(kind, argument, artifact, payload)``, all of them plain data.

=========  ============================================================================================================
``noop``   nothing; the answer is the number of characters of artifact and payload together
``sleep``  the same after ``argument`` seconds
``who``    the process id, after ``argument`` seconds
``exit``   ends its process by ``os._exit``     (these four do so once: ``argument`` is the path of a file that is
``kill``   ends its process by SIGKILL           made by the first attempt, so that a second one answers as ``noop``;
``crash``  ends its process by a bad pointer     with a path that starts with ``!`` every attempt does so)
``hang``   sleeps for an hour
=========  ============================================================================================================

It needs the standard library only: it is imported by the workers of every interpreter that takes part.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

DAMAGE = ("exit", "kill", "crash", "hang")
Task = tuple[str, Any, str, str]


def do(task: Task) -> int:
    """One task, as the pools that take a function and its argument call it."""
    kind, argument, artifact, payload = task
    if kind in DAMAGE and _is_first(argument):
        _damage(kind)
    elif kind in ("sleep", "who"):
        time.sleep(argument)
    return os.getpid() if kind == "who" else len(artifact) + len(payload)


def _is_first(path: str) -> bool:
    if path.startswith("!"):
        return True
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _damage(kind: str) -> None:
    if kind == "exit":
        os._exit(42)
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "crash":
        import ctypes

        ctypes.string_at(0)
    time.sleep(3600)


# The same as actors that are named by a Ref: the artifact is the rendered one, the payload stands in the task.


def run(rendered: str, task: Any) -> int:
    return do((task.meta["kind"], task.meta["argument"], rendered, task.prompt))


def run_mixed(rendered: str, task: Any) -> int:
    """As `run`, but tasks of the kind ``print`` print and those of the kind ``raise`` raise."""
    if task.meta["kind"] == "print":
        print(f"{task.id} prints a line")
    elif task.meta["kind"] == "raise":
        raise ValueError(f"{task.id} fails")
    return run(rendered, task)


def reward(task: Any, output: Any) -> float:
    return 1.0


def make_run() -> Any:
    return lambda rendered, task: str(run(rendered, task))


def make_reward() -> Any:
    return reward


# Waiting and computing, for the comparison of executors.

WAIT_SECONDS = 0.02
LOOPS = 150_000
"""About 5 ms of pure Python on the machine that the published figures come from."""


def wait() -> int:
    time.sleep(WAIT_SECONDS)
    return os.getpid()


def compute() -> int:
    """Pure Python that keeps one processor busy."""
    total = 0
    for number in range(LOOPS):
        total += number * number
    return os.getpid()


def run_wait(rendered: str, task: Any) -> int:
    return wait()


def run_compute(rendered: str, task: Any) -> int:
    return compute()


def bare(work: str) -> None:
    """A process with nothing around the work: a number in, so many done, a line out."""
    for line in sys.stdin:
        for _ in range(int(line)):
            {"wait": wait, "compute": compute}[work]()
        print(line, end="", flush=True)


if __name__ == "__main__":
    bare(sys.argv[1])

"""A solver that does what its rules say, whatever that is; for worker processes."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adescent.tasks import Score

HOUR = 3600.0

kept: list[object] = []


def loop_for_ever() -> None:
    while True:
        pass


def loop_in_c_for_ever() -> None:
    re.match(r"(a*)*b", "a" * 40)


def sleep_an_hour() -> None:
    time.sleep(HOUR)


def ignore_sigterm() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(HOUR)


def fork_a_sleeper() -> None:
    subprocess.Popen(["sleep", str(HOUR)])
    if os.fork() == 0:
        ignore_sigterm()
    time.sleep(HOUR)


def eat_memory() -> None:
    while True:
        kept.append(bytearray(16 << 20))


HOSTILE: dict[str, Callable[[], object]] = {
    "loop-for-ever": loop_for_ever,
    "loop-in-C-for-ever": loop_in_c_for_ever,
    "sleep-an-hour": sleep_an_hour,
    "ignore-SIGTERM": ignore_sigterm,
    "fork-a-sleeper": fork_a_sleeper,
}
DYING: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "eat-memory": eat_memory,
}


def solve(rendered: str, task: Any) -> bool:
    """Obeys the rules, having said so where the task asks for that, and knows the words in them."""
    rules = rendered.split()
    for rule, obey in {**HOSTILE, **DYING}.items():
        if rule in rules:
            if "fifo" in task.meta:
                Path(task.meta["fifo"]).write_text(f"{os.getpid()}\n")
            obey()
    return task.prompt in rules


def right(task: Any, output: object) -> Score:
    """Whether it was, and in which process that is said."""
    return Score(float(output is True), str(os.getpid()))

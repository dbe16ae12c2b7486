"""Actors for worker processes alone: what they import is what a worker of plain functions has loaded."""

# ruff: noqa: T201 - what is printed is among the things that are looked at
from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from adescent.errors import Transient
from adescent.tasks import Score, Task

FOREVER = 3600.0


def full(task: Task, output: object) -> float:
    return 1.0


async def full_async(task: Task, output: object) -> float:
    return 1.0


# Where it runs --------------------------------------------------------------------------------------------------------


def pid(rendered: str, task: Task) -> int:
    return os.getpid()


async def pid_async(rendered: str, task: Task) -> int:
    return os.getpid()


def modules(rendered: str, task: Task) -> list[str]:
    return sorted(sys.modules)


def counting() -> Callable[[str, Task], int]:
    """Counts the rollouts of one making of it."""
    calls: list[str] = []

    def run(rendered: str, task: Task) -> int:
        calls.append(rendered)
        return len(calls)

    return run


def here(rendered: str, task: Task) -> list[Any]:
    """Its working directory and what it finds there; it leaves something behind."""
    found = sorted(path.name for path in Path().iterdir())
    Path("left").mkdir(exist_ok=True)
    Path("left", "behind").write_text(rendered)
    return [str(Path.cwd()), found, os.environ["HOME"], os.environ.get("TMPDIR")]


def own_pool(rendered: str, task: Task) -> None:
    from adescent.executors import ProcessExecutor

    ProcessExecutor(1)


def on_signals(rendered: str, task: Task) -> str:
    """What only a main thread can, and only where no loop runs."""
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
    assert came
    return asyncio.run(answered("its own loop"))


async def answered(word: str) -> str:
    return word


# What it returns ------------------------------------------------------------------------------------------------------

OUTPUTS: dict[str, Callable[[], Any]] = {
    "a set": lambda: {1},
    "an object": object,
    "NaN": lambda: {"deep": [float("nan")]},
    "bytes": lambda: b"x",
    "a large integer": lambda: 2**64,
    "a lone surrogate": lambda: ["\ud800"],
    "a number for a key": lambda: {1: 2},
    "too deep": lambda: deep(100),
    "itself": lambda: cyclic(),
    "too large": lambda: "x" * (65 * 2**20),
    "tuples": lambda: (1, [(2,)], {"a": (3,)}),
    "mappings": lambda: MappingProxyType({"a": MappingProxyType({})}),
    "subclasses": lambda: [Word("a"), Number(1)],
}


class Word(str):
    __slots__ = ()


class Number(int):
    pass


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else []


def cyclic() -> Any:
    itself: list[Any] = []
    itself.append(itself)
    return itself


def giving(output: str) -> Callable[[str, Task], Any]:
    def run(rendered: str, task: Task) -> Any:
        print("before it")
        return OUTPUTS[output]()

    return run


def changing(rendered: str, task: Task) -> list[str]:
    """Changes what it is given."""
    task.meta["list"].append(rendered)
    return list(task.meta["list"])


def wordy(task: Task, output: object) -> Score:
    return Score(1.0, "\ud800", {"a": 1, "b": 0.5})


def unspeakable(rendered: str, task: Task) -> None:
    raise ValueError("\udc80")


def unscored(task: Task, output: object) -> Score:
    return Score(1.0, metrics={"a": "b"})  # type: ignore[dict-item]


# What it says ---------------------------------------------------------------------------------------------------------


def printing(rendered: str, task: Task) -> int:
    print("to", "standard output", rendered)
    sys.stderr.write("to standard error\n")
    logging.getLogger("actor").warning("to the log")
    os.write(1, b"past Python\n")
    subprocess.run(["/bin/echo", "from a child"], check=True)
    print("without an end", end="")
    return os.getpid()


def flooding(rendered: str, task: Task) -> None:
    print("the beginning")
    for _ in range(100):
        print("x" * 99_999)
    print("the end")


async def chatting(rendered: str, task: Task) -> str:
    for _ in range(3):
        print(rendered)
        await a_turn()
    return rendered


async def a_turn() -> None:
    from anyio.lowlevel import checkpoint  # here, so that a worker which never waits need not load it

    await checkpoint()


def interrupted(rendered: str, task: Task) -> None:
    raise KeyboardInterrupt


def stopping_stdout(rendered: str, task: Task) -> str:
    """Leaves the process in a state in which others cannot be expected to live."""
    sys.stdout.close()
    sys.stdout = None
    for descriptor in range(3):
        os.close(descriptor)
    os.open(os.devnull, os.O_RDONLY)
    os.chdir("/")
    return rendered


# Secrets --------------------------------------------------------------------------------------------------------------


def environment(rendered: str, task: Task) -> dict[str, str]:
    return dict(os.environ)


def leaking(rendered: str, task: Task, ctx: Any) -> dict[str, Any]:
    secret = os.environ["API_TOKEN"]
    print(f"printed {secret}")
    ctx.checkpoint({"kept": secret})
    if rendered == "raise":
        raise Transient(f"raised {secret}")
    if rendered == "die":
        os.write(2, f"died of {secret}\n".encode())
        os._exit(3)
    return {"deep": [{secret: f"<{secret}>"}]}


def leaking_feedback(task: Task, output: object) -> Score:
    return Score(1.0, f"the token is {os.environ['API_TOKEN']}")


def leaking_names(task: Task, output: object) -> Score:
    if task.prompt == "raise":
        raise type(os.environ["API_TOKEN"], (Exception,), {})
    return Score(1.0, metrics={os.environ["API_TOKEN"]: 2.0})


# How it ends ----------------------------------------------------------------------------------------------------------


def begin(task: Task) -> None:
    with Path(task.prompt, "begun").open("wb", buffering=0) as begun:
        begun.write(b"%d\n" % os.getpid())


def gate(rendered: str, task: Task) -> int:
    begin(task)
    with Path(task.prompt, "go").open("rb", buffering=0) as go:
        go.read(1)
    return os.getpid()


async def gate_async(rendered: str, task: Task) -> int:
    from anyio import wait_readable

    begin(task)
    go = os.open(Path(task.prompt, "go"), os.O_RDONLY | os.O_NONBLOCK)
    try:
        await wait_readable(go)
        os.read(go, 1)
    finally:
        os.close(go)
    return os.getpid()


def hanging(rendered: str, task: Task) -> None:
    if rendered == "hang":
        begin(task)
        time.sleep(FOREVER)


async def hanging_async(rendered: str, task: Task) -> None:
    from anyio import sleep_forever

    await sleep_forever()


def briefly(rendered: str, task: Task) -> int:
    time.sleep(0.01)
    return os.getpid()


def busy(rendered: str, task: Task) -> None:
    while rendered == "spin":
        pass


def greedy(rendered: str, task: Task) -> int:
    if rendered == "eat":
        print(len(bytearray(int(task.prompt) << 20)))
    return os.getpid()


def dying(rendered: str, task: Task, ctx: Any) -> list[Any]:
    """Dies at each step that ``rendered`` names, for the first time that it is there."""
    state = list(ctx.resume_state or [])
    print(f"resumed with {state}")
    for step in range(len(state), 5):
        if str(step) in rendered.split():
            ctx.checkpoint([*state, "died"])
            print(f"about to die at {step}")
            os._exit(step)
        state.append(step)
        ctx.checkpoint(state)
    return state


async def dying_async(rendered: str, task: Task, ctx: Any) -> list[Any]:
    await a_turn()
    return dying(rendered, task, ctx)


def doomed(rendered: str, task: Task, ctx: Any) -> None:
    ctx.checkpoint({"attempt after": ctx.resume_state})
    print("the last words")
    os.kill(os.getpid(), signal.SIGSEGV)


def deadly(task: Task, output: object) -> float:
    os._exit(7)


def threads(rendered: str, task: Task) -> int:
    return threading.active_count()


# Where run and reward are apart ---------------------------------------------------------------------------------------


def place(rendered: str, task: Task) -> str:
    """Workers are told apart by their directories: in a sandbox, numbers of processes may be its own."""
    return str(Path.cwd())


def by_whom(task: Task, output: object) -> Score:
    return Score(1.0, str(Path.cwd()))


def telling(rendered: str, task: Task, ctx: Any) -> dict[str, Any]:
    print("run prints")
    ctx.checkpoint({"kept": True})
    return {"meta": dict(task.meta), "resumed": ctx.resume_state}


def scoring(task: Task, output: dict[str, Any]) -> Score:
    print("reward prints")
    return Score(float("gold" not in output["meta"]), task.meta["gold"], {"seen": float(len(task.meta))})


def stuck(task: Task, output: object) -> float:
    begin(task)
    time.sleep(FOREVER)
    return 1.0


# What else code does --------------------------------------------------------------------------------------------------


def asking(rendered: str, task: Task) -> str:
    return input("who is there?")


def square(number: int) -> int:
    return number * number


def family(rendered: str, task: Task) -> list[int]:
    """Work shared out to processes of its own, as libraries do it."""
    import multiprocessing  # noqa: TID251 - whose code this is, it may

    with multiprocessing.get_context(rendered).Pool(2) as pool:
        return pool.map(square, range(5))

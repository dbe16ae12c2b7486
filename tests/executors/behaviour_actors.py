"""Actors for the suite that every executor passes, by name: workers import them, and so does the test's process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError, Transient
from adescent.tasks import Score, Task

# Who does what it should ----------------------------------------------------------------------------------------------


def echo(rendered: str, task: Task) -> str:
    return f"{rendered}:{task.id}"


async def echo_async(rendered: str, task: Task) -> str:
    await checkpoint()
    return f"{rendered}:{task.id}"


def echo_later(rendered: str, task: Task) -> Any:
    return echo_async(rendered, task)


class Echo:
    async def __call__(self, rendered: str, task: Task) -> str:
        return await echo_async(rendered, task)


def full(task: Task, output: object) -> float:
    return 1.0


async def full_async(task: Task, output: object) -> float:
    await checkpoint()
    return 1.0


def graded(task: Task, output: str) -> Score:
    return Score(0.5, f"half of {output}", {"length": float(len(output)), "count": 2})


async def graded_async(task: Task, output: str) -> Score:
    await checkpoint()
    return graded(task, output)


def answering(word: str) -> Callable[[str, Task], str]:
    return lambda rendered, task: word


def fixed(value: float) -> Callable[[Task, object], float]:
    return lambda task, output: value


def shout(rendered: str, task: Task) -> str:
    return rendered.upper()


async def whisper(rendered: str, task: Task) -> str:
    return rendered.lower()


def seeing(rendered: str, task: Task) -> dict[str, Any]:
    return {"prompt": task.prompt, **task.meta}


async def seeing_async(rendered: str, task: Task) -> dict[str, Any]:
    return seeing(rendered, task)


def as_golden(task: Task, output: dict[str, Any]) -> float:
    return float(task.meta["gold"] == "2" and output["prompt"] == task.prompt)


def documents(rendered: str, task: Task) -> dict[str, Any]:
    return {"text": "ä\U0001f600\x00\u2028", "numbers": [1, -(2**63), 1.5, 1e-300], "nothing": None, "deep": [[[{}]]]}


def shared(rendered: str, task: Task) -> dict[str, Any]:
    """What is changed in one rollout's task must not be seen in the next one's."""
    task.meta["list"].append(rendered)
    return {"list": list(task.meta["list"])}


def own_loop(rendered: str, task: Task) -> str:
    return anyio.run(echo_async, rendered, task)


def size(rendered: str, task: Task) -> int:
    return len(rendered)


# Who goes wrong -------------------------------------------------------------------------------------------------------


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("no"),
    "ContractError": lambda: ContractError("not like that"),
    "Transient": lambda: Transient("busy", 1.5),
    "Transient, without a word": Transient,
    "ConnectionResetError": lambda: ConnectionResetError("gone"),
    "TimeoutError": lambda: TimeoutError("late"),
    "PermissionError": lambda: PermissionError("no"),
    "a group that may pass": lambda: ExceptionGroup("all pass", [Transient("a", 2.0), ConnectionError()]),
    "a group that stays": lambda: ExceptionGroup("one stays", [Transient("a", 2.0), ValueError()]),
    "SystemExit": lambda: SystemExit(3),
    "StopAsyncIteration": StopAsyncIteration,
    "StopIteration": lambda: StopIteration("over"),
    "RecursionError": lambda: RecursionError("deep"),
    "Wordless": Wordless,
    "a long message": lambda: ValueError("x" * 100_000),
    "a lone surrogate": lambda: ValueError("\udc80"),
}


def made(error: str) -> BaseException:
    return ERRORS[error]()


def raising(error: str, waits: bool = False) -> Callable[..., Any]:
    def sync(first: object, second: object) -> Any:
        raise made(error)

    async def on_loop(first: object, second: object) -> Any:
        await checkpoint()
        raise made(error)

    return on_loop if waits else sync


def failing_on(number: str) -> Callable[[str, Task], str]:
    def run(rendered: str, task: Task) -> str:
        if rendered == number:
            raise ValueError(rendered)
        return rendered

    return run


VOID: dict[str, Any] = {
    "NaN": float("nan"),
    "inf": float("inf"),
    "-0.1": -0.1,
    "1e308": 1e308,
    "True": True,
    "text": "0.9",
    "None": None,
    "a Score": Score(2.0),
}


def void(score: str) -> Callable[[Task, object], Any]:
    return lambda task, output: VOID[score]


def exiting_factory() -> None:
    raise SystemExit(4)


def greedy(rendered: str) -> str:
    return rendered


# Who waits for a test -------------------------------------------------------------------------------------------------


def begin(task: Task) -> None:
    with Path(task.prompt, "begun").open("wb", buffering=0) as begun:
        begun.write(b"%d\n" % os.getpid())


def gate(rendered: str, task: Task) -> str:
    begin(task)
    with Path(task.prompt, "go").open("rb", buffering=0) as go:
        go.read(1)
    return rendered


async def gate_async(rendered: str, task: Task) -> str:
    begin(task)
    go = os.open(Path(task.prompt, "go"), os.O_RDONLY | os.O_NONBLOCK)
    try:
        await anyio.wait_readable(go)
        os.read(go, 1)
    finally:
        os.close(go)
    return rendered


async def never(rendered: str, task: Task) -> str:
    """Waits for ever where it is told to."""
    if rendered == "for ever":
        begin(task)
        await anyio.sleep_forever()
    return rendered

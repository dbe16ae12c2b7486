"""Actors that do what a task's prompt (or its meta, for scorers) says, as code. Workers import this."""

from __future__ import annotations

import inspect
from textwrap import indent
from typing import Any

from adescent.executors.context import RolloutContext
from adescent.tasks import Score, Task

SHARED: dict[str, Any] = {}
"""What one rollout leaves here, the next finds."""


def run(rendered: str, task: Task, ctx: RolloutContext) -> Any:
    scope: dict[str, Any] = {"rendered": rendered, "task": task, "ctx": ctx, "shared": SHARED}
    exec(compile(task.prompt, "<the task>", "exec"), scope)
    return scope.get("output")


async def arun(rendered: str, task: Task, ctx: RolloutContext) -> Any:
    scope: dict[str, Any] = {"rendered": rendered, "task": task, "ctx": ctx, "shared": SHARED}
    source = f"async def body():\n{indent(task.prompt or 'pass', '    ')}"
    exec(compile(source, "<the task>", "exec"), scope)
    return await scope["body"]()


def later(rendered: str, task: Task, ctx: RolloutContext) -> Any:
    return arun(rendered, task, ctx)


def two(rendered: str, task: Task) -> str:
    return f"{rendered}, {task.prompt}"


def one(rendered: str) -> str:
    return rendered


def judge(task: Task, output: Any) -> Any:
    scope: dict[str, Any] = {"task": task, "output": output, "Score": Score, "score": 1.0}
    exec(compile(task.meta.get("judge", ""), "<the judge>", "exec"), scope)
    return scope["score"]


async def ajudge(task: Task, output: Any) -> Any:
    verdict = judge(task, output)
    return await verdict if inspect.isawaitable(verdict) else verdict

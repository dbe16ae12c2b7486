"""Actors that say how far they are, by name, for workers in this process and in others."""

from __future__ import annotations

import threading
from typing import Any

from anyio.lowlevel import checkpoint

from adescent.executors.context import RolloutContext
from adescent.tasks import Task


def counting(rendered: str, task: Task, ctx: RolloutContext) -> list[int]:
    begun = step = ctx.resume_state or 0
    while step < 5:
        if rendered == f"fails at {step}":
            raise ValueError(step)
        step += 1
        ctx.checkpoint(step)
    return [begun, step]


async def counting_async(rendered: str, task: Task, ctx: Any = None) -> list[int]:
    begun = step = ctx.resume_state or 0
    while step < 5:
        if rendered == f"fails at {step}":
            raise ValueError(step)
        step += 1
        await checkpoint()
        await ctx.checkpoint(step)
    return [begun, step]


def adding(rendered: str, task: Task, ctx: RolloutContext) -> None:
    state = ctx.resume_state or {"z": [], "a": None}
    state["z"].append(rendered)
    ctx.checkpoint(state)
    state["z"].append("never kept")
    raise ValueError(rendered)


def spoiling(rendered: str, task: Task, ctx: RolloutContext) -> None:
    state: Any = ctx.resume_state
    state["z"] = "changed and not kept"
    raise ValueError(rendered)


def keeping(rendered: str, task: Task, state: RolloutContext) -> None:
    state.checkpoint({"steps": (1, 2)})
    state.checkpoint({"nothing": None, "a set": {"steps": {3}}}[rendered])


def from_a_thread(rendered: str, task: Task, ctx: RolloutContext) -> str:
    thread = threading.Thread(target=ctx.checkpoint, args=([rendered, task.id],))
    thread.start()
    thread.join()
    return rendered


async def unaware(rendered: str, task: Task, *more: object, **options: object) -> int:
    return len(more) + len(options)


def full(task: Task, output: object) -> float:
    return 1.0


def broken(task: Task, output: object) -> float:
    raise ConnectionError(output)

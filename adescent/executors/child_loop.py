"""A worker that has met an async actor: rollouts are performed on an event loop from then on.

The loop runs in a thread of its own: the main thread is for plain functions, one at a time.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, NoReturn

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from adescent.cancellation import in_force, own_task, shed_stray
from adescent.executors.child_desk import Desk
from adescent.executors.child_rollouts import Actors, Call, Rollout
from adescent.executors.child_worker import Worker
from adescent.executors.results import ActorAborted
from adescent.executors.signatures import is_async, is_ours
from adescent.sidebyside import FirstError

__all__ = ["await_alone", "serve_on_loop"]

Loop = Literal["asyncio", "trio"]


def await_alone(awaitable: Awaitable[Any], loop: Loop) -> Any:
    """Await what a plain function has returned, on a loop of its own."""

    async def awaited() -> Any:
        return await awaitable

    return anyio.run(awaited, backend=loop)


def serve_on_loop(worker: Worker, loop: Loop, rollout: Rollout, actors: Actors) -> NoReturn:
    """Serve from here on, beginning with the rollout that needs the loop.

    Raises EOFError when the parent has nothing more to say, and what a `Worker` raises.
    """
    desk = Desk()
    ended: list[BaseException] = []

    def serve() -> None:
        try:
            anyio.run(_serve, worker, desk, (rollout, actors), backend=loop)
        except BaseException as error:  # noqa: BLE001 - it is raised in the main thread
            ended.append(error)
        finally:
            desk.close()

    threading.Thread(target=serve, name="loop", daemon=True).start()
    desk.serve()
    raise ended.pop()


async def _serve(worker: Worker, desk: Desk, begun: tuple[Rollout, Actors] | None) -> None:
    first = FirstError()
    async with anyio.create_task_group() as group:

        async def perform(rollout: Rollout, actors: Actors) -> None:
            with first.ending(group.cancel_scope), own_task():
                await _perform(worker, partial(_call, desk), rollout, actors)

        with first.ending(group.cancel_scope):
            while True:
                if begun is not None:
                    group.start_soon(perform, *begun, name=f"lease {begun[0].run.lease}")
                    await checkpoint()  # it has its turn before the next one is begun
                if not worker.has_waiting:
                    await anyio.wait_readable(worker.channel.receiving)
                worker.hear(worker.channel.arrived())
                begun = worker.begin() if worker.has_waiting else None
    first.raise_bare()


async def _perform(worker: Worker, call: Call, rollout: Rollout, actors: Actors) -> None:
    answer = None
    with anyio.CancelScope() as scope:
        rollout.stop = scope.cancel
        answer = await rollout.perform(actors, call)
    worker.end(rollout, answer or rollout.cancelled())


async def _call(desk: Desk, actor: Callable[..., Any], *args: Any) -> Any:
    try:
        returned = actor(*args) if is_async(actor) or is_ours(actor) else await desk.call(actor, *args)
        if inspect.isawaitable(returned):
            returned = await returned
    except BaseException as error:
        await _settle()
        if isinstance(error, Exception):
            raise
        raise ActorAborted(error) from error
    await _settle()
    return returned


async def _settle() -> None:
    """Raise the cancellation that is in force, alone, whatever an actor made of it; undo one that it has made up."""
    if in_force():
        await checkpoint_if_cancelled()
    await shed_stray()

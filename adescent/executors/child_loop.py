"""A worker that has met an async actor: everything from then on is performed on an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from adescent.cancellation import in_force, own_task, shed_stray
from adescent.errors import WireError
from adescent.executors.child_rollouts import Actors, Rollout
from adescent.executors.child_worker import Worker
from adescent.executors.results import ActorAborted

__all__ = ["await_alone", "serve_on_loop"]

Loop = Literal["asyncio", "trio"]


def await_alone(awaitable: Awaitable[Any], loop: Loop) -> Any:
    """Await what a plain function has returned, on a loop of its own."""

    async def awaited() -> Any:
        return await awaitable

    return anyio.run(awaited, backend=loop)


def serve_on_loop(worker: Worker, loop: Loop, rollout: Rollout, actors: Actors) -> NoReturn:
    """Serve from here on, beginning with the rollout that needs the loop. Ends as `serve` does."""
    raise anyio.run(_serve, worker, rollout, actors, backend=loop)


async def _serve(worker: Worker, rollout: Rollout, actors: Actors) -> Exception:
    """Serve until that is not possible any more, and return what would otherwise be raised, bare."""
    ended: Exception
    async with anyio.create_task_group() as rollouts:
        begun: tuple[Rollout, Actors] | None = rollout, actors
        try:
            while True:
                if begun is not None:
                    rollouts.start_soon(_perform, worker, *begun, name=f"lease {begun[0].run.lease}")
                    await checkpoint()  # plain functions run here one at a time, and a cancel is seen before the next
                worker.hear(worker.channel.arrived())
                if not worker.has_waiting:
                    await anyio.wait_readable(worker.channel.receiving)
                    worker.hear(worker.channel.arrived())
                begun = worker.begin() if worker.has_waiting else None
        except (EOFError, OSError, WireError) as error:
            ended = error
            rollouts.cancel_scope.cancel()
    return ended


async def _perform(worker: Worker, rollout: Rollout, actors: Actors) -> None:
    with anyio.CancelScope() as scope:
        rollout.stop = scope.cancel
        answer = None
        with own_task():
            answer = await rollout.perform(actors, _call)
    worker.end(rollout, answer or rollout.cancelled())


async def _call(actor: Callable[..., Any], *args: Any) -> Any:
    try:
        returned = actor(*args)
        return await returned if inspect.isawaitable(returned) else returned
    except BaseException as error:
        if in_force():
            await checkpoint_if_cancelled()  # raises the cancellation alone, whatever the actor made of it
        await shed_stray()
        if isinstance(error, Exception):
            raise
        raise ActorAborted(error) from error

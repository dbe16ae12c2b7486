"""A worker that has met an async actor: an event loop of its own thread serves from then on.

Plain functions are still called in the main thread, as they are in a worker without a loop.
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
from adescent.errors import WireError
from adescent.executors.child_desk import Desk
from adescent.executors.child_rollouts import Actors, Call, Rollout
from adescent.executors.child_worker import Worker
from adescent.executors.results import ActorAborted
from adescent.executors.signatures import is_async, is_ours

__all__ = ["await_alone", "serve_on_loop"]

Loop = Literal["asyncio", "trio"]


def await_alone(awaitable: Awaitable[Any], loop: Loop) -> Any:
    """Await what a plain function has returned, on a loop of its own."""

    async def awaited() -> Any:
        return await awaitable

    return anyio.run(awaited, backend=loop)


def serve_on_loop(worker: Worker, loop: Loop, rollout: Rollout, actors: Actors) -> NoReturn:
    """Serve from here on, beginning with the rollout that needs the loop. Ends as `serve` does."""
    desk = Desk()
    ended: list[BaseException] = []

    def serve() -> None:
        try:
            ended.append(anyio.run(_serve, worker, desk, rollout, actors, backend=loop))
        except BaseException as error:  # noqa: BLE001 - it is raised in the main thread
            ended.append(error)
        finally:
            desk.close()

    threading.Thread(target=serve, name="loop", daemon=True).start()
    desk.serve()
    raise ended.pop()


async def _serve(worker: Worker, desk: Desk, rollout: Rollout, actors: Actors) -> Exception:
    """Serve until that is not possible any more, and return what would otherwise be raised, bare."""
    ended: Exception
    call: Call = partial(_call, desk)
    async with anyio.create_task_group() as rollouts:
        begun: tuple[Rollout, Actors] | None = rollout, actors
        try:
            while True:
                if begun is not None:
                    rollouts.start_soon(_perform, worker, call, *begun, name=f"lease {begun[0].run.lease}")
                    await checkpoint()  # it has its turn before the next one is begun
                worker.hear(worker.channel.arrived())
                if not worker.has_waiting:
                    await anyio.wait_readable(worker.channel.receiving)
                    worker.hear(worker.channel.arrived())
                begun = worker.begin() if worker.has_waiting else None
        except (EOFError, OSError, WireError) as error:
            ended = error
            rollouts.cancel_scope.cancel()
    return ended


async def _perform(worker: Worker, call: Call, rollout: Rollout, actors: Actors) -> None:
    with anyio.CancelScope() as scope:
        rollout.stop = scope.cancel
        answer = None
        with own_task():
            answer = await rollout.perform(actors, call)
    worker.end(rollout, answer or rollout.cancelled())


async def _call(desk: Desk, actor: Callable[..., Any], *args: Any) -> Any:
    try:
        returned = actor(*args) if is_async(actor) or is_ours(actor) else await desk.call(actor, *args)
        return await returned if inspect.isawaitable(returned) else returned
    except BaseException as error:
        if in_force():
            await checkpoint_if_cancelled()  # raises the cancellation alone, whatever the actor made of it
        await shed_stray()
        if isinstance(error, Exception):
            raise
        raise ActorAborted(error) from error

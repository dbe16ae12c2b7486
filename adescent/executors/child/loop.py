"""A worker that has met an async actor: rollouts are performed on an event loop from then on.

The loop runs in a thread of its own: the main thread is for plain functions, one at a time.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NoReturn

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from adescent.cancellation import in_force, own_task, shed_stray
from adescent.executors.child.copies import Original, end_copies
from adescent.executors.child.desk import Desk
from adescent.executors.child.rollouts import Actors, Call, Rollout
from adescent.executors.child.worker import Worker
from adescent.executors.results import ActorAborted
from adescent.executors.signatures import is_async, is_ours
from adescent.executors.wire import Hello
from adescent.sidebyside import FirstError

__all__ = ["await_alone", "serve_on_loop"]

Loop = Literal["asyncio", "trio"]


def await_alone(awaitable: Awaitable[Any], loop: Loop) -> Any:
    """Await what a plain function has returned, on a loop of its own."""

    async def awaited() -> Any:
        return await awaitable

    return anyio.run(awaited, backend=loop)


def serve_on_loop(worker: Worker, hello: Hello, rollout: Rollout, actors: Actors) -> NoReturn:
    """Serve from here on, beginning with the rollout that needs the loop.

    Raises EOFError when the parent has nothing more to say, and what a `Worker` raises.
    """
    desk = Desk(worker.channel.original)
    ended: list[BaseException] = []

    def serve() -> None:
        try:
            anyio.run(_serve, worker, desk, hello.in_flight, (rollout, actors), backend=hello.loop)
        except BaseException as error:  # noqa: BLE001 - it is raised in the main thread
            ended.append(error)
        finally:
            desk.close()

    threading.Thread(target=serve, name="loop", daemon=True).start()
    desk.serve()
    raise ended.pop()


async def _serve(worker: Worker, desk: Desk, in_flight: int | None, begun: tuple[Rollout, Actors]) -> None:
    first = FirstError()
    async with anyio.create_task_group() as group:
        end_copies(worker.channel.original)
        call = partial(_call, desk, worker.channel.original)
        rollouts = _Rollouts(worker, call, in_flight or sys.maxsize, group, first)
        rollouts.start(*begun)
        with first.ending(group.cancel_scope), _not_stopped(first, group):
            while True:
                rollouts.begin()
                await anyio.wait_readable(worker.channel.receiving)
    first.raise_bare()


class _Rollouts:
    """At most ``most`` rollouts side by side, each a task of ``group``; ``first`` keeps what ends them all."""

    def __init__(self, worker: Worker, call: Call, most: int, group: TaskGroup, first: FirstError) -> None:
        self._worker = worker
        self._call = call
        self._most = most
        self._group = group
        self._first = first

    def begin(self) -> None:
        """Hear what has been said, and begin what waits as far as there is room."""
        worker = self._worker
        worker.hear(worker.channel.arrived())
        while worker.has_waiting and worker.under_way < self._most:
            if begun := worker.begin():
                self.start(*begun)

    def start(self, rollout: Rollout, actors: Actors) -> None:
        """Perform it in a task of its own. From here on it can be stopped."""
        scope = anyio.CancelScope()
        rollout.stop = scope.cancel
        self._group.start_soon(self._perform, rollout, actors, scope, name=f"lease {rollout.run.lease}")

    async def _perform(self, rollout: Rollout, actors: Actors, scope: CancelScope) -> None:
        with self._first.ending(self._group.cancel_scope), own_task():
            answer = None
            with scope:
                answer = await rollout.perform(actors, self._call)
            self._worker.end(rollout, answer or rollout.cancelled())
            self.begin()


async def _call(desk: Desk, original: Original, actor: Callable[..., Any], *args: Any) -> Any:
    try:
        returned = actor(*args) if is_async(actor) or is_ours(actor) else await desk.call(actor, *args)
        if is_async(actor):
            returned = await returned
        # What a plain function returned may be there to be awaited, and so may what an async one forgot to await.
        if inspect.isawaitable(returned):
            returned = await returned
    except BaseException as error:
        original.end_copy()
        await _settle()
        if issubclass(type(error), Exception):  # by its type: what it says of its class may be anything
            raise
        raise ActorAborted(error) from error
    original.end_copy()
    await _settle()
    return returned


@contextmanager
def _not_stopped(first: FirstError, group: TaskGroup) -> Iterator[None]:
    """Have the worker end where an actor stops asyncio's loop.

    Stopped, it would cancel all tasks past their scopes: each would look as if its own actor had failed.
    """
    loop: Any = current_token().native_token

    def stop() -> None:
        with first.ending(group.cancel_scope):
            raise OSError("an actor has stopped the event loop of its worker")

    if not hasattr(loop, "stop"):  # trio has no such thing
        yield
        return
    loop.stop = stop
    try:
        yield
    finally:
        del loop.stop  # asyncio itself stops it in the end


async def _settle() -> None:
    """Raise the cancellation that is in force, alone, whatever an actor made of it; undo one that it has made up."""
    if in_force():
        await checkpoint_if_cancelled()
    await shed_stray()

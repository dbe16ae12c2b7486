"""Driving an executor by hand: many specs in, results out as they come or in order, from async code or a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import anyio
from anyio.lowlevel import checkpoint

from adescent.cancellation import own_task
from adescent.checks import need_whole
from adescent.errors import OptionError
from adescent.executors.arrivals import ReaderLeft, ResultStream
from adescent.executors.blocking import run_blocking
from adescent.executors.unattended import Deliver, Unattended, deliver_unattended
from adescent.policies import Executor
from adescent.sidebyside import FirstError, side_by_side
from adescent.workspec import Result, RolloutSpec

__all__ = ["collect_rollouts", "map_rollouts", "run_rollouts"]

DEFAULT_CONCURRENCY = 64
TURN_SECONDS = 0.002
"""How long rollouts of which none ever waits may have the event loop to themselves."""


@asynccontextmanager
async def map_rollouts(
    executor: Executor, specs: Iterable[RolloutSpec], *, concurrency: int | None = None
) -> AsyncIterator[ResultStream]:
    """Results in the order in which they complete, as a stream to be read in the block.

    ``executor`` is open already. ``specs`` is read as results are taken, so it may be endless; ``concurrency`` rollouts
    are under way at once (default: the executor's ``queue_depth`` where it names one, else its slots, or 64 where it
    sets no limit). Leaving the block cancels what is still under way. What reading ``specs`` raises comes out of the
    block as it is.
    """
    width = _width(executor, concurrency)
    first = FirstError()
    stream = ResultStream(width)

    async def deliver(ended: Sequence[tuple[int, Result]]) -> None:
        await stream.put(result for _, result in ended)

    async def produce() -> None:
        with first.ending(group.cancel_scope):
            try:
                await _deliver_all(executor, specs, width, deliver)
            except ReaderLeft:  # it has seen enough
                pass
        stream.end()

    async with anyio.create_task_group() as group:
        group.start_soon(produce, name="rollouts")
        with first.ending(group.cancel_scope):
            yield stream
        group.cancel_scope.cancel()
    stream.close()
    first.raise_bare()


async def collect_rollouts(
    executor: Executor, specs: Iterable[RolloutSpec], *, concurrency: int | None = None
) -> list[Result]:
    """All results, in the order of ``specs``. ``executor`` is open already; ``concurrency`` as in `map_rollouts`."""
    results: dict[int, Result] = {}

    async def deliver(ended: Sequence[tuple[int, Result]]) -> None:
        results.update(ended)

    await _deliver_all(executor, specs, _width(executor, concurrency), deliver)
    return [results[index] for index in range(len(results))]


def run_rollouts(specs: Iterable[RolloutSpec], executor: Executor, *, concurrency: int | None = None) -> list[Result]:
    """Drive an executor from a script: open it, run all specs, close it; results in the order of ``specs``.

    Raises LoopRunning inside an event loop, where `collect_rollouts` can be awaited.
    """

    async def opened() -> list[Result]:
        async with executor:
            return await collect_rollouts(executor, specs, concurrency=concurrency)

    return run_blocking(opened, name="run_rollouts()", instead="collect_rollouts(executor, specs)")


def _width(executor: Executor, concurrency: int | None) -> int:
    if concurrency is None:
        depth: int | None = getattr(executor, "queue_depth", None)
        return depth or executor.slots or DEFAULT_CONCURRENCY
    need_whole("concurrency", concurrency, 1, OptionError)
    return concurrency


async def _deliver_all(executor: Executor, specs: Iterable[RolloutSpec], width: int, deliver: Deliver) -> None:
    """Run all specs, ``width`` at a time, and hand over the results, each with the number of its spec."""
    if isinstance(executor, Unattended):
        await deliver_unattended(executor, specs, width, deliver)
        return
    numbered = enumerate(specs)
    turn = monotonic()

    async def pull() -> None:
        nonlocal turn
        with own_task():
            for index, spec in numbered:
                await deliver([(index, await executor.rollout(spec))])
                if (now := monotonic()) - turn > TURN_SECONDS:
                    await checkpoint()  # actors that never suspend must not starve the loop
                    turn = now

    await side_by_side(*[pull] * width, name="rollouts")

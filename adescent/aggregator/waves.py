"""Several awaited calls at once, as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import create_task_group

__all__ = ["in_one_wave"]

T = TypeVar("T")


async def in_one_wave(*calls: Callable[[], Awaitable[T]]) -> list[T]:
    """The results of all calls, run at the same time, in the order of the calls.

    The first exception cancels the other calls and is raised as it is, outside any group.
    """
    results: dict[int, T] = {}
    failure: Exception | None = None

    async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
        nonlocal failure
        try:
            results[index] = await call()
        except Exception as error:  # noqa: BLE001 - raised below, where no task group wraps it
            failure = failure or error
            tasks.cancel_scope.cancel()

    async with create_task_group() as tasks:
        for index, call in enumerate(calls):
            tasks.start_soon(run, index, call)
    if failure is not None:
        raise failure
    return [results[index] for index in range(len(calls))]

"""Several awaited calls at once, and an error of theirs that reaches the caller as it is, in no group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from anyio import CancelScope, create_task_group

__all__ = ["FirstError", "side_by_side"]

T = TypeVar("T")


class FirstError:
    """The first error of what runs in a task group, kept until the group is left: raised inside, it would be wrapped.

    What comes later is a consequence of the first or of being cancelled for it, and is dropped.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None

    @contextmanager
    def ending(self, scope: CancelScope) -> Iterator[None]:
        """Keep the error that leaves the block, and cancel ``scope`` for it. Cancellation passes through."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - that is what this is for
            self._error = self._error or error
            scope.cancel()

    def raise_bare(self) -> None:
        """Raise what was kept, if anything was. To be called outside the group."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback holds this frame, and so this object


async def side_by_side(*calls: Callable[[], Awaitable[T]], name: str = "side by side") -> list[T]:
    """The results of all calls, run at the same time, in the order of the calls.

    The first error cancels the other calls and is raised bare. Tasks are called ``name`` and the number of their call.
    """
    results: dict[int, T] = {}
    first = FirstError()

    async def run(number: int, call: Callable[[], Awaitable[T]]) -> None:
        with first.ending(group.cancel_scope):
            results[number] = await call()

    async with create_task_group() as group:
        for number, call in enumerate(calls):
            group.start_soon(run, number, call, name=f"{name} · {number}")
    first.raise_bare()
    return [results[number] for number in range(len(calls))]

"""Whose a cancellation is: a scope's, the host's, or one that code called from here has made up.

On asyncio whatever runs in a task can cancel that task, and any code can raise a CancelledError. The task then ends as
if it had been told to, without a word. What a *scope* asks for can always be told from that: it is in force where the
error arrives. What the *host* asks for natively cannot, except in a task that is the package's own (`own_task`): the
host holds no reference to it, and ends it through the scopes around it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from adescent.errors import AdescentError

__all__ = ["StrayCancellation", "in_force", "is_native", "own_task", "shed_stray"]

_OWN: set[int] = set()
"""The ids of the tasks, of any loop, that are the package's own."""


class StrayCancellation(AdescentError):
    """A task of the package's own was cancelled, and no scope had asked for it."""

    def __init__(self) -> None:
        super().__init__("code that was called here has cancelled the task it ran in: use a cancel scope of its own.")


@contextmanager
def own_task() -> Iterator[None]:
    """A block that is all there is of a task which the package has started: only scopes may cancel it.

    Raises StrayCancellation in place of any other cancellation, so that no such task ends without a word.
    """
    task = anyio.get_current_task().id
    _OWN.add(task)
    try:
        yield
    except anyio.get_cancelled_exc_class() as error:
        if in_force():
            raise
        _take_marks_off()
        raise StrayCancellation from error
    finally:
        _OWN.discard(task)


def in_force() -> bool:
    """Whether a scope around here has been cancelled."""
    return anyio.current_effective_deadline() == -math.inf


def is_native() -> bool:
    """Whether the host may have cancelled this task natively: it is marked, and not one of the package's own."""
    return _is_marked() and anyio.get_current_task().id not in _OWN


async def shed_stray() -> None:
    """Free a task of the package's own from what marks it as cancelled, where no scope has asked for that."""
    if _is_marked():
        _take_marks_off()
        try:
            await checkpoint()  # the loop may still have an error in store for the next wait
        except anyio.get_cancelled_exc_class():
            pass  # a scope that is cancelled meanwhile says so again


def _asyncio_task() -> Any:
    """This task where asyncio runs it: only there has a task marks that do not come from scopes."""
    if not anyio.get_cancelled_exc_class().__module__.startswith("asyncio"):
        return None
    return sys.modules["asyncio"].current_task()


def _is_marked() -> bool:
    task = _asyncio_task()
    return task is not None and task.cancelling() > 0


def _take_marks_off() -> None:
    task = _asyncio_task()
    while task is not None and task.uncancel():
        pass

"""Ctrl-C: the first ends the work in order, the second ends the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

import anyio
from anyio.abc import TaskStatus

from adescent.cli.exits import CANCELLED
from adescent.cli.streams import complain

__all__ = ["until_interrupted"]

T = TypeVar("T")


async def until_interrupted(work: Callable[[], Awaitable[T]]) -> T | None:
    """What ``work`` returns, or None when Ctrl-C cancelled it. Its errors are raised bare."""
    outcome, failure = None, None
    scope = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        await group.start(_heed, scope, name="interrupts")
        with scope:
            try:
                outcome = await work()
            except Exception as error:  # noqa: BLE001 - raised again outside the group
                failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return outcome


async def _heed(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    if not _may_be_interrupted():
        task_status.started()
        return
    with anyio.open_signal_receiver(signal.SIGINT) as presses:
        task_status.started()
        async for _ in presses:
            if scope.cancel_called:
                _leave_at_once()
            scope.cancel()


def _may_be_interrupted() -> bool:
    """Signals come to the main thread only, and who started the process in the background had them ignored."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def _leave_at_once() -> NoReturn:
    # Nothing is lost that was committed: the ledger bears the end of its process at any instant.
    with suppress(OSError):
        sys.stderr.write("\x1b[?25h\n" if sys.stderr.isatty() else "\n")  # the cursor, which a live view hides
    complain("left at once")
    os._exit(CANCELLED)

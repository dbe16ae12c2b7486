"""How a run is told to end, and why it did."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from adescent.cancellation import StrayCancellation, own_task
from adescent.errors import LedgerError

__all__ = ["Control"]

STOP_GRACE = 5.0
"""Seconds that rollouts under way may take to finish once a run is asked to stop."""


class Control:
    """The one place that knows whether a run goes on.

    A *stop* is graceful: no new leases, what is under way may finish within a grace. A *failure* is an error of
    the caller that goes out of the call; a *broken* run ends with the error in its result. Both cancel the work.
    """

    def __init__(self) -> None:
        self.work = anyio.CancelScope()
        """Everything between the seed's measurement and the final ones."""
        self.stop_reason = ""
        self.failure: BaseException | None = None
        self.broken: Exception | None = None
        self._grace_ends = math.inf
        self._cuttable: anyio.CancelScope | None = None
        self._running = anyio.Event()
        self._running.set()

    @property
    def stopping(self) -> bool:
        """Whether no new work is started."""
        return bool(self.stop_reason)

    @property
    def paused(self) -> bool:
        """Whether workers wait before their next lease."""
        return not self._running.is_set()

    def stop(self, reason: str, grace: float = STOP_GRACE) -> None:
        """End gracefully: rollouts under way may take ``grace`` seconds. The first reason and the earliest end stand.

        A run that has used up its leases has paid for those under way: it waits for them, however long they take.
        """
        self.stop_reason = self.stop_reason or reason
        self._grace_ends = min(self._grace_ends, anyio.current_time() + grace)
        if self._cuttable is not None:
            self._cuttable.deadline = self._grace_ends
        self._running.set()

    @contextmanager
    def rollouts(self) -> Iterator[None]:
        """A block that waits for rollouts: left, not failed, when a stop's grace is over."""
        with anyio.CancelScope(deadline=self._grace_ends) as self._cuttable:
            yield
        self._cuttable = None

    async def guard(self, service: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Run a service of the run; what it raises becomes the run's failure instead of a group of errors."""
        try:
            await service(*arguments)
        except (LedgerError, StrayCancellation) as error:
            self.break_off(error)
        except Exception as error:  # noqa: BLE001 - raised bare, outside every group
            self.fail(error)

    async def serve(self, service: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """`guard` a service that has a task of its own: one that is cancelled by no scope breaks the run off."""
        try:
            with own_task():
                await self.guard(service, *arguments)
        except StrayCancellation as error:
            self.break_off(error)

    def limit(self, seconds: float | None) -> None:
        """Let the work take at most ``seconds`` from now."""
        self.work.deadline = math.inf if seconds is None else anyio.current_time() + seconds

    def fail(self, error: BaseException) -> None:
        """An error that belongs to the caller: end at once and raise it, bare, out of the call."""
        if self.failure is None:
            self.failure = error
        self._cancel("error")

    def break_off(self, error: Exception) -> None:
        """The run cannot go on: end at once with ``error`` in its result."""
        if self.broken is None:
            self.broken = error
        self._cancel("error")

    def _cancel(self, reason: str) -> None:
        self.stop_reason = reason
        self.work.cancel()
        self._running.set()

    def pause(self) -> None:
        """Let workers wait before their next lease. Idempotent; nothing under way is touched."""
        if not self.paused and not self.stopping:
            self._running = anyio.Event()

    def resume(self) -> None:
        """Let workers go on. Idempotent."""
        self._running.set()

    async def wait_running(self) -> None:
        """Return once the run is not paused."""
        await self._running.wait()

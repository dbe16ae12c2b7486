"""The front door: `evolve` for scripts, `async_evolve` for hosts with an event loop, `Evolution` for a handle."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack

import anyio
from anyio import AsyncContextManagerMixin
from anyio.streams.memory import MemoryObjectReceiveStream

from adescent.config import Options, RunConfig, Schedule, front_door_signature
from adescent.errors import ContractError, RunCancelled, WrongThread
from adescent.executors.blocking import run_blocking
from adescent.runtime.engine import Engine
from adescent.runtime.interrupts import interrupts_bare
from adescent.runtime.reporting import RunStatus
from adescent.runtime.result import EvolutionResult
from adescent.telemetry import Event

__all__ = ["Evolution", "async_evolve", "evolve"]

LEAVING_GRACE = 10.0
"""Seconds that leaving an `Evolution`'s block waits for a graceful stop before it cancels."""

F = TypeVar("F", bound=Callable[..., Any])


def _with_options(schedule: Schedule) -> Callable[[F], F]:
    """Show the real keywords, which are the fields of `RunConfig`, to ``help()`` and editors."""

    def show(function: F) -> F:
        function.__signature__ = front_door_signature(schedule)  # type: ignore[attr-defined]
        return function

    return show


@_with_options("stream")
async def async_evolve(tasks: Any, reward: Any, **options: Unpack[Options]) -> EvolutionResult:
    """Evolve an artifact until a budget, a target or patience ends it; ``schedule`` defaults to ``"stream"``.

    Awaited inside the host's own event loop (asyncio or trio). The keywords are those of `RunConfig`. Raises
    ContractError and its kin for what cannot work, before any rollout where it can be told then; an error of the
    ledger, and actors that never work, end the run and stand in ``result.error``. Cancellation passes through.
    """
    engine = await Engine.prepared(RunConfig.from_options(tasks, reward, options, "stream"))
    return await engine.run()


@_with_options("rounds")
def evolve(tasks: Any, reward: Any, **options: Unpack[Options]) -> EvolutionResult:
    """Evolve an artifact and block until it is done; ``schedule`` defaults to ``"rounds"``.

    Takes the keywords of `async_evolve`, with the same meaning. Raises LoopRunning inside an event loop.
    """
    config = RunConfig.from_options(tasks, reward, options, "rounds")

    async def run() -> EvolutionResult:
        return await (await Engine.prepared(config)).run()

    return run_blocking(run, name="evolve()", instead="async_evolve(…)")


@_with_options("stream")
class Evolution(AsyncContextManagerMixin):
    """A run with a handle: an async context manager that starts it, and stops it on leaving.

    Takes what `async_evolve` takes. Leaving the block is a graceful stop, bounded, then a cancel; an exception in the
    block cancels. An error of the run that nobody has waited for with `result` is raised on leaving.

    Methods are for the inside of the block (`result` and `status` work after it too) and for the loop's own thread:
    they raise ContractError before it and WrongThread elsewhere.
    """

    def __init__(self, tasks: Any, reward: Any, **options: Unpack[Options]) -> None:
        self._config = RunConfig.from_options(tasks, reward, options, "stream")
        self._engine: Engine | None = None
        self._ended = anyio.Event()
        self._outcome: EvolutionResult | Exception | None = None
        self._asked = 0
        self._thread = 0

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[Evolution]:
        if self._engine is not None:
            raise ContractError("an Evolution is one run: make another one to run again.")
        self._thread = threading.get_ident()
        self._engine = await Engine.prepared(self._config)
        raised: Exception | None = None
        with interrupts_bare():
            async with anyio.create_task_group() as running:
                running.start_soon(self._drive, self._engine, name="evolution")
                try:
                    yield self
                except Exception as error:  # noqa: BLE001 - raised again outside the group, bare
                    raised = error
                else:
                    self.stop()
                    with anyio.move_on_after(LEAVING_GRACE):
                        await self._ended.wait()
                running.cancel_scope.cancel()
        if raised is None and not self._asked and not isinstance(self._outcome, EvolutionResult | RunCancelled):
            raised = self._outcome
        if raised is not None:
            raise raised

    async def _drive(self, engine: Engine) -> None:
        try:
            self._outcome = await engine.run()
        except Exception as error:  # noqa: BLE001 - raised by result()
            self._outcome = error
        finally:
            if self._outcome is None:
                self._outcome = RunCancelled("the run was cancelled")
            self._ended.set()

    def events(self) -> MemoryObjectReceiveStream[Event]:
        """A new stream of what happens from now on, to be used as a context manager. It ends when the run does."""
        return self._running("events()").hub.open()

    def pause(self) -> None:
        """Let workers wait before their next lease. Idempotent."""
        self._running("pause()").control.pause()

    def resume(self) -> None:
        """Let workers go on. Idempotent."""
        self._running("resume()").control.resume()

    def stop(self) -> None:
        """End gracefully: no new leases, merge what there is, measure, report. Idempotent."""
        self._running("stop()").control.stop("stopped")

    def status(self) -> RunStatus:
        """Where the run stands."""
        return self._running("status()").status()

    async def result(self) -> EvolutionResult:
        """Wait for the end. Any number of tasks may wait.

        Raises what `async_evolve` would have raised, and RunCancelled when the run was cancelled.
        """
        self._running("result()")
        self._asked += 1
        try:
            await self._ended.wait()
        except BaseException:
            self._asked -= 1
            raise
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    @staticmethod
    def load(run_dir: str | Path) -> EvolutionResult | None:
        """The result of the last run that ended in a run directory, or None when none has.

        Raises RunDirError when the directory is not one of a run.
        """
        from adescent.rundir import RunDirectory

        text = RunDirectory.load_result(Path(run_dir))
        return None if text is None else EvolutionResult.from_json(text)

    def _running(self, what: str) -> Engine:
        if self._engine is None:
            raise ContractError(f"Evolution.{what} is for inside its block: async with Evolution(…) as run.")
        if threading.get_ident() != self._thread:
            raise WrongThread(f"Evolution.{what}")
        return self._engine

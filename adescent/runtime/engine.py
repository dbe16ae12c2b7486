"""A run from beginning to end: what is opened in which order, and closed whatever happens."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from attrs import evolve

from adescent.cancellation import StrayCancellation
from adescent.config import RunConfig
from adescent.errors import ContractError, LedgerError, RunDirError, UnknownArtifact
from adescent.evolvable import Evolvable
from adescent.executors.actors import Bound
from adescent.own_thread import in_own_thread
from adescent.policies import Strategy
from adescent.rundir import RunDirectory
from adescent.runtime.heads import HeadCell
from adescent.runtime.interrupts import interrupts_bare
from adescent.runtime.ledger_thread import LedgerThread
from adescent.runtime.measuring import Measuring, figure_of
from adescent.runtime.progress import Progress
from adescent.runtime.reporting import Ending, Phase, RunStatus, result_of
from adescent.runtime.result import EvolutionResult
from adescent.runtime.services import Services, open_ledger, open_services
from adescent.runtime.wiring import Wiring
from adescent.runtime.worker import Worker
from adescent.tasks import Splits
from adescent.telemetry import Event, EventHub, RunFinished, RunStarted

__all__ = ["Engine"]

logger = logging.getLogger("adescent")

MANY_ROWS = 300
"""Tasks that are checked and hashed on the loop at most."""

WATCHER_GRACE = 2.0
CANCELLED_WATCHER_GRACE = 0.5
"""Seconds ``on_event`` may take for the last events once the run is over, or has been cancelled."""


class Engine:
    """One run. Made inside the event loop that will run it, by `prepared`; `run` is called once."""

    def __init__(self, config: RunConfig, splits: Splits) -> None:
        self.hub = EventHub()
        self.wiring = Wiring(config, splits, self.hub)
        self.control = self.wiring.control
        self._config = config
        self._ending = Ending()
        self._head: HeadCell | None = None
        self._progress: Progress | None = None
        self._worker: Worker | None = None
        self._result: EvolutionResult | None = None
        self._over = False

    @classmethod
    async def prepared(cls, config: RunConfig) -> Self:
        """An engine, nothing of which has begun. Raises ContractError and its kin for what cannot work.

        Rows are gone through here, since what they come from may belong to this thread; checking and hashing many of
        them would hold the loop.
        """
        config = config.with_rows_read()
        if config.n_rows <= MANY_ROWS:
            return cls(config, config.splits())
        return cls(config, await in_own_thread(config.splits, pure=True))

    async def run(self) -> EvolutionResult:
        """Search, measure, report. Raises the caller's own errors bare; what broke the run is in the result."""
        try:
            with interrupts_bare():
                async with self._run_dir() as place, self.wiring.executor, self.wiring.threads, self._watched():
                    await self.control.guard(self._live, place)
        except Exception as error:  # noqa: BLE001 - raised below: nothing could be opened, or not be closed
            self.control.fail(error)
        finally:
            self._over = True
            self._announce_end()
        if self.control.failure is not None:
            raise self.control.failure
        if self._result is None:  # broken before there was anything to report
            assert self.control.broken is not None
            raise self.control.broken
        return self._result

    def status(self) -> RunStatus:
        """Where the run stands."""
        head, progress, account = self._head, self._progress, self.wiring.account
        return RunStatus(
            phase=self._phase(),
            elapsed=self.hub.elapsed(),
            rollouts=account.rollouts,
            calls=account.calls,
            version=0 if head is None else head.current.artifact.version,
            held_out_reward=None if progress is None else progress.held_out,
            outcomes={} if progress is None else progress.outcomes_by_name(),
            under_way={} if self._worker is None else dict(self._worker.under_way),
        )

    def _phase(self) -> Phase:
        if self._over:
            return "ended"
        if self.control.stopping:
            return "stopping"
        if self.control.paused:
            return "paused"
        return "starting" if self._worker is None else "running"

    # Opening and closing ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _run_dir(self) -> AsyncIterator[RunDirectory | None]:
        config, wiring = self._config, self.wiring
        if config.run_dir is None:
            yield None
            return
        splits = {f"{name} tasks": digest for name, digest in wiring.splits.digests.items()}
        identity = {"artifact_id": config.artifact_id, "strategy": _named(wiring.strategy), "seed": config.seed}
        place = RunDirectory(config.run_dir, {**identity, **splits})
        try:
            await in_own_thread(place.open)
            yield place
        finally:
            place.close()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Deliver events to ``on_event`` while the block runs, and for a moment after it."""
        deliver = self.wiring.on_event
        if deliver is None:
            yield
            return
        shield = anyio.CancelScope(shield=True)  # who watches is told of a cancellation too
        grace = CANCELLED_WATCHER_GRACE
        async with self.wiring.watching, anyio.create_task_group() as watching:
            watching.start_soon(self._deliver, self.hub.open(), deliver, shield, name="on_event")
            try:
                yield
                grace = WATCHER_GRACE
            finally:
                self._announce_end()
                shield.deadline = anyio.current_time() + grace
        if shield.cancelled_caught:
            logger.warning("on_event was not done with its events %g s after the end and is left alone", grace)

    async def _deliver(
        self, events: MemoryObjectReceiveStream[Event], deliver: Bound, shield: anyio.CancelScope
    ) -> None:
        with shield, events:
            async for event in events:
                try:
                    await deliver(event)
                except Exception:
                    self.wiring.count("on_event_failed")
                    logger.exception("on_event raised for %s", type(event).__name__)

    async def _live(self, place: RunDirectory | None) -> None:
        async with open_ledger(self.wiring, None if place is None else place.ledger, self._publish) as ledger:
            await self._begin(ledger)
            async with open_services(self.wiring, ledger) as services:
                await self.control.guard(self._search, services)
            if self.control.failure is None:
                await self._report(ledger, place)

    def _publish(self, artifact: Evolvable) -> None:
        # A ledger that was handed in may hold others, and a strategy's diff may be for one of them.
        if self._head is not None and artifact.id == self.wiring.artifact.id:
            self._head.publish(artifact)

    def _announce_end(self) -> None:
        """Tell watchers how it ended, once, and that nothing more comes."""
        result, control = self._result, self.control
        error = control.failure or control.broken
        ended = "cancelled" if result is None else result.stop_reason
        under_way = () if self._worker is None else tuple(self._worker.under_way)
        self.hub.emit(
            lambda elapsed: RunFinished(
                elapsed=elapsed,
                stop_reason=ended if error is None else "error",
                error="" if error is None else f"{type(error).__name__}: {error}",
                final_reward=None if result is None else result.final_reward,
                under_way=under_way,
            )
        )
        self.hub.close()

    # The run itself ---------------------------------------------------------------------------------------------------

    async def _begin(self, ledger: LedgerThread) -> None:
        """Take the artifact from the ledger, or register it there."""
        try:
            head = await ledger.head(self.wiring.artifact.id)
            self._ending = evolve(self._ending, resumed_from=head.version)
        except UnknownArtifact:
            head = await ledger.register(self.wiring.artifact)
        if self._ending.resumed_from:
            logger.info("continuing %s from version %d", head.id, head.version)
            if self._config.initial_state is not None:
                logger.warning("initial_state= is not used: %s goes on from what the ledger holds", head.id)
            head = evolve(head, blast_radius=self.wiring.artifact.blast_radius)
        self._head = HeadCell(head, self.wiring.strategy)

    async def _search(self, services: Services) -> None:
        assert self._head is not None
        wiring, config, head = self.wiring, self._config, self._head
        measuring = Measuring(
            services.evaluator, wiring.splits, wiring.account, repeats=config.eval_repeats, noisy=config.noisy
        )
        self._progress = progress = wiring.progress(services.merger, head)
        worker = wiring.worker(services.merger, services.evaluator)
        with self.control.work:
            self.control.limit(config.budget.seconds)
            await self._measure_seed(services, measuring)
            self._worker = worker
            progress.look_whether_to_end()
            await wiring.schedule(worker, head, progress).run()
            await progress.merge_all()
        if self.control.work.cancelled_caught and not self.control.stop_reason:
            self.control.stop_reason = "budget:seconds"
        progress.settle_rest()
        broken = wiring.health.conclude()
        if broken is not None:
            self.control.break_off(broken)
        if self.control.failure is None and self.control.broken is None:
            await self._measure_end(services, measuring)
        stable = services.merger.stable_pool(head.current.artifact.id)
        self._ending = evolve(self._ending, stable=figure_of(stable.total, stable.trials))

    async def _measure_seed(self, services: Services, measuring: Measuring) -> None:
        assert self._head is not None
        artifact = self._head.current.artifact
        measured, noisy = await measuring.seed(artifact)
        stable = await services.ledger.head(artifact.id, "stable")
        self.wiring.leave_for_a_gate(noisy)
        services.merger.open(artifact, measured, stable=stable, noisy=noisy)
        self._ending = evolve(self._ending, seed=figure_of(measured.total, measured.trials), noisy=noisy)
        config, splits = self._config, self.wiring.splits
        self.hub.emit(
            lambda elapsed: RunStarted(
                elapsed=elapsed,
                artifact_id=artifact.id,
                schedule=config.schedule,
                n_workers=config.n_workers,
                tasks={"train": len(splits.train), "held_out": len(splits.held_out), "test": len(splits.test)},
                seed_reward=measured.rate,
                resumed=self._ending.resumed_from,
            )
        )

    async def _measure_end(self, services: Services, measuring: Measuring) -> None:
        """The final figures; a clean end also confirms the head for stable."""
        assert self._head is not None
        self._publish(await services.ledger.head(self.wiring.artifact.id))  # somebody else may have come last
        artifact = self._head.current.artifact
        final = await measuring.final(artifact)
        await services.merger.confirm(artifact, final)
        self._ending = evolve(
            self._ending,
            final=figure_of(final.total, final.trials),
            test=await measuring.test(artifact),
        )

    async def _report(self, ledger: LedgerThread, place: RunDirectory | None) -> None:
        assert self._head is not None
        if not self.control.stop_reason:
            self.control.break_off(StrayCancellation())  # nothing else ends a search without saying why
        self._ending = evolve(self._ending, ledger=ledger.location)
        try:
            stable = await ledger.head(self._head.current.artifact.id, "stable")
            self._ending = evolve(self._ending, stable_version=stable.version)
            self._ending = evolve(self._ending, log=await ledger.log())
        except LedgerError as error:
            self.control.break_off(error)
        self._result = result = self._result_now()
        if place is None:
            return
        try:
            await in_own_thread(lambda: place.save_result(result.to_json()))
        except RunDirError as error:
            self.control.break_off(error)
            self._result = self._result_now()

    def _result_now(self) -> EvolutionResult:
        assert self._head is not None
        assert self._progress is not None
        under_way = () if self._worker is None else tuple(self._worker.under_way)
        return result_of(self.wiring, self._head, self._progress, self._ending, under_way)


def _named(strategy: Strategy) -> str:
    """How a run directory knows a strategy again. Raises ContractError for a name that holds in this process only."""
    name = repr(strategy)
    if re.search(r" at 0x[0-9a-f]+", name):
        raise ContractError(
            f"run_dir= needs a strategy that is known again by its repr(), and this one's is {name}: make it a "
            "dataclass or an attrs class, or give it a __repr__ that spells its options."
        )
    return name

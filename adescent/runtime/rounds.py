"""The schedule with a barrier: every unit does one lease, then everything is merged, then the next round begins."""

from __future__ import annotations

import math
from collections.abc import Iterator

import anyio

from adescent.runtime.heads import HeadCell, Snapshot
from adescent.runtime.leases import Lease, LeaseSource, Turn
from adescent.runtime.progress import Progress
from adescent.runtime.worker import Worker

__all__ = ["Rounds"]


class _Round:
    """The leases of one round, what came of them by unit, and the bells for its end and for the next."""

    def __init__(self, leases: Iterator[Lease], size: int, deadline: float) -> None:
        self.leases = leases
        self.turns: list[Turn | None] = [None] * size
        self.deadline = deadline
        self.done = anyio.Event()
        self.next = anyio.Event()
        self._left = size

    def finish(self, turn: Turn) -> None:
        """Enter what came of a lease; the last one ends the round."""
        self.turns[turn.lease.unit] = turn
        self._left -= 1
        if self._left == 0:
            self.done.set()


class Rounds:
    """Persistent workers that share each round's leases.

    A unit, not a worker task, owns its snapshot and keeps it for ``refresh_interval`` rounds (staggered), so what is
    decided does not depend on how many tasks do the work.
    """

    def __init__(
        self,
        *,
        worker: Worker,
        source: LeaseSource,
        head: HeadCell,
        progress: Progress,
        n_units: int,
        concurrency: int,
        refresh_interval: int,
        round_timeout: float | None,
    ) -> None:
        self._worker = worker
        self._source = source
        self._head = head
        self._progress = progress
        self._snapshots = [head.current] * n_units
        self._concurrency = min(concurrency, n_units)
        self._refresh_interval = refresh_interval
        self._timeout = round_timeout
        self._round = _Round(iter(()), 0, math.inf)

    async def run(self) -> None:
        """Rounds until the progress says stop or there are no more leases."""
        control = self._progress.control
        async with anyio.create_task_group() as workers:
            for number in range(self._concurrency):
                workers.start_soon(control.guard, self._work, name=f"worker {number}")
            turn = 0
            while not control.stopping:
                await control.wait_running()
                if control.stopping or not await self._one_round(turn):
                    break
                turn += 1
            workers.cancel_scope.cancel()

    async def _one_round(self, turn: int) -> bool:
        """One round with its merge; whether it was a whole one."""
        snapshots = self._fresh_snapshots(turn)
        granted = self._source.grant(len(snapshots))
        if granted:
            deadline = anyio.current_time() + (self._timeout or math.inf)
            await self._rollouts(_Round(self._source.draw_round(turn, snapshots, granted), granted, deadline))
            self._collect(self._round.turns)
            await self._progress.merge()
            self._progress.round_ended(turn)
        if self._source.exhausted:
            self._progress.control.stop(self._source.exhausted)
        return granted == len(snapshots)

    def _fresh_snapshots(self, turn: int) -> list[Snapshot]:
        for unit in range(len(self._snapshots)):
            if self._progress.refresh_asked or (turn + unit) % self._refresh_interval == 0:
                self._snapshots[unit] = self._head.current
        self._progress.refresh_asked = False
        return self._snapshots

    async def _rollouts(self, new: _Round) -> None:
        previous, self._round = self._round, new
        previous.next.set()
        with self._progress.control.rollouts():
            await new.done.wait()

    async def _work(self) -> None:
        current = self._round
        while True:
            for lease in current.leases:
                current.finish(await self._take(lease, current.deadline))
            await current.next.wait()
            current = self._round

    async def _take(self, lease: Lease, deadline: float) -> Turn:
        if self._timeout is None:
            return await self._worker.take(lease)
        with anyio.CancelScope(deadline=deadline):
            return await self._worker.take(lease)
        self._progress.count("rollouts_cut_by_round_timeout")
        return Turn(lease)

    def _collect(self, turns: list[Turn | None]) -> None:
        """Hand on what the round brought in the order of its units, whatever the order of arrival was."""
        for turn in turns:
            if turn is not None:
                self._source.observe(turn)
                if turn.card is not None:
                    self._progress.ingest(turn.card, (turn.lease.turn, turn.lease.unit))

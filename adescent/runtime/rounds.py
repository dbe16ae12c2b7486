"""The schedule with a barrier: every unit does one lease, then everything is merged, then the next round begins."""

from __future__ import annotations

import math
from collections.abc import Iterator

import anyio

from adescent.runtime.heads import HeadCell, Snapshot
from adescent.runtime.health import Health
from adescent.runtime.leases import Lease, LeaseSource, Turn
from adescent.runtime.manners import let_others_run
from adescent.runtime.progress import Progress
from adescent.runtime.worker import Worker

__all__ = ["Rounds"]


class _Round:
    """The leases of one round, what came of them by unit, and the bells for its end and for the next."""

    def __init__(self, leases: Iterator[Lease], size: int, deadline: float) -> None:
        self.turns: list[Turn | None] = [None] * size
        self.deadline = deadline
        self.done = anyio.Event()
        self.next = anyio.Event()
        self.undrawn = size
        self.begun = False
        self._leases = leases
        self._under_way = 0

    def draw(self) -> Lease | None:
        """The next lease, or None when there are no more."""
        if not self.undrawn:
            return None
        lease = next(self._leases)
        self.undrawn -= 1
        self.begun = True
        self._under_way += 1
        return lease

    def finish(self, turn: Turn) -> None:
        """Enter what came of a lease; the last one ends the round."""
        self.turns[turn.lease.unit] = turn
        self._under_way -= 1
        self._end_if_done()

    def cut_short(self) -> int:
        """Let the round end with the leases that are under way; how many are not drawn any more."""
        dropped, self.undrawn = self.undrawn, 0
        self._end_if_done()
        return dropped

    def take_out(self) -> list[Turn]:
        """What came of the leases so far, in the order of the units, whatever the order of arrival was; once."""
        turns, self.turns = self.turns, []
        return [turn for turn in turns if turn is not None]

    def _end_if_done(self) -> None:
        if not self.undrawn and not self._under_way:
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
        health: Health,
        head: HeadCell,
        progress: Progress,
        n_units: int,
        concurrency: int,
        refresh_interval: int,
        round_timeout: float | None,
    ) -> None:
        self._worker = worker
        self._source = source
        self._health = health
        self._head = head
        self._progress = progress
        self._snapshots = [head.current] * n_units
        self._epoch = head.epoch
        self._concurrency = min(concurrency, n_units)
        self._refresh_interval = refresh_interval
        self._timeout = round_timeout
        self._round = _Round(iter(()), 0, math.inf)

    async def run(self) -> None:
        """Rounds until the progress says stop or there are no more leases."""
        control = self._progress.control
        try:
            async with anyio.create_task_group() as workers:
                for number in range(self._concurrency):
                    workers.start_soon(control.serve, self._work, name=f"worker {number}")
                    await let_others_run(number)
                await control.guard(self._rounds)
                workers.cancel_scope.cancel()
        finally:  # a round that was cut off has brought something all the same
            self._source.give_back(self._round.cut_short())
            for turn in self._round.take_out():
                self._ingest(turn)

    async def _rounds(self) -> None:
        control = self._progress.control
        turn = 0
        while not control.stopping:
            while control.paused:
                await control.wait_running()
            if control.stopping or not await self._one_round(turn):
                return
            turn += 1

    async def _one_round(self, turn: int) -> bool:
        """One round with its merge; whether another one may follow."""
        snapshots = self._fresh_snapshots(turn)
        granted = self._source.grant(len(snapshots))
        if granted:
            deadline = anyio.current_time() + (self._timeout or math.inf)
            leases = self._source.draw_round(turn, snapshots, granted)
            if not await self._done(_Round(leases, granted, deadline)):
                return False
            self._health.judge()
            for ended in self._round.take_out():
                self._source.observe(ended)
                self._ingest(ended)
            await self._progress.merge()
            self._progress.round_ended(turn)
        if self._source.exhausted:
            self._progress.control.stop(self._source.exhausted)
        return granted == len(snapshots)

    def _fresh_snapshots(self, turn: int) -> list[Snapshot]:
        asked, self._epoch = self._epoch != self._head.epoch, self._head.epoch
        for unit in range(len(self._snapshots)):
            if asked or (turn + unit) % self._refresh_interval == 0:
                self._snapshots[unit] = self._head.current
        return self._snapshots

    async def _done(self, new: _Round) -> bool:
        """Let workers begin a round, and wait for it; False when a stop did not let it finish."""
        previous, self._round = self._round, new
        previous.next.set()
        with self._progress.control.rollouts():
            await new.done.wait()
        return new.done.is_set()

    async def _work(self) -> None:
        current = self._round
        while True:
            while (lease := await self._next_lease(current)) is not None:
                current.finish(await self._take(lease, current.deadline))
            await current.next.wait()
            current = self._round

    async def _next_lease(self, current: _Round) -> Lease | None:
        control = self._progress.control
        while control.paused:
            await control.wait_running()
        # A round makes one lease at least: else a timeout shorter than a start would give rounds without an end.
        if current.undrawn and (control.stopping or (current.begun and anyio.current_time() >= current.deadline)):
            self._source.give_back(current.cut_short())
        return current.draw()

    async def _take(self, lease: Lease, deadline: float) -> Turn:
        if self._timeout is None:
            return await self._worker.take(lease)
        with anyio.CancelScope(deadline=deadline):
            return await self._worker.take(lease)
        self._worker.forget(lease)
        self._progress.count("rollouts_cut_by_round_timeout")
        return Turn(lease)

    def _ingest(self, turn: Turn) -> None:
        if turn.card is None:
            self._progress.without_card()
        else:
            self._progress.ingest(turn.card, (turn.lease.turn, turn.lease.unit))

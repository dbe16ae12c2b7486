"""The schedule without a barrier: workers go on while one coroutine merges what they bring."""

from __future__ import annotations

import math

import anyio
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from attrs import frozen

from adescent.evolvable import EvidenceCard
from adescent.runtime.credits import Credits
from adescent.runtime.heads import HeadCell, Snapshot
from adescent.runtime.health import Health
from adescent.runtime.leases import LeaseSource
from adescent.runtime.manners import let_others_run
from adescent.runtime.progress import Progress
from adescent.runtime.worker import Worker

__all__ = ["Stream"]


@frozen(eq=False)
class _Evidence:
    """A card on its way, with the place its lease had: (turn, unit)."""

    card: EvidenceCard
    order: tuple[int, int]


class Stream:
    """Independent workers and one merging task, joined by a channel with a place for every credit.

    A worker takes the newest head before each lease when ``resync`` is set; otherwise it keeps its snapshot until that
    lags more than ``async_ratio`` versions, or until it is told to let go.
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
        async_ratio: int,
        max_unmerged: int,
        resync: bool,
    ) -> None:
        self._worker = worker
        self._source = source
        self._health = health
        self._head = head
        self._progress = progress
        self._n_units = n_units
        self._async_ratio = async_ratio
        self._resync = resync
        self._credits = Credits(n_units, max_unmerged)

    async def run(self) -> None:
        """Work and merge until there are no more leases or the progress says stop, then merge what is left."""
        control = self._progress.control
        send, receive = anyio.create_memory_object_stream[_Evidence](self._credits.total)
        with send, receive:
            try:
                async with anyio.create_task_group() as merging:
                    merging.start_soon(control.serve, self._merge, receive, name="merge")
                    with send:
                        await self._workers(send)
            finally:  # evidence of a run that was cut off is evidence all the same
                self._take_in(receive)

    async def _workers(self, send: MemoryObjectSendStream[_Evidence]) -> None:
        control = self._progress.control
        with control.rollouts():
            async with anyio.create_task_group() as workers:
                for unit in range(self._n_units):
                    workers.start_soon(control.serve, self._work, unit, send, name=f"worker {unit}")
                    await let_others_run(unit)

    async def _work(self, unit: int, send: MemoryObjectSendStream[_Evidence]) -> None:
        control, source = self._progress.control, self._source
        snapshot, epoch, turn = self._head.current, self._head.epoch, 0
        while await self._may_begin(unit):
            if self._resync or epoch != self._head.epoch or self._lags(snapshot):
                snapshot, epoch = self._head.current, self._head.epoch
            if not source.grant(1):
                control.stop(source.exhausted, grace=math.inf)  # what the others have under way has been paid for
                self._credits.give_back(unit)
                return
            done = await self._worker.take(source.draw(turn, unit, snapshot))
            source.observe(done)
            self._health.judge()
            if done.card is None:
                self._credits.give_back(unit)
                self._progress.without_card()
                self._progress.look_whether_to_end()
            else:
                send.send_nowait(_Evidence(done.card, (turn, unit)))  # there is a place for every credit
            turn += 1

    async def _may_begin(self, unit: int) -> bool:
        """Wait for a credit and for the run not to be paused; False when it is ending."""
        control = self._progress.control
        while not control.stopping:
            if control.paused:
                await control.wait_running()
            elif self._credits.try_take(unit):
                return True
            else:
                await self._credits.wait(unit)
        return False

    def _lags(self, snapshot: Snapshot) -> bool:
        return self._head.current.artifact.version - snapshot.artifact.version > self._async_ratio

    async def _merge(self, receive: MemoryObjectReceiveStream[_Evidence]) -> None:
        progress = self._progress
        sweep = 0
        while await self._gather(receive):
            await progress.merge(lambda entry: self._credits.give_back(entry.order[1]))
            progress.round_ended(sweep)
            sweep += 1
            await checkpoint()

    async def _gather(self, receive: MemoryObjectReceiveStream[_Evidence]) -> bool:
        """Take in all evidence there is, waiting only when there is nothing to merge; False at the end of it all."""
        buffer = self._progress.buffer
        if not len(buffer):
            try:
                self._ingest(await receive.receive())
            except anyio.EndOfStream:
                return False
        self._take_in(receive)
        return True

    def _take_in(self, receive: MemoryObjectReceiveStream[_Evidence]) -> None:
        try:
            while True:
                self._ingest(receive.receive_nowait())
        except (anyio.WouldBlock, anyio.EndOfStream):
            pass

    def _ingest(self, evidence: _Evidence) -> None:
        self._progress.ingest(evidence.card, evidence.order)

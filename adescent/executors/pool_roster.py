"""Who is in a pool and what they hold: the moves from which all its rules are made, each keeping the counts right."""

from __future__ import annotations

import math
from collections.abc import Hashable

from attrs import define, field

from adescent.executors.pool_crews import Crew, Sending, State, Worker
from adescent.executors.pool_records import (
    GiveUp,
    Instruction,
    Kill,
    Lease,
    Loss,
    PoolLimits,
    PoolStatistics,
    Retire,
    Send,
    Start,
    Withdraw,
)

__all__ = ["Roster"]


@define(eq=False)
class Roster:
    """The workers that are not gone, by number, and the crews, by fingerprint; moves leave ``instructions`` behind.

    ``occupied`` workers are starting or ready, ``active`` ones have leases, ``in_flight`` of them together. Before
    ``alarm`` nothing is due: it is never later than the first deadline, and cheap to keep.
    """

    limits: PoolLimits
    workers: dict[int, Worker] = field(factory=dict, init=False)
    crews: dict[Hashable, Crew] = field(factory=dict, init=False)
    instructions: list[Instruction] = field(factory=list, init=False)
    occupied: int = field(default=0, init=False)
    active: int = field(default=0, init=False)
    in_flight: int = field(default=0, init=False)
    alarm: float = field(default=math.inf, init=False)
    sent: int = field(default=0, init=False)
    started: int = field(default=0, init=False)
    recycled: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
    redispatched: int = field(default=0, init=False)
    duplicates_dropped: int = field(default=0, init=False)

    def crew(self, fingerprint: Hashable) -> Crew:
        """The crew of a fingerprint, which may be new."""
        found = self.crews.get(fingerprint)
        if found is None:
            found = Crew(fingerprint, self.limits.failed_starts, self.limits.in_flight)
            self.crews[fingerprint] = found
        return found

    def disband(self, fingerprint: Hashable) -> None:
        """Forget a crew in which nobody is left, nothing waits, and no start has failed."""
        crew = self.crew(fingerprint)
        if not crew.workers and not crew.waiting and crew.failures_left == self.limits.failed_starts:
            del self.crews[fingerprint]

    def start(self, crew: Crew, now: float) -> None:
        """One more worker for the crew."""
        self.started += 1
        worker = Worker(self.started, crew, since=now)
        self.workers[worker.number] = worker
        crew.workers[worker] = None
        self.occupied += 1
        self.wake(worker.deadline(self.limits))
        self.instructions.append(Start(worker.number, crew.fingerprint))

    def send(self, worker: Worker, lease: Lease, now: float) -> None:
        """The lease begins in the worker, or is held there behind others."""
        self.sent += 1
        number = self.sent
        first = not worker.sendings
        worker.sendings[number] = sending = Sending(number, lease)
        worker.sent += 1
        self.in_flight += 1
        if first:
            worker.last_word = now
            worker.alone = bool(lease.deaths)
            self.active += 1
            self.wake(worker.silent_until(self.limits))
        if len(worker.sendings) <= self.limits.in_flight:
            self.begin(worker, sending, now)
        else:
            self.wake(worker.returns_at(self.limits))
        lease.worker, lease.number = worker.number, number
        self.instructions.append(Send(worker.number, lease, number))

    def begin(self, worker: Worker, sending: Sending, now: float) -> None:
        """It is the turn of ``sending`` from now on."""
        assert sending.lease is not None
        sending.begun_at = now
        if sending.lease.timeout is not None:
            self.expect(sending, now + sending.lease.timeout)
        self.wake(worker.withdrawn_until())

    def expect(self, sending: Sending, deadline: float) -> None:
        """It is to be answered by then."""
        sending.deadline = deadline
        self.wake(deadline)

    def wake(self, deadline: float) -> None:
        """Something may be due then."""
        if deadline < self.alarm:
            self.alarm = deadline

    def remove(self, worker: Worker, sending: Sending) -> Lease | None:
        """The worker does not have it any more; returns the lease, unless nobody waits for it."""
        del worker.sendings[sending.number]
        self.in_flight -= 1
        if not worker.sendings:
            self.active -= 1
        if sending.lease is not None:
            sending.lease.worker = sending.lease.number = 0
        return sending.lease

    def recall(self, worker: Worker, sending: Sending) -> Lease | None:
        """As `remove`, for one that may be answered all the same: that is no surprise."""
        worker.remember_withdrawn(sending.number, None if sending.lease is None else sending.lease.timeout)
        return self.remove(worker, sending)

    def withdraw(self, worker: Worker, sending: Sending) -> Lease:
        """Take back a lease that has not begun."""
        lease = self.recall(worker, sending)
        assert lease is not None
        self.instructions.append(Withdraw(worker.number, sending.number))
        return lease

    def disown(self, worker: Worker, sending: Sending) -> None:
        """Nobody waits for a lease that has begun, but it keeps its worker busy until that one says otherwise."""
        assert sending.lease is not None
        sending.lease.worker = sending.lease.number = 0
        sending.lease = None
        self.instructions.append(Withdraw(worker.number, sending.number))

    def unload(self, worker: Worker) -> list[Lease]:
        """Take all it has from a worker that is about to end."""
        leases = [self.recall(worker, sending) for sending in list(worker.sendings.values())]
        return [lease for lease in leases if lease is not None]

    def recycle(self, worker: Worker) -> None:
        """Retire it, so that another can take its place."""
        self.recycled += 1
        self.retire(worker)

    def retire(self, worker: Worker) -> None:
        """Its place is free; it ends by itself."""
        self.vacate(worker)
        worker.state = State.ENDING
        self.instructions.append(Retire(worker.number))

    def kill(self, worker: Worker, reason: str) -> None:
        """Its place is free; what it has stays with it until its process is gone, so that nothing runs twice."""
        self.vacate(worker)
        worker.state = State.ENDING
        self.instructions.append(Kill(worker.number, reason))

    def vacate(self, worker: Worker) -> None:
        """It does not count any more."""
        self.occupied -= 1
        del worker.crew.workers[worker]

    def give_up(self, lease: Lease, why: Loss) -> None:
        """The lease has ended; nobody has it any more."""
        self.instructions.append(GiveUp(lease, why))

    def statistics(self) -> PoolStatistics:
        """What the workers do at the moment, and the counters."""
        states = [worker.state for worker in self.workers.values()]
        idle = sum(worker.idle for worker in self.workers.values())
        return PoolStatistics(
            size=self.limits.size,
            starting=states.count(State.STARTING),
            idle=idle,
            busy=states.count(State.READY) - idle,
            stopping=states.count(State.ENDING),
            queued=sum(crew.waiting for crew in self.crews.values()),
            in_flight=self.in_flight,
            redispatched=self.redispatched,
            duplicates_dropped=self.duplicates_dropped,
            workers_lost=self.lost,
            workers_recycled=self.recycled,
            workers_started=self.started,
        )

    def validate(self) -> None:
        """Raise AssertionError where counts and records contradict each other or the limits."""
        workers = self.workers.values()
        stationed = [worker for crew in self.crews.values() for worker in crew.workers]
        assert set(stationed) == {worker for worker in workers if worker.stationed}
        assert self.occupied == len(stationed) <= self.limits.places
        assert self.active == sum(bool(worker.sendings) for worker in workers) <= self.limits.size
        assert self.in_flight == sum(len(worker.sendings) for worker in workers)
        for number, worker in self.workers.items():
            assert worker.number == number <= self.started
            worker.validate(self.limits)
        for fingerprint, crew in self.crews.items():
            assert crew.fingerprint == fingerprint
            crew.validate(self.limits)

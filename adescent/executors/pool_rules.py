"""What a pool of workers does next: a state machine that is told what happened and answers with instructions.

It starts nothing, sends nothing and reads no clock, so everything it decides can be tested in microseconds. Whoever
drives it hands in events with the time (seconds of one monotonic clock), carries out what `PoolRules.take` returns, and
calls `PoolRules.expire` at `PoolRules.next_deadline`.

A worker is starting, then ready, then told to end, then gone. Leases wait in *crews*, one a fingerprint,
in order of arrival. One that had begun in a worker when it died is a suspect: it goes out again, but alone, so that
those that merely were beside the culprit are cleared.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from itertools import islice

from adescent.executors.pool_crews import Sending, State, Worker
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
from adescent.executors.pool_roster import Roster
from adescent.executors.pool_staffing import Staffing

__all__ = [
    "GiveUp",
    "Instruction",
    "Kill",
    "Lease",
    "Loss",
    "PoolLimits",
    "PoolRules",
    "PoolStatistics",
    "Retire",
    "Send",
    "Start",
    "Withdraw",
]

CANCEL_GRACE_SECONDS = 0.5
"""How long a worker that runs several leases at once has to answer that it has stopped a cancelled one."""
RESTART_SECONDS = 0.1
"""What killing a worker costs until there is another: a lease that has likely ended by then is let end."""


class PoolRules:
    """The rules of one pool. Events about workers that are gone, or leases that have ended, change nothing."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self._roster = Roster(limits)
        self._staffing = Staffing(self._roster)
        self._arrivals = 0
        self._closed = False

    def take(self) -> list[Instruction]:
        """What is to be done, in order; each instruction is returned once."""
        instructions, self._roster.instructions = self._roster.instructions, []
        return instructions

    def open(self, fingerprint: Hashable, now: float) -> None:
        """Keep spares, if the limits allow any, for leases of ``fingerprint``."""
        self._staffing.settle_in(fingerprint)
        self._arrange(now)

    def submit(self, lease: Lease, now: float) -> None:
        """Take the lease, which ends exactly once: answered, given up, or cancelled."""
        if self._closed:
            self._roster.give_up(lease, "closed")
            return
        self._arrivals += 1
        lease.arrival = self._arrivals
        crew = self._roster.crew(lease.fingerprint)
        if crew.failures_left == 0:
            crew.failures_left = self.limits.places
        worker = None if crew.queue else self._staffing.least_loaded(crew, lease, now)
        if worker is None:
            crew.append(lease)
        else:
            self._roster.send(worker, lease, now)
        # Otherwise nothing can follow from it, however many wait: this is the way of most leases of a busy pool.
        if self._roster.occupied < self.limits.places or len(self._roster.crews) > 1:
            self._arrange(now)

    def cancel(self, lease: Lease, now: float) -> None:
        """Forget the lease. If it has begun, its worker is killed, unless it has others and stops this one in time."""
        worker = self._roster.workers.get(lease.worker)
        if worker is None:
            self._roster.crew(lease.fingerprint).discard(lease)
        else:
            self._cancel_sent(worker, worker.sendings[lease.number], now)
        self._arrange(now)

    def ready(self, worker: int, now: float) -> None:
        """It has started and waits for leases."""
        found = self._roster.workers.get(worker)
        if found is not None and found.state is State.STARTING:
            found.state = State.READY
            self._arrange(now)

    def heard(self, worker: int, now: float) -> None:
        """It said something that is no answer: it is alive."""
        found = self._roster.workers.get(worker)
        if found is not None:
            found.last_word = now

    def answered(self, worker: int, number: int, seconds: float, now: float) -> Lease | None:
        """It answered what was sent under ``number``, after ``seconds`` by its own clock.

        Returns the lease, which has ended with that; None when nobody waits for the answer any more.
        """
        found = self._roster.workers.get(worker)
        if found is None:
            self._roster.duplicates_dropped += 1
            return None
        found.last_word = now
        sending = found.sendings.get(number)
        if sending is None and not found.forget_withdrawn(number):
            self._roster.duplicates_dropped += 1
            return None
        found.last_answered = max(found.last_answered, number)
        gave_up_starting = found.crew.failures_left == 0
        found.crew.failures_left = self.limits.failed_starts
        lease: Lease | None = None
        if sending is not None:
            found.crew.learn_pace(seconds, self.limits)
            if sending.warned:  # that it still listens shows who was late: this one, and not something beside it
                self._end_late(found, sending)
            else:
                lease = self._roster.remove(found, sending)
            self._go_on(found, now)
        if gave_up_starting:
            self._arrange(now)
        return lease

    def broke(self, worker: int, reason: str, now: float) -> None:
        """It broke the protocol or closed its pipe without being told to end: nothing can be expected of it."""
        found = self._roster.workers.get(worker)
        if found is not None and found.stationed:
            self._condemn(found, reason)
            self._arrange(now)

    def exited(self, worker: int, reason: str, now: float, *, cpu: bool = False) -> None:
        """Its process is gone and all it wrote was handed in before; ``cpu``: it had used up its processor time."""
        found = self._roster.workers.pop(worker, None)
        if found is None:
            return
        died = found.stationed
        if died:
            self._lose(found, reason)
            self._roster.vacate(found)
        self._take_back(found, cpu=cpu and died)
        self._arrange(now)
        self._roster.disband(found.crew.fingerprint)

    def next_deadline(self) -> float:
        """When `expire` is to be called, unless something happens before; infinity if nothing can be due.

        It is never late. It may be early, since an answer leaves it as it is; `expire` makes it exact.
        """
        return self._roster.alarm

    def expire(self, now: float) -> None:
        """Do what is due: for starts, leases and silences that took too long, and for cancels not heeded."""
        for worker in self._roster.workers.values():
            while worker.deadline(self.limits) <= now:  # one that was only warned may be due for another reason too
                self._overdue(worker, now)
        self._arrange(now)
        self._roster.alarm = self._first_deadline()

    def _first_deadline(self) -> float:
        deadlines = [worker.deadline(self.limits) for worker in self._roster.workers.values()]
        return min([self._staffing.next_return(), *deadlines])

    def close(self, now: float) -> None:
        """Give up all leases, retire the idle workers, kill the others; start nothing any more."""
        self._closed = True
        leases = [lease for crew in self._roster.crews.values() for lease in crew.take_all()]
        for worker in self._roster.workers.values():
            if worker.idle:
                self._roster.retire(worker)
            elif worker.stationed:
                self._roster.kill(worker, "closed")
            leases += self._roster.unload(worker)
        for lease in sorted(leases, key=lambda lease: lease.arrival):
            self._roster.give_up(lease, "closed")
        self._roster.alarm = math.inf

    def statistics(self) -> PoolStatistics:
        """What the workers do at the moment, and the counters."""
        return self._roster.statistics()

    def validate(self) -> None:
        """Raise AssertionError if what is recorded contradicts itself or the rules: for tests, after each event."""
        self._roster.validate()
        assert self._roster.alarm <= self._first_deadline()
        if self._closed:
            assert not self._roster.occupied
            assert not self._roster.in_flight
            assert not any(crew.waiting for crew in self._roster.crews.values())
        else:
            self._staffing.validate()

    def _arrange(self, now: float) -> None:
        if not self._closed:
            self._staffing.arrange(now)

    def _go_on(self, worker: Worker, now: float) -> None:
        """A lease of the worker was answered: what comes next, there and elsewhere?"""
        if worker.state is State.READY:
            if worker.sendings:
                self._begin_next(worker, now)
            elif worker.spent(self.limits):
                self._roster.recycle(worker)
        if worker.sendings:
            self._staffing.feed(worker, now)
        else:
            self._arrange(now)

    def _begin_next(self, worker: Worker, now: float) -> None:
        for sending in islice(worker.sendings.values(), self.limits.in_flight - 1, self.limits.in_flight):
            if sending.begun_at is None:
                self._roster.begin(worker, sending, now)

    def _cancel_sent(self, worker: Worker, sending: Sending, now: float) -> None:
        """The lease is cancelled while a worker has it."""
        roster = self._roster
        if worker.state is State.ENDING:
            roster.recall(worker, sending)
        elif sending.begun_at is None:
            roster.withdraw(worker, sending)
        elif grace := self._grace(worker):
            roster.disown(worker, sending)
            roster.expect(sending, now + grace)
        else:
            roster.recall(worker, sending)
            roster.kill(worker, "its lease was cancelled")

    def _grace(self, worker: Worker) -> float:
        """How long it has to answer a cancelled lease that it has begun."""
        if self.limits.in_flight > 1:
            return CANCEL_GRACE_SECONDS
        pace = worker.crew.pace
        return RESTART_SECONDS if pace is not None and pace < RESTART_SECONDS else 0.0

    def _overdue(self, worker: Worker, now: float) -> None:
        """Its deadline may have passed: for starting, for a lease, or for a word."""
        limits = self.limits
        if worker.state is State.STARTING:
            self._condemn(worker, f"not ready within {limits.start_timeout:g} s")
        elif late := [sending for sending in worker.sendings.values() if sending.deadline <= now]:
            self._stop(worker, late, now)
        elif worker.withdrawn_until() <= now:
            self._stop_alone(worker, "a withdrawn lease went on")
        else:
            self._condemn(worker, f"not a word within {limits.hang_timeout:g} s")

    def _stop(self, worker: Worker, late: list[Sending], now: float) -> None:
        """The worker is killed for these, and for nothing else it has, unless something beside them may hold it up."""
        waited_for = [sending for sending in late if sending.lease is not None]
        if not waited_for:
            self._stop_alone(worker, "a withdrawn lease went on")
        elif self.limits.in_flight > 1 and len(worker.sendings) > 1:
            self._stop_beside_others(worker, waited_for, now)
        else:
            self._stop_late(worker, waited_for[0])

    def _stop_beside_others(self, worker: Worker, late: list[Sending], now: float) -> None:
        """Tell the worker first. If it does not listen, it may be held up by any of those that it has begun."""
        if any(sending.warned for sending in late):
            self._condemn(worker, "no answer in time, nor to being told to stop")
            return
        for sending in late:
            sending.warned = True
            self._roster.expect(sending, now + CANCEL_GRACE_SECONDS)
            self._roster.instructions.append(Withdraw(worker.number, sending.number))

    def _stop_late(self, worker: Worker, sending: Sending) -> None:
        """It is the only one that has begun there."""
        lease = sending.lease
        assert lease is not None
        reason = f"no answer within {lease.timeout:g} s"
        if not self._pardons(worker, sending, lease):
            self._end_late(worker, sending)
        self._lose(worker, reason)
        self._stop_alone(worker, reason)

    def _stop_alone(self, worker: Worker, reason: str) -> None:
        worker.spared = True
        self._roster.kill(worker, reason)

    def _end_late(self, worker: Worker, sending: Sending) -> None:
        lease = self._roster.remove(worker, sending)
        if lease is not None:
            lease.deaths.append(f"no answer within {lease.timeout:g} s")
            self._roster.give_up(lease, "timeout")

    def _condemn(self, worker: Worker, reason: str) -> None:
        """Kill it for what it did by itself."""
        self._lose(worker, reason)
        self._roster.kill(worker, reason)

    def _lose(self, worker: Worker, reason: str) -> None:
        """Nobody asked for its end: its crew is owed another worker, unless starts keep failing."""
        worker.verdict = reason
        self._roster.lost += 1
        self._staffing.owe(worker.crew)
        if worker.sent == 0:
            worker.crew.failures_left = max(0, worker.crew.failures_left - 1)

    def _take_back(self, worker: Worker, *, cpu: bool) -> None:
        """Its process is gone: what it had goes back to the front, in order, or ends."""
        back: list[Lease] = []
        for sending in list(worker.sendings.values()):
            lease = self._roster.remove(worker, sending)
            if lease is not None and self._survives(lease, sending, worker, cpu=cpu):
                back.append(lease)
        self._roster.redispatched += len(back)
        for lease in reversed(back):
            self._roster.crew(lease.fingerprint).put_first(lease)

    def _survives(self, lease: Lease, sending: Sending, worker: Worker, *, cpu: bool) -> bool:
        """Whether the lease goes on after its worker's end; counts the death if it may have caused it."""
        if sending.begun_at is None or worker.spared or self._pardons(worker, sending, lease):
            return True
        lease.deaths.append(worker.verdict)
        if cpu and self.limits.in_flight == 1:
            self._roster.give_up(lease, "cpu")
            return False
        lease.attempt += 1
        if len(lease.deaths) > self.limits.redispatches:
            self._roster.give_up(lease, "deaths")
            return False
        return True

    def _pardons(self, worker: Worker, sending: Sending, lease: Lease) -> bool:
        """Once in its life a lease may leave the blame to one that was withdrawn before it from the same worker."""
        if lease.pardoned or not worker.may_be_elsewhere(sending):
            return False
        lease.pardoned = True
        return True

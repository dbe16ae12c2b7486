"""What a pool of workers does next: a state machine that is told what happened and answers with instructions.

It starts nothing, sends nothing and reads no clock, so everything it decides can be tested in microseconds. Whoever
drives it hands in events with the time (seconds of one monotonic clock), carries out what `PoolRules.take` returns, and
calls `PoolRules.expire` at `PoolRules.next_deadline`.

A worker is starting, then ready, then told to retire or killed, then gone. Leases wait in *crews*, one a fingerprint,
in order of arrival. One that has begun in a worker when it died is a suspect: it goes out again, but alone, so that
those that merely were beside the culprit are cleared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

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
"""How long a worker with other leases has to say that it has stopped a cancelled one."""


class PoolRules:
    """The rules of one pool. Events about workers that are gone, or leases that have ended, change nothing."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self._instructions: list[Instruction] = []
        self._crews: dict[str, Crew] = {}
        self._workers: dict[int, Worker] = {}  # all that are not gone
        self._occupied = 0  # those of them that are starting or ready
        self._active = 0  # those that have leases
        self._in_flight = 0  # and how many
        self._owed: list[Crew] = []  # who has just lost a worker without asking for it
        self._home: str | None = None
        self._closed = False
        self._arrivals = 0
        self._numbers = 0
        self._started = 0
        self._redispatched = 0
        self._duplicates_dropped = 0
        self._lost = 0
        self._recycled = 0

    # Events

    def open(self, fingerprint: str, now: float) -> None:
        """Keep spares, if the limits allow any, for leases of ``fingerprint``."""
        self._home = fingerprint
        self._arrange(now)

    def submit(self, lease: Lease, now: float) -> None:
        """Take the lease, which ends exactly once: answered, given up, or cancelled."""
        if self._closed:
            self._give_up(lease, "closed")
            return
        self._arrivals += 1
        lease.arrival = self._arrivals
        crew = self._crews.get(lease.fingerprint) or self._found(lease.fingerprint)
        if crew.failures_left == 0:
            crew.failures_left = self.limits.places
        worker = None if crew.queue else self._least_loaded(crew, lease)
        if worker is None:
            crew.append(lease)
        else:
            self._send(worker, lease, now)
        if self._occupied < self.limits.places or len(self._crews) > 1 or lease.deaths:
            self._arrange(now)

    def cancel(self, lease: Lease, now: float) -> None:
        """Forget the lease. If it has begun, its worker is killed, unless it has others and stops this one in time."""
        worker = self._workers.get(lease.worker)
        if worker is not None:
            self._recall(worker, worker.sendings[lease.number], now)
        elif lease.fingerprint in self._crews:
            self._crews[lease.fingerprint].discard(lease)
        self._arrange(now)

    def ready(self, worker: int, now: float) -> None:
        """It has started and waits for leases."""
        found = self._workers.get(worker)
        if found is not None and found.state is State.STARTING:
            found.state = State.READY
            self._arrange(now)

    def heard(self, worker: int, now: float) -> None:
        """It sent something that is no answer: it is alive."""
        found = self._workers.get(worker)
        if found is not None:
            found.last_word = now

    def answered(self, worker: int, number: int, seconds: float, now: float) -> Lease | None:
        """It answered what was sent under ``number``, after ``seconds`` by its own clock.

        Returns the lease, which has ended with that; None when nobody waits for the answer any more.
        """
        found = self._workers.get(worker)
        sending = None if found is None else found.sendings.pop(number, None)
        if found is None or sending is None:
            self._drop_answer(found, number, now)
            return None
        found.last_word = now
        found.last_answered = max(found.last_answered, number)
        found.crew.failures_left = self._failures_allowed()
        found.crew.learn_pace(seconds, self.limits)
        self._in_flight -= 1
        if sending.lease is not None:
            sending.lease.worker = sending.lease.number = 0
        self._go_on(found, now)
        return sending.lease

    def broke(self, worker: int, reason: str, now: float) -> None:
        """It broke the protocol or closed its pipe: no answer can be expected of it."""
        found = self._workers.get(worker)
        if found is not None and found.state in (State.STARTING, State.READY):
            self._condemn(found, reason)
            self._arrange(now)

    def exited(self, worker: int, reason: str, now: float, *, cpu: bool = False) -> None:
        """Its process is gone and all it wrote was handed in before; ``cpu``: it had used up its processor time."""
        found = self._workers.pop(worker, None)
        if found is None:
            return
        if found.state in (State.STARTING, State.READY):
            self._lose(found, reason)
            self._leave_place(found)
        self._take_back(found, cpu=cpu and found.state is not State.KILLED)
        self._arrange(now)
        self._disband(found.crew)

    def expire(self, now: float) -> None:
        """Do what is due: starts, leases and silences that took too long, cancels not heeded, leases held too long."""
        for worker in list(self._workers.values()):
            if worker.deadline(self.limits) <= now:
                self._overdue(worker, now)
        self._arrange(now)

    def close(self, now: float) -> None:
        """Give up all leases, retire the idle workers, kill the others; start nothing any more."""
        self._closed = True
        for worker in list(self._workers.values()):
            if worker.idle:
                self._retire(worker)
            elif worker.state in (State.STARTING, State.READY):
                self._kill(worker, "closed")
        leases = [lease for crew in self._crews.values() for lease in crew.take_all()]
        for worker in self._workers.values():
            leases.extend(self._unload(worker))
        for lease in sorted(leases, key=lambda lease: lease.arrival):
            self._give_up(lease, "closed")

    # Questions

    def take(self) -> list[Instruction]:
        """What is to be done, in order; each instruction is returned once."""
        instructions, self._instructions = self._instructions, []
        return instructions

    def next_deadline(self) -> float:
        """When `expire` is to be called, unless something happens before; infinity if nothing is due.

        It may be early (after an answer, when several leases are in flight), and never is late.
        """
        first = min((worker.deadline(self.limits) for worker in self._workers.values()), default=math.inf)
        if self._in_flight > self._active:
            first = min([first, *(self._steal_time(*held) for held in self._stealable())])
        return first

    def statistics(self) -> PoolStatistics:
        """What the workers do at the moment, and the counters."""
        states = [worker.state for worker in self._workers.values()]
        idle = sum(worker.idle for worker in self._workers.values())
        return PoolStatistics(
            size=self.limits.size,
            starting=states.count(State.STARTING),
            idle=idle,
            busy=states.count(State.READY) - idle,
            stopping=states.count(State.RETIRING) + states.count(State.KILLED),
            queued=sum(crew.waiting for crew in self._crews.values()),
            in_flight=self._in_flight,
            redispatched=self._redispatched,
            duplicates_dropped=self._duplicates_dropped,
            workers_lost=self._lost,
            workers_recycled=self._recycled,
            workers_started=self._started,
        )

    # Who gets what

    def _arrange(self, now: float) -> None:
        """Bring waiting leases and workers together, as far as it goes: whoever came first, first."""
        if self._closed:
            return
        for crew in self._crews_in_want():
            if not crew.staffed(self.limits):
                self._hire(crew, now)
            self._place(crew, now)
        for crew in self._crews_in_want():
            self._grow(crew, now)
        if self._in_flight > self._active:
            self._relieve(now)
        self._replace_lost(now)
        self._keep_spares(now)

    def _crews_in_want(self) -> list[Crew]:
        crews = [crew for crew in self._crews.values() if crew.queue or crew.suspects]
        if len(crews) > 1:
            crews.sort(key=Crew.oldest)
        return crews

    def _place(self, crew: Crew, now: float) -> None:
        """Send what waits to workers that have room for it."""
        for line in (crew.suspects, crew.queue):
            while line:
                lease = next(iter(line))
                worker = self._least_loaded(crew, lease)
                if worker is None:
                    break
                del line[lease]
                self._send(worker, lease, now)
        if crew.suspects:
            crew.keep_reserve(self.limits)

    def _least_loaded(self, crew: Crew, lease: Lease) -> Worker | None:
        best, least = None, math.inf
        for worker in crew.workers:
            load = len(worker.sendings)
            if load < least and self._takes(worker, lease):
                if load == 0:
                    return worker
                best, least = worker, load
        return best

    def _takes(self, worker: Worker, lease: Lease) -> bool:
        """Whether the worker may be sent the lease now."""
        crew = worker.crew
        if worker.state is not State.READY or worker.spent(self.limits) or worker.claimed_from(lease.arrival):
            return False
        if not worker.sendings:
            return self._active < self.limits.size
        if lease.deaths or worker.alone or (crew.suspects and worker is crew.reserve):
            return False
        return len(worker.sendings) < crew.room

    def _send(self, worker: Worker, lease: Lease, now: float) -> None:
        self._numbers += 1
        number = self._numbers
        sending = Sending(number, lease)
        if not worker.sendings:
            worker.last_word = now
            worker.alone = bool(lease.deaths)
            self._active += 1
        worker.sendings[number] = sending
        worker.sent += 1
        if len(worker.sendings) <= self.limits.in_flight:
            worker.begin(sending, now)
        self._in_flight += 1
        lease.worker, lease.number = worker.number, number
        self._instructions.append(Send(worker.number, lease, number))

    def _go_on(self, worker: Worker, now: float) -> None:
        """A lease of the worker has ended: what comes next there?"""
        if not worker.sendings:
            self._active -= 1
            worker.alarm = math.inf
            if worker.state is State.READY and worker.spent(self.limits):
                self._recycle(worker)
            self._arrange(now)
        elif worker.state is State.READY:
            self._begin_next(worker, now)
            queue = worker.crew.queue
            while queue and self._takes(worker, lease := next(iter(queue))):
                del queue[lease]
                self._send(worker, lease, now)

    def _begin_next(self, worker: Worker, now: float) -> None:
        last_begun = self.limits.in_flight - 1
        for sending in islice(worker.sendings.values(), last_begun, last_begun + 1):
            if sending.begun_at is None:
                worker.begin(sending, now)

    # How many workers there are

    def _hire(self, crew: Crew, now: float) -> None:
        """Get a crew that has nobody its first worker: in a free place, that of an idle one, or the next to be idle."""
        if crew.failures_left == 0:
            if not crew.workers:
                for lease in crew.take_all():
                    self._give_up(lease, "not ready")
        elif self._occupied < self.limits.places or self._recycle_idle(crew):
            self._start(crew, now)
        else:
            self._claim(crew)

    def _grow(self, crew: Crew, now: float) -> None:
        """Start as many workers as there are leases without one to come."""
        for _ in range(crew.waiting - crew.to_come()):
            if crew.failures_left == 0 or not (self._occupied < self.limits.places or self._exchange_idle(crew)):
                return
            self._start(crew, now)

    def _exchange_idle(self, crew: Crew) -> bool:
        """Recycle an idle worker of others, provided that another in its place could begin something."""
        starting = sum(worker.state is State.STARTING for worker in self._workers.values())
        return self._active + starting < self.limits.size and self._recycle_idle(crew)

    def _recycle_idle(self, crew: Crew) -> bool:
        idle = [other for other in self._others(crew) if other.idle and other.crew.oldest() > crew.oldest()]
        if not idle:
            return False
        self._recycle(max(idle, key=lambda other: other.sent > 0))  # those that never served are the spares
        return True

    def _claim(self, crew: Crew) -> None:
        """See that a worker of others runs dry, however much there is for them."""
        others = list(self._others(crew))
        if any(other.claimant is crew for other in others):
            return
        free = [other for other in others if other.claimant is None or not other.claimant.waiting]
        if free:
            least = min(free, key=lambda other: (other.state is State.STARTING, len(other.sendings)))
            least.claimant = crew

    def _others(self, crew: Crew) -> Iterator[Worker]:
        return (worker for other in self._crews.values() if other is not crew for worker in other.workers)

    def _start(self, crew: Crew, now: float) -> None:
        self._started += 1
        worker = Worker(self._started, crew, since=now)
        self._workers[worker.number] = worker
        crew.workers[worker] = None
        self._occupied += 1
        if self._owed:
            self._owed.remove(crew if crew in self._owed else self._owed[-1])
        self._instructions.append(Start(worker.number, crew.fingerprint))

    def _replace_lost(self, now: float) -> None:
        """Refill the pool, whether or not something waits."""
        for crew in self._owed[:]:
            if crew in self._owed and crew.failures_left and self._occupied < self.limits.places:
                self._start(crew, now)
        self._owed.clear()

    def _keep_spares(self, now: float) -> None:
        if self._home is None or not self.limits.spares:
            return
        crew = self._crews.get(self._home) or self._found(self._home)
        fresh = sum(not worker.sent for worker in crew.workers) - crew.waiting
        while fresh < self.limits.spares and self._occupied < self.limits.places and crew.failures_left:
            self._start(crew, now)
            fresh += 1

    # Leases held behind one that takes long

    def _relieve(self, now: float) -> None:
        """Send leases held too long to idle workers, and start workers for those that could begin elsewhere."""
        for worker, sending, thief in self._stealable():
            if self._steal_time(worker, sending, thief) <= now and thief.idle and self._active < self.limits.size:
                lease = self._withdraw(worker, sending)
                self._send(thief, lease, now)
        for crew in list(self._crews.values()):
            held = sum(max(0, len(worker.sendings) - self.limits.in_flight) for worker in crew.workers)
            for _ in range(held - crew.to_come()):
                if crew.failures_left and self._occupied < self.limits.size:
                    self._start(crew, now)

    def _stealable(self) -> list[tuple[Worker, Sending, Worker]]:
        """Leases that have not begun, where they are, and an idle worker that could take them."""
        found = []
        for crew in self._crews.values():
            for worker in crew.workers:
                sending = worker.held(self.limits.in_flight)
                if sending is not None and sending.lease is not None:
                    thief = self._least_loaded(crew, sending.lease)
                    if thief is not None and thief.idle:
                        found.append((worker, sending, thief))
        return found

    def _steal_time(self, worker: Worker, sending: Sending, thief: Worker) -> float:
        return worker.waited_for_since() + self.limits.steal_after

    # How leases and workers end

    def _give_up(self, lease: Lease, why: Loss) -> None:
        self._instructions.append(GiveUp(lease, why))

    def _drop_answer(self, worker: Worker | None, number: int, now: float) -> None:
        if worker is None or number not in worker.withdrawn:
            self._duplicates_dropped += 1
            return
        del worker.withdrawn[number]
        worker.last_word = now
        worker.last_answered = max(worker.last_answered, number)

    def _remove(self, worker: Worker, sending: Sending) -> None:
        """The worker does not have it any more."""
        del worker.sendings[sending.number]
        self._in_flight -= 1
        if not worker.sendings:
            self._active -= 1
            worker.alarm = math.inf
        if sending.lease is not None:
            sending.lease.worker = sending.lease.number = 0

    def _unload(self, worker: Worker) -> list[Lease]:
        """All the worker has: the leases, in order, and answers that are no surprise."""
        sendings = list(worker.sendings.values())
        for sending in sendings:
            self._remove(worker, sending)
            worker.remember_withdrawn(sending.number)
        return [sending.lease for sending in sendings if sending.lease is not None]

    def _withdraw(self, worker: Worker, sending: Sending) -> Lease:
        """Take back what has not begun."""
        assert sending.lease is not None
        self._remove(worker, sending)
        worker.remember_withdrawn(sending.number)
        self._instructions.append(Withdraw(worker.number, sending.number))
        return sending.lease

    def _recall(self, worker: Worker, sending: Sending, now: float) -> None:
        """The lease of ``sending`` is cancelled."""
        if worker.state is State.KILLED:
            self._remove(worker, sending)
        elif sending.begun_at is None:
            self._withdraw(worker, sending)
        elif self.limits.in_flight == 1:
            self._remove(worker, sending)
            worker.spared = True
            self._kill(worker, "its lease was cancelled")
        else:
            assert sending.lease is not None
            sending.lease.worker = sending.lease.number = 0
            sending.lease = None
            worker.expect(sending, now + CANCEL_GRACE_SECONDS)
            self._instructions.append(Withdraw(worker.number, sending.number))

    def _overdue(self, worker: Worker, now: float) -> None:
        """Its deadline may have passed: for starting, for a lease, or for a word."""
        limits = self.limits
        if worker.state is State.STARTING:
            self._condemn(worker, f"not ready within {limits.start_timeout:g} s")
            return
        late = worker.overdue(now)
        if late:
            self._stop_late(worker, late)
        elif limits.hang_timeout is not None and worker.last_word + limits.hang_timeout <= now:
            self._condemn(worker, f"not a word within {limits.hang_timeout:g} s")

    def _stop_late(self, worker: Worker, late: list[Sending]) -> None:
        """The worker is killed for these, and for nothing else that it has."""
        worker.spared = True
        reason = "a cancelled lease went on"
        for sending in late:
            lease = sending.lease
            if lease is not None:
                reason = f"no answer within {lease.timeout:g} s"
                if self._pardons(worker, sending, lease):
                    continue
                lease.deaths.append(reason)
                self._give_up(lease, "timeout")
            self._remove(worker, sending)
        if reason.startswith("no answer"):
            self._lose(worker, reason)
        self._kill(worker, reason)

    def _pardons(self, worker: Worker, sending: Sending, lease: Lease) -> bool:
        """Once in its life a lease may blame one that was withdrawn before it in the same worker."""
        if lease.pardoned or not worker.may_be_elsewhere(sending):
            return False
        lease.pardoned = True
        return True

    def _condemn(self, worker: Worker, reason: str) -> None:
        """Kill it for what it did by itself."""
        self._lose(worker, reason)
        self._kill(worker, reason)

    def _lose(self, worker: Worker, reason: str) -> None:
        """It has died, or is to be killed, and nobody wanted that: one is owed, unless starts fail too often."""
        worker.verdict = reason
        self._lost += 1
        self._owed.append(worker.crew)
        if worker.sent == 0:
            worker.crew.failures_left = max(0, worker.crew.failures_left - 1)

    def _kill(self, worker: Worker, reason: str) -> None:
        self._leave_place(worker)
        worker.state = State.KILLED
        self._instructions.append(Kill(worker.number, reason))

    def _recycle(self, worker: Worker) -> None:
        self._recycled += 1
        self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        self._leave_place(worker)
        worker.state = State.RETIRING
        self._instructions.append(Retire(worker.number))

    def _leave_place(self, worker: Worker) -> None:
        self._occupied -= 1
        worker.claimant = None
        del worker.crew.workers[worker]

    def _take_back(self, worker: Worker, *, cpu: bool) -> None:
        """Its process is gone: what it had goes back to the front, in order, or ends."""
        back: list[Lease] = []
        for sending in list(worker.sendings.values()):
            self._remove(worker, sending)
            lease = sending.lease
            if lease is None:
                continue
            blamed = sending.begun_at is not None and not worker.spared
            if (
                not blamed
                or self._pardons(worker, sending, lease)
                or self._may_try_again(lease, worker.verdict, cpu=cpu)
            ):
                back.append(lease)
        for lease in reversed(back):
            self._redispatched += 1
            (self._crews.get(lease.fingerprint) or self._found(lease.fingerprint)).put_first(lease)

    def _may_try_again(self, lease: Lease, reason: str, *, cpu: bool) -> bool:
        """Count a death it had begun in; False if that was the last."""
        lease.deaths.append(reason)
        if cpu and self.limits.in_flight == 1:
            self._give_up(lease, "cpu")
            return False
        lease.attempt += 1
        if len(lease.deaths) > self.limits.redispatches:
            self._give_up(lease, "deaths")
            return False
        return True

    def _found(self, fingerprint: str) -> Crew:
        crew = Crew(fingerprint, self._failures_allowed(), self.limits.in_flight)
        self._crews[fingerprint] = crew
        return crew

    def _failures_allowed(self) -> int:
        return self.limits.start_failures * self.limits.places

    def _disband(self, crew: Crew) -> None:
        """Nothing is left to remember of it."""
        if crew.deserted and crew.failures_left == self._failures_allowed():
            self._crews.pop(crew.fingerprint, None)

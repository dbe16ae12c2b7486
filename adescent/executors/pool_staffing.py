"""Who gets what: how waiting leases and workers come together, and how many workers of which kind there are."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterator

from adescent.executors.pool_crews import Crew, State, Worker
from adescent.executors.pool_records import Lease
from adescent.executors.pool_roster import Roster

__all__ = ["Staffing"]


class Staffing:
    """Decides for one roster, whenever something in it has changed.

    Leases are served in order of arrival, those of one fingerprint strictly. Across fingerprints a worker that has
    leases of its own to serve does so, but a crew that has nobody takes a place from the others before anything
    younger than its own leases begins there.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._limits = roster.limits
        self._owed: list[Crew] = []
        self._home: Hashable | None = None

    def settle_in(self, fingerprint: Hashable) -> None:
        """Spares are for leases of this fingerprint."""
        self._home = fingerprint

    def owe(self, crew: Crew) -> None:
        """The crew has lost a worker without being asked."""
        self._owed.append(crew)

    def arrange(self, now: float) -> None:
        """Bring leases and workers together, as far as it goes."""
        if self._held_anywhere():
            self._return_held(now)
        if len(self._roster.crews) > 1:
            self._drop_claims()
        crews = self._crews_in_want()
        for crew in crews:
            if not crew.workers:
                self._hire(crew, now)  # before anything younger is sent to the workers of others
        for crew in crews:
            self._place(crew, crew.suspects, now)
            if crew.suspects:
                crew.keep_reserve(self._limits)
            self._place(crew, crew.queue, now)
        for crew in self._crews_in_want():
            self._grow(crew, now)
        if self._held_anywhere():
            self._relieve(now)
        self._replace_lost(now)
        self._keep_spares(now)

    def next_return(self) -> float:
        """When leases that are held are to be taken back; infinity if none are."""
        return min((worker.returns_at(self._limits) for worker in self._holding()), default=math.inf)

    def _crews_in_want(self) -> list[Crew]:
        crews = [crew for crew in self._roster.crews.values() if crew.queue or crew.suspects]
        if len(crews) > 1:
            crews.sort(key=Crew.oldest)
        return crews

    def _place(self, crew: Crew, line: OrderedDict[Lease, None], now: float) -> None:
        """Send what waits to workers that have room for it."""
        while line and (worker := self.least_loaded(crew, lease := next(iter(line)), now)):
            del line[lease]
            self._roster.send(worker, lease, now)

    def feed(self, worker: Worker, now: float) -> None:
        """Send a worker that is busy what it has room for."""
        crew = worker.crew
        queue = crew.queue
        while queue and len(worker.sendings) < crew.room and self.takes(worker, lease := next(iter(queue)), now):
            del queue[lease]
            self._roster.send(worker, lease, now)

    def least_loaded(self, crew: Crew, lease: Lease, now: float) -> Worker | None:
        """The worker that is to be sent the lease now, if any is."""
        best, least = None, math.inf
        for worker in crew.workers:
            load = len(worker.sendings)
            if load < least and self.takes(worker, lease, now):
                if load == 0:
                    return worker
                best, least = worker, load
        return best

    def takes(self, worker: Worker, lease: Lease, now: float) -> bool:
        """Whether the worker may be sent the lease now."""
        if worker.state is not State.READY or worker.spent(self._limits) or worker.claimed_from(lease.arrival):
            return False
        load = len(worker.sendings)
        if load == 0:
            return self._roster.active < self._limits.size
        crew = worker.crew
        if load >= crew.room or lease.deaths or worker.alone or (crew.suspects and worker is crew.reserve):
            return False
        return load < self._limits.in_flight or now < worker.returns_at(self._limits)

    # Leases that are held behind others

    def _held_anywhere(self) -> bool:
        """A quick look that may be wrong when it says yes: a worker with two leases may have begun both."""
        return self._roster.in_flight > self._roster.active

    def _holding(self) -> Iterator[Worker]:
        """Workers that hold leases which another could begin."""
        if self._limits.size > 1:
            for crew in self._roster.crews.values():
                yield from (worker for worker in crew.workers if worker.holds(self._limits.in_flight))

    def _return_held(self, now: float) -> None:
        """What is held behind a lease that takes long waits again, before all others, for whoever is free first."""
        returned = [
            self._roster.withdraw(worker, sending)
            for worker in self._holding()
            if worker.returns_at(self._limits) <= now
            for sending in worker.held(self._limits.in_flight)
        ]
        for lease in sorted(returned, key=lambda lease: lease.arrival, reverse=True):
            self._roster.crew(lease.fingerprint).put_first(lease)

    def _relieve(self, now: float) -> None:
        """Start workers, while there may be more, for leases that are held and could begin in them."""
        for crew in self._roster.crews.values():
            held = sum(worker.holds(self._limits.in_flight) for worker in crew.workers)
            for _ in range(held - crew.to_come()):
                if crew.failures_left and self._roster.occupied < self._limits.size:
                    self._start(crew, now)

    # How many workers there are

    def _hire(self, crew: Crew, now: float) -> None:
        """Get a crew that has nobody its first worker: in a free place, that of an idle one, or the next to be idle."""
        if crew.failures_left == 0:
            for lease in crew.take_all():
                self._roster.give_up(lease, "not ready")
        elif self._has_place() or self._recycle_idle(crew):
            self._start(crew, now)
        else:
            self._claim(crew)

    def _grow(self, crew: Crew, now: float) -> None:
        """Start as many workers as there are leases without one to come."""
        for _ in range(crew.waiting - crew.to_come()):
            if crew.failures_left == 0 or not (self._has_place() or self._exchange_idle(crew)):
                return
            self._start(crew, now)

    def _has_place(self) -> bool:
        return self._roster.occupied < self._limits.places

    def _exchange_idle(self, crew: Crew) -> bool:
        """Recycle an idle worker, provided that another in its place could begin something."""
        starting = sum(worker.state is State.STARTING for worker in self._roster.workers.values())
        return self._roster.active + starting < self._limits.size and self._recycle_idle(crew)

    def _recycle_idle(self, crew: Crew) -> bool:
        """Recycle an idle worker, which is of another crew, for this one, unless older leases wait for it there."""
        idle = [worker for worker in self._stationed() if worker.idle and worker.crew.oldest() >= crew.oldest()]
        if not idle:
            return False
        self._roster.recycle(max(idle, key=lambda worker: worker.sent > 0))  # those that never served are the spares
        return True

    def _claim(self, crew: Crew) -> None:
        """See that a worker of others runs dry, however much there is for them."""
        free = [worker for worker in self._stationed() if worker.claimant is None]
        if free:
            least = min(free, key=lambda worker: (worker.state is State.STARTING, len(worker.sendings)))
            least.claimant = crew

    def _drop_claims(self) -> None:
        """They are made anew, by whoever still has nobody."""
        for worker in self._roster.workers.values():
            worker.claimant = None

    def _stationed(self) -> Iterator[Worker]:
        return (worker for crew in self._roster.crews.values() for worker in crew.workers)

    def _start(self, crew: Crew, now: float) -> None:
        if self._owed:
            self._owed.remove(crew if crew in self._owed else self._owed[-1])
        self._roster.start(crew, now)

    def _replace_lost(self, now: float) -> None:
        """Refill the pool, whether or not something waits."""
        for crew in self._owed:
            if crew.failures_left:
                self._roster.start(crew, now)
        self._owed.clear()

    def _keep_spares(self, now: float) -> None:
        if self._home is None or not self._limits.spares:
            return
        crew = self._roster.crew(self._home)
        fresh = sum(not worker.sent for worker in crew.workers) - crew.waiting
        while fresh < self._limits.spares and self._has_place() and crew.failures_left:
            self._start(crew, now)
            fresh += 1

    def validate(self) -> None:
        """Raise AssertionError if something waits for nothing, or could be served."""
        assert not self._owed
        for crew in self._roster.crews.values():
            held = sum(worker.holds(self._limits.in_flight) for worker in crew.workers)
            if crew.failures_left:
                assert crew.waiting <= crew.to_come() or not self._has_place()
                assert held <= crew.to_come() or self._roster.occupied >= self._limits.size
        for crew in self._crews_in_want():
            if not crew.workers:
                assert crew.failures_left, "else it was to be given up"
                claimants = [worker.claimant for worker in self._stationed()]
                assert crew in claimants or None not in claimants
            for lease in (*list(crew.suspects)[:1], *list(crew.queue)[:1]):
                assert not any(self.takes(worker, lease, math.inf) for worker in crew.workers)

"""Who holds which lease: the workers of a pool, and the crews they form with the leases that wait for them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum, auto
from itertools import islice

from attrs import define, field

from adescent.executors.pool_records import Lease, PoolLimits

__all__ = ["Crew", "Sending", "State", "Worker"]

REMEMBERED_WITHDRAWALS = 32
"""Per worker: most withdrawn leases are forgotten there without an answer, so what is remembered needs a bound."""
PACE_WEIGHT = 0.2
"""What the newest time weighs in the moving average."""
SLOW_SECONDS = 1.0
"""Longer times count as this much in the average, and so does what is no time: one straggler is soon forgotten."""


class State(Enum):
    """A worker's life; what is gone has no state."""

    STARTING = auto()
    READY = auto()
    ENDING = auto()


@define(eq=False)
class Sending:
    """One lease in one worker; without ``lease`` nobody waits for its answer, but its worker is still at it.

    ``begun_at`` is None behind others that come first. After ``deadline`` the worker is to be killed; a ``warned`` one
    has had its time, and its worker has been told to stop it.
    """

    number: int
    lease: Lease | None
    begun_at: float | None = None
    deadline: float = math.inf
    warned: bool = False


@define(eq=False)
class Worker:
    """One process, and what it was sent.

    ``sendings`` are in the order in which they were sent. ``withdrawn`` are numbers that were taken back and may be
    answered all the same, with the time that these leases have. A worker with a ``claimant`` takes no lease that is
    younger than the claimant's. ``alone`` means that it has one lease, under suspicion, and takes no other. In one that
    is killed for what a lease did, the others are ``spared``; of all others a ``verdict`` says why they ended.
    """

    number: int
    crew: Crew
    since: float
    state: State = State.STARTING
    sendings: dict[int, Sending] = field(factory=dict)
    withdrawn: dict[int, float] = field(factory=dict)
    last_withdrawn: int = 0
    sent: int = 0
    last_answered: int = 0
    last_word: float = 0.0
    alone: bool = False
    claimant: Crew | None = None
    verdict: str = ""
    spared: bool = False

    @property
    def stationed(self) -> bool:
        """Neither told to end nor gone."""
        return self.state is not State.ENDING

    @property
    def idle(self) -> bool:
        """Ready and without a lease."""
        return self.state is State.READY and not self.sendings

    def holds(self, in_flight: int) -> int:
        """How many of its leases have not begun."""
        return max(0, len(self.sendings) - in_flight)

    def held(self, in_flight: int) -> list[Sending]:
        """Those that have not begun, in order."""
        return list(islice(self.sendings.values(), in_flight, None))

    def returns_at(self, limits: PoolLimits) -> float:
        """When the first of its leases, of which there is one, will have run so long that it is to hold no others."""
        begun_at = next(iter(self.sendings.values())).begun_at
        assert begun_at is not None
        return begun_at + limits.steal_after

    def claimed_from(self, arrival: float) -> bool:
        """Whether a lease that arrived then has to leave this worker to its claimant."""
        return self.claimant is not None and self.claimant.oldest() < arrival

    def spent(self, limits: PoolLimits) -> bool:
        """Whether it has been sent all it may be sent."""
        return limits.max_tasks is not None and self.sent >= limits.max_tasks

    def deadline(self, limits: PoolLimits) -> float:
        """When something is to be done about it."""
        if self.state is State.STARTING:
            return self.since + limits.start_timeout
        if self.state is not State.READY or not self.sendings:
            return math.inf
        answers = [sending.deadline for sending in self.sendings.values()]
        return min(self.silent_until(limits), self.withdrawn_until(), *answers)

    def silent_until(self, limits: PoolLimits) -> float:
        """When a word is due, if it has a lease."""
        return math.inf if limits.hang_timeout is None else self.last_word + limits.hang_timeout

    # The worker may have begun what was withdrawn before it heard of that. Leases begin in order, so an answer to a
    # later one tells that a withdrawn one was forgotten or is over.

    def remember_withdrawn(self, number: int, timeout: float | None) -> None:
        """Its answer, if there is one, is no surprise; if it is under way, it may be that long."""
        self.withdrawn[number] = math.inf if timeout is None else timeout
        self.last_withdrawn = max(self.last_withdrawn, number)
        if len(self.withdrawn) > REMEMBERED_WITHDRAWALS:
            del self.withdrawn[next(iter(self.withdrawn))]

    def forget_withdrawn(self, number: int) -> bool:
        """Whether it was withdrawn; now it was answered all the same."""
        return self.withdrawn.pop(number, None) is not None

    def may_be_elsewhere(self, sending: Sending) -> bool:
        """Whether it may be busy with a withdrawn lease instead of this one."""
        return bool(self._withdrawn_before(sending))

    def withdrawn_until(self) -> float:
        """When a withdrawn lease that keeps it from others has had its time, for all that is known."""
        if self.last_withdrawn <= self.last_answered:  # nearly always, and this is asked with every lease that begins
            return math.inf
        begun = [(each, each.begun_at) for each in self.sendings.values() if each.begun_at is not None]
        times = [begun_at + timeout for each, begun_at in begun for timeout in self._withdrawn_before(each)]
        return min(times, default=math.inf)

    def _withdrawn_before(self, sending: Sending) -> list[float]:
        """The times of those that may be under way in place of this one."""
        return [timeout for number, timeout in self.withdrawn.items() if self.last_answered < number < sending.number]

    def validate(self, limits: PoolLimits) -> None:
        """Raise AssertionError if what it holds cannot be."""
        sendings = list(self.sendings.values())
        assert not sendings or self.state is not State.STARTING
        assert self.sent <= (limits.max_tasks or math.inf)
        assert len(sendings) <= max(limits.in_flight, limits.prefetch)
        assert list(self.sendings) == sorted(self.sendings), "in order of sending"
        assert not self.alone or len(sendings) <= 1
        assert all(number <= self.last_withdrawn for number in self.withdrawn)
        for place, sending in enumerate(sendings):
            assert (sending.begun_at is not None) == (place < limits.in_flight) or self.state is State.ENDING
            if sending.lease is not None:
                assert (sending.lease.worker, sending.lease.number) == (self.number, sending.number)
                assert sending.lease.fingerprint == self.crew.fingerprint
                assert self.alone or not sending.lease.deaths


@define(eq=False)
class Crew:
    """The workers of one fingerprint that are neither retiring nor killed, and the leases that wait for them.

    ``suspects`` have seen a worker die; ``reserve`` is the worker that takes nothing else while they wait.
    ``failures_left`` is how many more starts in a row may fail. ``room`` is how many leases a worker may have.
    """

    fingerprint: Hashable
    failures_left: int
    room: int
    workers: dict[Worker, None] = field(factory=dict)
    queue: OrderedDict[Lease, None] = field(factory=OrderedDict)
    suspects: OrderedDict[Lease, None] = field(factory=OrderedDict)
    reserve: Worker | None = None
    pace: float | None = None

    @property
    def waiting(self) -> int:
        """How many leases wait."""
        return len(self.queue) + len(self.suspects)

    def oldest(self) -> float:
        """When the first of the leases that wait arrived; infinity if none does."""
        firsts = [next(iter(leases)).arrival for leases in (self.suspects, self.queue) if leases]
        return min(firsts, default=math.inf)

    def to_come(self) -> int:
        """How many of its workers have nothing, and will take a lease when they are ready and it is their turn."""
        return sum(not worker.sendings for worker in self.workers)

    def _line(self, lease: Lease) -> OrderedDict[Lease, None]:
        return self.suspects if lease.deaths else self.queue

    def append(self, lease: Lease) -> None:
        """It waits behind those that came before it."""
        self._line(lease)[lease] = None

    def put_first(self, lease: Lease) -> None:
        """It waits before all others: it has waited once."""
        line = self._line(lease)
        line[lease] = None
        line.move_to_end(lease, last=False)

    def discard(self, lease: Lease) -> None:
        """It does not wait any more, if it did."""
        self._line(lease).pop(lease, None)

    def take_all(self) -> list[Lease]:
        """All that wait, which then wait no more."""
        leases = [*self.suspects, *self.queue]
        self.suspects.clear()
        self.queue.clear()
        return leases

    def keep_reserve(self, limits: PoolLimits) -> None:
        """See that suspects get a worker to themselves though all are always fed: the least loaded is to run dry.

        One without a lease is none to count on: it may never be ready, or a spare whose turn comes when another is dry.
        """
        able = [worker for worker in self.workers if worker.sendings and not worker.spent(limits)]
        self.reserve = min(able, key=lambda worker: len(worker.sendings), default=None)

    def learn_pace(self, seconds: float, limits: PoolLimits) -> None:
        """Take a reported time into the average; it comes out of a worker, so it may be anything."""
        if not 0.0 <= seconds <= SLOW_SECONDS:
            seconds = SLOW_SECONDS
        self.pace = seconds if self.pace is None else self.pace + (seconds - self.pace) * PACE_WEIGHT
        quick = self.pace < limits.quick_seconds
        self.room = max(limits.in_flight, limits.prefetch) if quick else limits.in_flight

    def validate(self, limits: PoolLimits) -> None:
        """Raise AssertionError if what waits cannot be."""
        assert 0 <= self.failures_left <= limits.failed_starts
        for lease in (*self.queue, *self.suspects):
            assert lease.fingerprint == self.fingerprint
            assert not lease.worker
            assert not lease.number
        assert not any(lease.deaths for lease in self.queue)
        assert all(0 < len(lease.deaths) <= limits.redispatches for lease in self.suspects)

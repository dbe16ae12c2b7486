"""What the rules of a pool of workers are told, what they answer, and what is counted."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from attrs import define, field, frozen

__all__ = [
    "GiveUp",
    "Instruction",
    "Kill",
    "Lease",
    "Loss",
    "PoolLimits",
    "PoolStatistics",
    "Retire",
    "Send",
    "Start",
    "Withdraw",
]

Loss = Literal["deaths", "timeout", "cpu", "not ready", "closed"]
"""Why a lease ends without an answer."""


@frozen
class PoolLimits:
    """How many workers there are and what they may hold; times in seconds, None means no limit.

    Leases are begun in at most ``size`` workers at once, ``in_flight`` in each; ``spares`` more are kept warm.
    While the moving average of the reported times is below ``quick_seconds``, a worker is sent up to ``prefetch``
    leases, and those that have not begun behind one that has run for ``steal_after`` go to whoever is free first.
    After ``max_tasks`` leases a worker is retired. A lease is sent again after at most ``redispatches`` deaths.
    ``hang_timeout`` bounds the silence of a worker that has a lease, ``start_timeout`` a start;
    ``start_failures`` × (size + spares) starts in a row may fail before waiting leases are given up.
    """

    size: int
    spares: int = 0
    in_flight: int = 1
    prefetch: int = 4
    quick_seconds: float = 0.002
    max_tasks: int | None = None
    redispatches: int = 2
    hang_timeout: float | None = None
    start_timeout: float = 30.0
    start_failures: int = 3
    steal_after: float = 0.05

    @property
    def places(self) -> int:
        """How many workers there may be that are neither retiring nor killed."""
        return self.size + self.spares

    @property
    def failed_starts(self) -> int:
        """How many starts for one fingerprint may fail, one after the other."""
        return self.start_failures * self.places


@define(eq=False)
class Lease:
    """One rollout on its way to an answer: made for the rules, and theirs until it ends.

    It goes to workers of its ``fingerprint``, which is whatever can be hashed. ``timeout`` seconds after it has begun
    it is given up. ``attempt`` goes up with each death of a worker in which it had begun, and ``deaths`` says how that
    one died. It is in ``worker`` under ``number`` while these are not 0.
    """

    fingerprint: Hashable
    timeout: float | None = None
    attempt: int = 0
    deaths: list[str] = field(factory=list)
    arrival: int = field(default=0, init=False, repr=False)
    worker: int = field(default=0, init=False)
    number: int = field(default=0, init=False)
    pardoned: bool = field(default=False, init=False, repr=False)


@define
class Start:
    """Start a worker, numbered as none before, that serves leases of ``fingerprint``."""

    worker: int
    fingerprint: Hashable


@define
class Send:
    """Send the lease to the worker; ``number`` names this sending, and the answer to it, in the whole pool."""

    worker: int
    lease: Lease
    number: int


@define
class Withdraw:
    """Tell the worker that what was sent under ``number`` is not wanted any more."""

    worker: int
    number: int


@define
class Retire:
    """Let the worker, which has nothing to do, end by itself."""

    worker: int


@define
class Kill:
    """End the worker, whatever it does, and its whole process group."""

    worker: int
    reason: str


@define
class GiveUp:
    """The lease has ended without an answer."""

    lease: Lease
    why: Loss


Instruction = Start | Send | Withdraw | Retire | Kill | GiveUp


@frozen
class PoolStatistics:
    """What a pool is doing, and what happened in it so far.

    ``size`` is how many workers may have begun leases. Each worker is ``starting``, ``idle``, ``busy`` or
    ``stopping`` (until its process is gone). Leases are ``queued``, or ``in_flight`` in a worker. ``redispatched``
    counts leases that went back to the queue because their worker was gone, ``duplicates_dropped`` answers that
    nobody waited for, ``workers_lost`` those that died or were killed for what they did, ``workers_recycled`` those
    retired for having served enough or for having the wrong fingerprint.
    """

    size: int
    starting: int
    idle: int
    busy: int
    stopping: int
    queued: int
    in_flight: int
    redispatched: int
    duplicates_dropped: int
    workers_lost: int
    workers_recycled: int
    workers_started: int

"""A pool of which only the rules are there: events in a few words, and instructions to look at."""

from __future__ import annotations

from collections.abc import Hashable

from attrs import define, field

from adescent.executors.pool_rules import (
    Instruction,
    Lease,
    PoolLimits,
    PoolRules,
    Retire,
    Start,
)

__all__ = ["QUICK", "SLOW", "Play", "carry_out", "quick", "staffed", "starts"]

QUICK = 0.0001
SLOW = 1.0


@define
class Play:
    """A pool, its clock, and events in a few words."""

    limits: PoolLimits
    now: float = 100.0
    rules: PoolRules = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rules = PoolRules(self.limits)

    def submit(self, fingerprint: str = "a", timeout: float | None = None) -> Lease:
        lease = Lease(fingerprint, timeout)
        self.rules.submit(lease, self.now)
        self.rules.validate()
        return lease

    def submit_many(self, number: int, fingerprint: str = "a") -> list[Lease]:
        return [self.submit(fingerprint) for _ in range(number)]

    def ready(self, *workers: int) -> None:
        for worker in workers:
            self.rules.ready(worker, self.now)

    def answer(self, *leases: Lease, seconds: float = SLOW) -> None:
        for lease in leases:
            assert self.rules.answered(lease.worker, lease.number, seconds, self.now) is lease
            self.rules.validate()

    def cancel(self, lease: Lease) -> None:
        self.rules.cancel(lease, self.now)

    def die(self, worker: int, reason: str = "SIGSEGV", *, cpu: bool = False) -> None:
        self.rules.exited(worker, reason, self.now, cpu=cpu)

    def wait(self, seconds: float) -> None:
        """Let time pass, with a look at what is due whenever something is."""
        until = self.now + seconds
        while (deadline := self.rules.next_deadline()) <= until:
            self.now = max(self.now, deadline)
            self.rules.expire(self.now)
            assert self.rules.next_deadline() > self.now
        self.now = until

    def take(self) -> list[Instruction]:
        self.rules.validate()
        return self.rules.take()

    def silently(self) -> None:
        """What has happened so far is how the test begins."""
        self.take()


def staffed(limits: PoolLimits, fingerprint: str = "a") -> Play:
    """A pool with ``size`` ready workers that have all answered once, slowly."""
    play = Play(limits)
    leases = play.submit_many(limits.size, fingerprint)
    play.ready(*range(1, limits.size + 1))
    play.answer(*leases)
    play.silently()
    return play


def quick(limits: PoolLimits) -> Play:
    """The same, and all leases so far took next to no time."""
    play = Play(limits)
    leases = play.submit_many(limits.size)
    play.ready(*range(1, limits.size + 1))
    play.answer(*leases, seconds=QUICK)
    play.silently()
    return play


def starts(instructions: list[Instruction]) -> list[Hashable]:
    return [each.fingerprint for each in instructions if isinstance(each, Start)]


def carry_out(play: Play) -> None:
    """Starts and retirements take no time."""
    for each in play.take():
        if isinstance(each, Start):
            play.ready(each.worker)
        if isinstance(each, Retire):
            play.die(each.worker, "exit 0")

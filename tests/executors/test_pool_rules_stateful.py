"""A whole world around the rules of a pool: processes that work, hang, die and lie, and someone who hands in leases."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable
from typing import Any

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from adescent.executors.pool_rules import (
    GiveUp,
    Instruction,
    Kill,
    Lease,
    PoolLimits,
    PoolRules,
    Retire,
    Send,
    Start,
    Withdraw,
)

GRID = [
    PoolLimits(2, spares, in_flight, max_tasks=max_tasks, hang_timeout=hang, start_failures=2)
    for spares, in_flight, max_tasks, hang in itertools.product((0, 2), (1, 3), (None, 1, 3), (None, 20.0))
]
GRACE = 0.5
"""What a worker has at most to say that it has stopped one."""
NEVER_STARTS = "c"
"""Every worker of this fingerprint fails to start."""
INDEX = st.integers(0, 1000)
"""Picks one of however many there are."""


@define(eq=False)
class Process:
    """What really happens in a worker, which the rules can only guess from what it says."""

    number: int
    fingerprint: Hashable
    up: bool = False
    ends: str = ""
    sent: dict[int, Lease] = field(factory=dict)
    inbox: dict[int, Lease] = field(factory=dict)
    withdrawn: set[int] = field(factory=set)
    outbox: list[int] = field(factory=list)
    answered: list[int] = field(factory=list)
    served: int = 0
    last_word: float = 0.0
    waited_for: dict[int, float] = field(factory=dict)
    """What has not been answered, with when it was its turn; infinity if it is not yet."""

    def running(self, in_flight: int) -> list[int]:
        """The numbers it has begun: those sent first."""
        return list(self.inbox)[:in_flight]

    def note_turns(self, in_flight: int, now: float) -> None:
        """As far as anybody can know who only hears the answers."""
        for number in list(self.waited_for)[:in_flight]:
            self.waited_for[number] = min(self.waited_for[number], now)

    def wanted(self) -> list[Lease]:
        """The leases that somebody still waits for here."""
        return [lease for number, lease in self.inbox.items() if number not in self.withdrawn]


class World(RuleBasedStateMachine):
    """Leases are good, poisonous (their process dies of them) or hang; every event can come at any time."""

    given: PoolLimits | None = None

    @initialize(
        limits=st.sampled_from(GRID),
        home=st.sampled_from(["a", "b", "", NEVER_STARTS]),
        kinds=st.sampled_from(["a", "ab", "aaabbc"]),
    )
    def begin(self, limits: PoolLimits, home: str, kinds: str) -> None:
        self.kinds = kinds
        self.limits = self.given or limits
        self.pool = PoolRules(self.limits)
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.leases: list[Lease] = []
        self.fates: dict[Lease, str] = {}
        self.ends: dict[Lease, str] = {}
        self.whereabouts: dict[Lease, tuple[Process, int]] = {}
        self.bad_luck: Counter[Lease] = Counter()
        self.budget: dict[Hashable, int] = dict.fromkeys("abc", 2 * (2 + self.limits.spares))
        self.started = 0
        self.numbers: set[int] = set()
        self.duplicates = 0
        self.closed = False
        if home:
            self.pool.open(home, self.now)
            self.obey()

    # What the rules say is done, and checked

    def obey(self) -> None:
        for instruction in self.pool.take():
            self.carry_out(instruction)
        self.pool.validate()
        self.check_limits()

    def carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Start(number, fingerprint):
                assert number == self.started + 1, "numbers go up and are never used again"
                assert not self.closed
                assert self.budget[fingerprint] > 0, "no start once the budget of failed ones is used up"
                self.started = number
                self.processes[number] = Process(number, fingerprint, last_word=self.now)
            case Send(worker, lease, number):
                self.receive(self.processes[worker], lease, number)
            case Withdraw(worker, number):
                process = self.processes[worker]
                assert process.up
                assert not process.ends, "no instruction for a worker that was told to end"
                assert number in {*process.inbox, *process.outbox, *process.answered}
                process.withdrawn.add(number)
                if number not in process.running(self.limits.in_flight):
                    process.inbox.pop(number, None)  # forgotten without an answer
                if process.waited_for[number] == math.inf:
                    del process.waited_for[number]
            case Retire(worker):
                process = self.processes[worker]
                assert process.up
                assert not process.ends
                assert not process.wanted()
                process.ends = "retired"
            case Kill(worker, reason):
                process = self.processes[worker]
                assert not process.ends
                assert reason
                if reason != "closed":
                    self.count_failed_start(process)
                if reason.startswith("not a word"):
                    self.bad_luck.update(process.wanted())
                process.ends = "killed"
            case GiveUp(lease, why):
                self.end(lease, why)

    def receive(self, process: Process, lease: Lease, number: int) -> None:
        assert process.up
        assert not process.ends
        assert process.fingerprint == lease.fingerprint
        assert lease not in self.ends
        assert number not in self.numbers, "a number names one sending"
        assert not any(lease in other.wanted() for other in self.processes.values()), "in one worker at a time"
        present = process.wanted()
        assert not (lease.deaths and present), "a suspect runs alone"
        assert not any(other.deaths for other in present), "beside a suspect runs nothing"
        process.served += 1
        assert process.served <= (self.limits.max_tasks or math.inf)
        if not process.waited_for:
            process.last_word = self.now
        process.waited_for[number] = math.inf
        process.note_turns(self.limits.in_flight, self.now)
        self.numbers.add(number)
        process.sent[number] = process.inbox[number] = lease
        self.whereabouts[lease] = (process, number)

    def end(self, lease: Lease, why: str) -> None:
        assert lease not in self.ends, f"ended twice: {self.ends[lease]}, {why}"
        self.ends[lease] = why
        assert (lease.worker, lease.number) == (0, 0), "nobody has it any more"
        if why == "deaths":
            assert len(lease.deaths) == lease.attempt == self.limits.redispatches + 1
            if self.fates[lease] == "good":
                assert self.bad_luck[lease] >= self.limits.redispatches, "given up for the deaths of others"
        if why == "timeout":
            assert lease.deaths
            process, number = self.whereabouts[lease]
            process.withdrawn.discard(number)  # an answer from now on is one too many, though it was told to stop
        if why == "not ready":
            assert self.budget[lease.fingerprint] == 0

    def check_deadlines(self) -> None:
        """None is missed, whatever the rules think is due."""
        for process in self.processes.values():
            if process.ends:
                continue
            if not process.up:
                assert self.now < process.last_word + self.limits.start_timeout
            elif process.waited_for:
                assert self.now < process.last_word + (self.limits.hang_timeout or math.inf)
            for number, begun_at in process.waited_for.items():
                timeout = process.sent[number].timeout
                if timeout is not None and number not in process.withdrawn:
                    assert self.now < begun_at + timeout + (GRACE if self.limits.in_flight > 1 else 0.0)
            held = math.inf in process.waited_for.values()
            assert not held or self.now < min(process.waited_for.values()) + self.limits.steal_after

    def check_limits(self) -> None:
        assert sum(not process.ends for process in self.processes.values()) <= 2 + self.limits.spares
        assert sum(bool(process.wanted()) for process in self.processes.values() if not process.ends) <= 2
        said = self.pool.statistics()
        waited_for = [lease for lease in self.leases if lease not in self.ends]
        assert said.in_flight + said.queued >= len(waited_for)
        assert said.starting + said.idle + said.busy + said.stopping == len(self.processes)
        assert said.workers_started == self.started
        assert said.duplicates_dropped == self.duplicates, (said.duplicates_dropped, self.duplicates)

    @invariant()
    def deadlines_lie_ahead(self) -> None:
        if hasattr(self, "pool"):
            self.pool.validate()
            while self.pool.next_deadline() <= self.now:
                self.pool.expire(self.now)
                self.obey()
                assert self.pool.next_deadline() > self.now, "what is due is done at once"
            self.check_deadlines()

    # Whoever hands in leases

    @rule(
        which=INDEX,
        kind=st.sampled_from(["good", "good", "good", "poison", "hang"]),
        timeout=st.sampled_from([None, 0.3, 5.0]),
        many=st.integers(1, 4),
    )
    def submit(self, which: int, kind: str, timeout: float | None, many: int) -> None:
        fingerprint = self.kinds[which % len(self.kinds)]
        for _ in range(many):
            lease = Lease(fingerprint, timeout)
            self.fates[lease] = kind
            if kind == "hang" and self.limits.hang_timeout is None:
                lease.timeout = 5.0
            self.leases.append(lease)
            if not self.budget[fingerprint] and not self.closed:
                self.budget[fingerprint] = 2 + self.limits.spares
            self.pool.submit(lease, self.now)
            self.obey()

    @precondition(lambda self: self.leases)
    @rule(which=INDEX)
    def cancel(self, which: int) -> None:
        lease = self.leases[-1 - which % len(self.leases)]
        if lease not in self.ends:
            self.ends[lease] = "cancelled"
            for process in self.processes.values():
                process.withdrawn.update(number for number, sent in process.sent.items() if sent is lease)
        self.pool.cancel(lease, self.now)
        assert (lease.worker, lease.number) == (0, 0), "nobody has it any more"
        self.obey()

    # Processes

    def one(self, which: int, *, up: bool | None = None, ends: bool | None = None) -> Process | None:
        found = [
            process
            for process in self.processes.values()
            if up in (None, process.up) and ends in (None, bool(process.ends))
        ]
        return found[which % len(found)] if found else None

    @rule(which=INDEX)
    def become_ready(self, which: int) -> None:
        process = self.one(which, up=False)
        if process is not None:
            self.come_up(process)

    def come_up(self, process: Process) -> None:
        if process.fingerprint == NEVER_STARTS:
            self.exit(process, "exit 1")
            return
        process.up = True
        process.last_word = self.now
        self.pool.ready(process.number, self.now)
        self.obey()

    @rule(turns=st.lists(INDEX, min_size=1, max_size=8))
    def go_on_for_a_while(self, turns: list[int]) -> None:
        for which in turns:
            process = self.one(which)
            if process is not None:
                self.goes_on(process)

    @rule(
        which=INDEX, place=INDEX, seconds=st.sampled_from([0.0, 0.0001, 0.0001, 1.0, math.nan]), deliver=st.booleans()
    )
    def work(self, which: int, place: int, seconds: float, deliver: bool) -> None:
        process = self.one(which, up=True)
        if process is None or not process.inbox:
            return
        running = process.running(self.limits.in_flight)
        self.go_on(process, running[place % len(running)])
        if deliver:
            self.deliver(process, seconds)

    def go_on(self, process: Process, number: int) -> None:
        """A lease that has begun comes to its end, if it has one."""
        kind = self.fates[process.inbox[number]]
        if kind == "poison":
            self.exit(process, "SIGSEGV")
        elif kind == "good" or (number in process.withdrawn and self.limits.in_flight > 1):
            del process.inbox[number]
            process.outbox.append(number)

    def deliver(self, process: Process, seconds: float = 0.0001) -> None:
        """What it has written arrives, in order."""
        while process.outbox:
            number = process.outbox.pop(0)
            process.answered.append(number)
            process.waited_for.pop(number, None)
            process.note_turns(self.limits.in_flight, self.now)
            process.last_word = self.now
            lease = self.pool.answered(process.number, number, seconds, self.now)
            if lease is not None:
                assert number not in process.withdrawn
                self.end(lease, "answered")
            elif number not in process.withdrawn:
                self.duplicates += 1  # given up before it arrived
            if lease is not None or number in process.withdrawn:
                self.budget[process.fingerprint] = 2 * (2 + self.limits.spares)
            self.obey()

    @rule(which=INDEX)
    def delivered(self, which: int) -> None:
        process = self.one(which, up=True)
        if process is not None:
            self.deliver(process)

    @rule(which=INDEX, forged=st.integers(10**6, 10**6 + 5))
    def answer_again(self, which: int, forged: int) -> None:
        process = self.one(which, up=True)
        if process is not None:
            number = process.answered[-1] if process.answered else forged
            self.duplicates += 1
            process.last_word = self.now
            assert self.pool.answered(process.number, number, 0.0, self.now) is None
            self.obey()

    @rule(which=INDEX)
    def say_something(self, which: int) -> None:
        process = self.one(which, up=True)
        if process is not None:
            process.last_word = self.now
            self.pool.heard(process.number, self.now)
            self.obey()

    @rule(which=INDEX, cpu=st.booleans())
    def die(self, which: int, cpu: bool) -> None:
        process = self.one(which, ends=False)
        if process is not None:
            self.bad_luck.update(process.wanted())
            self.exit(process, "SIGKILL", cpu=cpu)

    @rule(which=INDEX)
    def end_as_told(self, which: int) -> None:
        process = self.one(which, ends=True)
        if process is not None:
            self.exit(process, process.ends)

    def exit(self, process: Process, reason: str, **more: Any) -> None:
        self.deliver(process)
        self.count_failed_start(process)
        del self.processes[process.number]
        self.pool.exited(process.number, reason, self.now, **more)
        self.obey()
        self.pool.ready(process.number, self.now)
        self.pool.heard(process.number, self.now)
        self.pool.broke(process.number, "late", self.now)
        self.pool.exited(process.number, "again", self.now)
        assert self.pool.take() == [], "events of what is gone change nothing"

    def count_failed_start(self, process: Process) -> None:
        if not process.ends and not process.served and not self.closed:
            self.budget[process.fingerprint] = max(0, self.budget[process.fingerprint] - 1)

    @rule(which=INDEX)
    def break_the_protocol(self, which: int) -> None:
        process = self.one(which)
        if process is not None:
            self.bad_luck.update(process.wanted())
            self.pool.broke(process.number, "garbage", self.now)
            self.obey()
            assert process.ends, "it is told to end"

    # Time

    @rule(seconds=st.sampled_from([0.01, 0.06, 0.4, 1.0, 6.0, 25.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (deadline := self.pool.next_deadline()) <= until:
            self.expire_at(deadline)
        self.now = until

    @rule()
    def wait_for_the_deadline(self) -> None:
        deadline = self.pool.next_deadline()
        if deadline < math.inf:
            self.expire_at(deadline)

    def expire_at(self, deadline: float) -> None:
        assert deadline > self.now
        self.now = deadline
        self.pool.expire(self.now)
        self.obey()

    @precondition(lambda self: len(self.leases) > 8)
    @rule()
    def close(self) -> None:
        self.closed = True
        for process in self.processes.values():
            process.withdrawn.update(number for number, lease in process.sent.items() if lease not in self.ends)
        self.pool.close(self.now)
        self.obey()
        assert all(process.ends for process in self.processes.values())
        assert set(self.leases) == set(self.ends)

    # Left alone, everything comes to an end

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for _ in range(1000):
            if set(self.leases) == set(self.ends):
                break
            self.everyone_goes_on()
        else:
            raise AssertionError(f"something waits for ever: {self.pool.statistics()}")
        self.end_of_the_world()

    def everyone_goes_on(self) -> None:
        moved = False
        for process in list(self.processes.values()):
            if process.number in self.processes:
                moved |= self.goes_on(process)
        if not moved:
            deadline = self.pool.next_deadline()
            assert deadline < math.inf, f"nobody moves, and nothing is due: {self.pool.statistics()}"
            self.expire_at(deadline)

    def goes_on(self, process: Process) -> bool:
        if process.ends:
            self.exit(process, process.ends)
        elif not process.up:
            self.come_up(process)
        elif process.outbox:
            self.deliver(process)
        else:
            running = process.running(self.limits.in_flight)
            able = [number for number in running if self.fates[process.inbox[number]] != "hang"]
            if not able:
                return False
            self.go_on(process, able[0])
        return True

    def end_of_the_world(self) -> None:
        assert self.pool.statistics().queued == 0
        self.close()
        for process in list(self.processes.values()):
            self.exit(process, process.ends)
        said = self.pool.statistics()
        assert (said.starting, said.idle, said.busy, said.stopping, said.in_flight) == (0, 0, 0, 0, 0)
        assert self.pool.next_deadline() == math.inf


def test_whatever_happens_every_lease_ends_once() -> None:
    run_state_machine_as_test(World, settings=settings(max_examples=100, stateful_step_count=50))


@pytest.mark.slow
@pytest.mark.parametrize("limits", GRID, ids=repr)
def test_whatever_happens_under_all_limits(limits: PoolLimits) -> None:
    world = type("LimitedWorld", (World,), {"given": limits})
    run_state_machine_as_test(world, settings=settings(max_examples=100, stateful_step_count=60))

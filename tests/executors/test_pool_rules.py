"""What a pool decides, sentence by sentence; the world of ``test_pool_rules_stateful`` mixes them all."""

from __future__ import annotations

import math
from collections.abc import Hashable

import pytest
from attrs import define, field

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


# Starting and serving -------------------------------------------------------------------------------------------------


def test_as_many_workers_are_started_as_leases_wait_and_no_more_than_there_are_places() -> None:
    play = Play(PoolLimits(3))
    play.submit()
    assert play.take() == [Start(1, "a")]
    play.submit_many(4)
    assert play.take() == [Start(2, "a"), Start(3, "a")]


def test_an_empty_pool_starts_nothing_and_waits_for_nothing() -> None:
    play = Play(PoolLimits(2))
    play.rules.open("a", play.now)
    assert play.take() == []
    assert play.rules.next_deadline() == math.inf


def test_leases_go_out_in_order_of_submission() -> None:
    play = Play(PoolLimits(1))
    leases = play.submit_many(3)
    play.ready(1)
    for lease in leases:
        assert lease.worker == 1
        play.answer(lease)
    sends = [each for each in play.take() if isinstance(each, Send)]
    assert sends == [Send(1, lease, number) for number, lease in enumerate(leases, start=1)]


def test_the_least_loaded_worker_gets_the_next_lease() -> None:
    play = staffed(PoolLimits(2, in_flight=3))
    first, second, third = play.submit_many(3)
    assert [first.worker, second.worker, third.worker] == [1, 2, 1]
    play.answer(first, third)
    assert play.submit().worker == 1


def test_a_worker_has_one_lease_at_a_time_while_they_are_slow() -> None:
    play = staffed(PoolLimits(1))
    first, second = play.submit_many(2)
    assert (first.worker, second.worker) == (1, 0)
    play.answer(first)
    assert second.worker == 1


def test_a_worker_is_sent_more_while_leases_are_quick() -> None:
    play = quick(PoolLimits(1))
    leases = play.submit_many(6)
    assert [lease.worker for lease in leases] == [1, 1, 1, 1, 0, 0]
    play.answer(leases[0], seconds=QUICK)
    assert leases[4].worker == 1


@pytest.mark.parametrize("garbage", [SLOW, math.nan, math.inf, -1.0, 1e300])
def test_a_time_that_is_long_or_no_time_is_slow_and_soon_forgotten(garbage: float) -> None:
    play = quick(PoolLimits(1))
    play.answer(play.submit(), seconds=garbage)
    first, second = play.submit_many(2)
    assert second.worker == 0
    play.answer(first, second, seconds=QUICK)
    for _ in range(40):
        play.answer(play.submit(), seconds=QUICK)
    assert [lease.worker for lease in play.submit_many(2)] == [1, 1]


def test_several_are_in_flight_in_one_worker_however_long_they_take() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    first = play.submit()
    play.wait(60.0)
    assert [lease.worker for lease in (first, *play.submit_many(3))] == [1, 1, 1, 0]


def test_a_pool_grows_for_leases_that_are_held_behind_others() -> None:
    play = Play(PoolLimits(8))
    first = play.submit()
    play.ready(1)
    play.answer(first, seconds=QUICK)
    play.silently()
    play.submit()
    assert starts(play.take()) == [], "one lease at a time needs one worker"
    play.submit_many(2)
    assert starts(play.take()) == ["a", "a"]


def test_it_does_not_grow_for_them_while_starts_fail() -> None:
    play = Play(PoolLimits(2, start_failures=1))
    first = play.submit()
    play.ready(1)
    play.answer(first, seconds=QUICK)
    play.submit_many(2)
    play.die(2, "exit 1")
    play.silently()
    play.die(3, "exit 1")
    assert play.take() == []


def test_what_is_held_behind_one_that_takes_long_goes_to_an_idle_worker() -> None:
    play = quick(PoolLimits(2, steal_after=0.05))
    long, other, held = play.submit_many(3)
    number = held.number
    assert (long.worker, other.worker, held.worker) == (1, 2, 1)
    play.answer(other, seconds=QUICK)
    assert held.worker == 1
    assert play.rules.next_deadline() == pytest.approx(play.now + 0.05)
    play.silently()
    play.wait(0.06)
    assert play.take() == [Withdraw(1, number), Send(2, held, number + 1)]
    assert play.rules.next_deadline() == math.inf
    assert play.rules.answered(1, number, QUICK, play.now) is None, "the withdrawal came too late"
    assert play.rules.statistics().duplicates_dropped == 0


def test_what_is_held_goes_out_before_younger_ones_though_no_worker_is_ever_idle() -> None:
    play = quick(PoolLimits(2))
    leases = play.submit_many(12)
    held = [lease for lease in leases if lease.worker == 1][1:]
    other = next(lease for lease in leases if lease.worker == 2)
    play.wait(0.06)
    assert all(lease.worker == 0 for lease in held)
    play.answer(other, seconds=QUICK)
    assert held[0].worker == 2
    assert leases[-1].worker == 0


def test_nothing_more_is_sent_behind_one_that_takes_long() -> None:
    play = quick(PoolLimits(2))
    play.submit_many(2)
    play.wait(0.06)
    assert play.submit().worker == 0


def test_the_only_worker_keeps_what_it_holds() -> None:
    play = quick(PoolLimits(1))
    play.submit_many(3)
    play.silently()
    play.wait(10.0)
    assert play.take() == []


# Fingerprints ---------------------------------------------------------------------------------------------------------


def test_a_lease_goes_to_a_worker_of_its_own_fingerprint() -> None:
    play = Play(PoolLimits(2))
    first, second = play.submit("a"), play.submit("b")
    assert play.take() == [Start(1, "a"), Start(2, "b")]
    play.ready(2, 1)
    assert (first.worker, second.worker) == (1, 2)


def test_an_idle_worker_of_another_fingerprint_is_recycled() -> None:
    play = staffed(PoolLimits(2))
    play.submit("a")
    lease = play.submit("b")
    assert play.take()[1:] == [Retire(2), Start(3, "b")]
    play.die(2, "exit 0")
    play.ready(3)
    assert lease.worker == 3
    assert play.rules.statistics().workers_recycled == 1


def test_as_many_idle_workers_are_recycled_as_leases_wait() -> None:
    play = staffed(PoolLimits(2))
    play.submit_many(3, "b")
    assert play.take() == [Retire(1), Start(3, "b"), Retire(2), Start(4, "b")]


def test_when_all_are_busy_the_least_loaded_takes_nothing_younger_and_is_recycled_when_idle() -> None:
    play = staffed(PoolLimits(2, in_flight=3))
    one, two, three = play.submit_many(3)
    assert (one.worker, two.worker, three.worker) == (1, 2, 1)
    play.submit("b")
    assert [lease.worker for lease in play.submit_many(3)] == [1, 0, 0], "the room in 2 is left, and only that"
    play.silently()
    play.answer(two)
    assert play.take() == [Retire(2), Start(3, "b")]


def test_those_for_whom_nobody_is_left_to_claim_wait_for_the_others() -> None:
    play = staffed(PoolLimits(1))
    first, second, third = (play.submit(fingerprint) for fingerprint in "abc")
    for worker, lease in enumerate((first, second), start=1):
        play.ready(worker)
        play.answer(lease)
    play.ready(3)
    assert third.worker == 3


def test_a_free_place_is_taken_before_that_of_an_idle_worker() -> None:
    play = Play(PoolLimits(2))
    lease = play.submit("a")
    play.ready(1)
    play.answer(lease)
    play.silently()
    play.submit("b")
    assert play.take() == [Start(2, "b")]


def test_an_idle_worker_is_not_recycled_for_one_that_could_begin_nothing() -> None:
    play = Play(PoolLimits(2, spares=1))
    leases = play.submit_many(3)
    play.ready(1, 2, 3)
    play.answer(leases[1])
    play.answer(leases[2])
    play.silently()
    assert play.rules.statistics().busy == 1
    play.submit_many(2, "b")
    assert [type(each) for each in play.take()] == [Retire, Start]


def test_an_idle_worker_that_an_older_lease_waits_for_is_left_to_it() -> None:
    play = Play(PoolLimits(1, spares=1))
    first, second = play.submit_many(2)
    play.ready(1, 2)
    assert (first.worker, second.worker) == (1, 0)
    play.silently()
    stranger = play.submit("b")
    assert play.take() == []
    play.answer(first)
    play.answer(second)
    carry_out(play)
    assert stranger.worker == 3


def test_those_that_have_served_are_recycled_before_the_spares() -> None:
    play = Play(PoolLimits(1, spares=1))
    play.rules.open("a", play.now)
    lease = play.submit("a")
    play.ready(1, 2)
    play.answer(lease)
    play.silently()
    play.submit("b")
    assert play.take() == [Retire(1), Start(3, "b")]


def test_a_claimed_worker_still_serves_what_came_before() -> None:
    play = staffed(PoolLimits(1))
    leases = play.submit_many(2, "a")
    stranger, late = play.submit("b"), play.submit("a")
    play.answer(*leases)
    assert late.worker == 0
    assert play.take()[-2:] == [Retire(1), Start(2, "b")]
    play.ready(2)
    play.answer(stranger)
    play.ready(3)
    assert late.worker == 3


def test_it_waits_for_a_worker_of_its_own_fingerprint_if_there_is_one() -> None:
    play = Play(PoolLimits(2))
    first, stranger = play.submit("a"), play.submit("b")
    play.ready(1, 2)
    second, more = play.submit("b"), play.submit("a")
    play.silently()
    play.answer(first)
    assert more.worker == 1, "nobody is claimed"
    play.answer(more)
    assert play.take()[-2:] == [Retire(1), Start(3, "b")], "but who is idle is recycled"
    play.answer(stranger)
    assert second.worker == 2


def test_whoever_is_idle_first_makes_room_whoever_was_claimed() -> None:
    play = Play(PoolLimits(2))
    first, other = play.submit("a"), play.submit("c")
    play.ready(1, 2)
    play.submit("b")
    second, late = play.submit("a"), play.submit("c")
    play.silently()
    play.answer(other)
    assert late.worker == 0
    assert play.take() == [Retire(2), Start(3, "b")]
    play.answer(first)
    assert second.worker == 1, "the claim has ended with the start"


def test_a_claim_ends_with_the_lease_it_was_for() -> None:
    play = staffed(PoolLimits(1, in_flight=2))
    play.submit("a")
    stranger, late = play.submit("b"), play.submit("a")
    assert late.worker == 0
    play.cancel(stranger)
    assert late.worker == 1
    assert starts(play.take()) == []


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_no_fingerprint_starves_another_however_much_there_is_of_it(size: int, in_flight: int, seconds: float) -> None:
    play = staffed(PoolLimits(size, in_flight=in_flight))
    common = play.submit_many(8 * size)
    rare = play.submit("b")
    for _ in range(20 * size):
        common.append(play.submit("a"))
        carry_out(play)
        if busy := [lease for lease in common if lease.worker]:
            play.answer(busy[0], seconds=seconds)
            common.remove(busy[0])
    assert rare.worker


def carry_out(play: Play) -> None:
    """Starts and retirements take no time."""
    for each in play.take():
        if isinstance(each, Start):
            play.ready(each.worker)
        if isinstance(each, Retire):
            play.die(each.worker, "exit 0")


# Spares, and workers that serve few -----------------------------------------------------------------------------------


def test_spares_are_started_at_once_and_kept_up() -> None:
    play = Play(PoolLimits(2, spares=2, max_tasks=1))
    play.rules.open("a", play.now)
    assert starts(play.take()) == ["a", "a"]
    play.ready(1, 2)
    first, second = play.submit_many(2)
    assert (first.worker, second.worker) == (1, 2)
    assert starts(play.take()) == ["a", "a"], "those that serve are no spares"
    play.answer(first)
    play.answer(second)
    assert play.take() == [Retire(1), Retire(2)]
    play.ready(3)
    third = play.submit()
    assert play.take() == [Send(3, third, 3), Start(5, "a")]


def test_those_that_are_needed_are_no_spares() -> None:
    play = Play(PoolLimits(2, spares=2))
    play.rules.open("a", play.now)
    play.silently()
    play.submit()
    assert starts(play.take()) == ["a"]
    play.submit()
    assert starts(play.take()) == ["a"]


def test_leases_are_begun_in_no_more_workers_than_the_size_however_many_are_ready() -> None:
    play = Play(PoolLimits(2, spares=2))
    leases = play.submit_many(4)
    play.ready(1, 2, 3, 4)
    assert [lease.worker for lease in leases] == [1, 2, 0, 0]
    assert play.rules.statistics().idle == 2
    play.answer(leases[0])
    assert leases[2].worker == 1


def test_a_killed_worker_counts_until_it_is_gone_if_something_may_still_run_in_it() -> None:
    play = Play(PoolLimits(1, spares=1, hang_timeout=5.0))
    silent, waiting = play.submit_many(2)
    play.ready(1, 2)
    play.wait(5.0)
    assert (silent.worker, waiting.worker) == (1, 0)
    play.die(1)
    assert silent.worker == 2


def test_a_worker_is_retired_after_max_tasks() -> None:
    play = staffed(PoolLimits(1, max_tasks=3))
    second, third, fourth = play.submit_many(3)
    play.silently()
    play.answer(second)
    assert play.take() == [Send(1, third, 3)]
    play.answer(third)
    assert play.take() == [Retire(1), Start(2, "a")]
    assert fourth.worker == 0
    assert play.rules.statistics().workers_recycled == 1


def test_a_worker_is_not_sent_more_than_max_tasks_ahead() -> None:
    play = quick(PoolLimits(1, max_tasks=3))
    assert [lease.worker for lease in play.submit_many(4)] == [1, 1, 0, 0]


def test_a_retired_worker_nobody_waits_for_is_not_replaced() -> None:
    play = Play(PoolLimits(1, max_tasks=1))
    lease = play.submit()
    play.ready(1)
    play.silently()
    play.answer(lease)
    assert play.take() == [Retire(1)]
    play.die(1, "exit 0")
    assert play.take() == []


# Deaths ---------------------------------------------------------------------------------------------------------------


def test_a_lost_worker_is_replaced_at_once_even_if_nothing_waits() -> None:
    play = staffed(PoolLimits(2))
    play.die(1)
    assert play.take() == [Start(3, "a")]
    assert play.rules.statistics().workers_lost == 1


def test_all_workers_lost_at_once_are_replaced_and_their_leases_served() -> None:
    play = staffed(PoolLimits(3))
    leases = play.submit_many(6)
    play.silently()
    for worker in (1, 2, 3):
        play.die(worker)
    assert starts(play.take()) == ["a", "a", "a"]
    play.ready(4, 5, 6)
    assert sorted(lease.worker for lease in leases) == [0, 0, 0, 4, 5, 6]
    assert [len(lease.deaths) for lease in leases] == [1, 1, 1, 0, 0, 0]
    assert [bool(lease.worker) for lease in leases] == [True, True, True, False, False, False]


def test_a_death_does_not_make_a_pool_larger_than_it_was() -> None:
    play = Play(PoolLimits(8))
    play.submit()
    play.ready(1)
    play.silently()
    play.die(1)
    assert starts(play.take()) == ["a"]


def test_what_had_begun_has_seen_a_death_and_goes_out_first() -> None:
    play = staffed(PoolLimits(1))
    victim, waiting = play.submit_many(2)
    play.die(1, "SIGKILL")
    assert (victim.deaths, victim.attempt, victim.worker) == (["SIGKILL"], 1, 0)
    play.ready(2)
    assert (victim.worker, waiting.worker) == (2, 0)
    assert play.rules.statistics().redispatched == 1


def test_what_had_not_begun_goes_back_without_a_death_and_in_order() -> None:
    play = quick(PoolLimits(1))
    begun, *held = play.submit_many(4)
    waiting = play.submit()
    play.die(1)
    assert [len(lease.deaths) for lease in (begun, *held)] == [1, 0, 0, 0]
    play.ready(2)
    play.silently()
    play.answer(begun, seconds=QUICK)
    assert [each.lease for each in play.take() if isinstance(each, Send)] == [*held, waiting]


def test_what_comes_next_in_a_worker_has_begun_once_the_one_before_was_answered() -> None:
    play = quick(PoolLimits(1))
    first, second, third = play.submit_many(3)
    play.answer(first, seconds=QUICK)
    play.die(1)
    assert (len(second.deaths), len(third.deaths)) == (1, 0)


def test_of_several_in_flight_all_have_begun() -> None:
    play = quick(PoolLimits(1, in_flight=3))
    leases = play.submit_many(4)
    play.die(1)
    assert [len(lease.deaths) for lease in leases] == [1, 1, 1, 0]


def test_a_lease_is_given_up_after_its_last_redispatch() -> None:
    play = Play(PoolLimits(1, redispatches=2))
    lease = play.submit()
    for worker, reason in enumerate(("SIGSEGV", "SIGKILL", "exit 42"), start=1):
        play.ready(worker)
        play.silently()
        play.die(worker, reason)
    assert play.take() == [GiveUp(lease, "deaths"), Start(4, "a")]
    assert (lease.deaths, lease.attempt) == (["SIGSEGV", "SIGKILL", "exit 42"], 3)


def test_without_redispatches_the_first_death_is_the_last() -> None:
    play = staffed(PoolLimits(1, redispatches=0))
    lease = play.submit()
    play.silently()
    play.die(1)
    assert play.take() == [GiveUp(lease, "deaths"), Start(2, "a")]


def test_suspects_run_one_after_the_other_and_alone_while_others_go_on_beside_them() -> None:
    play = staffed(PoolLimits(2, in_flight=3))
    leases = play.submit_many(6)
    more = play.submit_many(3)
    play.die(1)
    play.ready(3)
    suspects = [lease for lease in leases if lease.deaths]
    assert [lease.worker for lease in suspects] == [3, 0, 0]
    play.answer(next(lease for lease in leases if lease.worker == 2))
    assert [lease.worker for lease in more] == [2, 0, 0]
    play.answer(suspects[0])
    assert [lease.worker for lease in suspects] == [0, 3, 0]


def test_a_suspect_is_not_put_beside_others_though_there_is_room() -> None:
    play = staffed(PoolLimits(2, in_flight=3, start_failures=1))
    leases = play.submit_many(3)
    play.die(2)
    play.die(3, "exit 1")
    play.die(4, "exit 1")
    assert [lease.worker for lease in leases] == [1, 0, 1]
    play.answer(leases[0], leases[2])
    assert leases[1].worker == 1


def test_nothing_is_held_behind_a_suspect() -> None:
    play = quick(PoolLimits(1))
    suspect, other = play.submit_many(2)
    play.die(1)
    play.ready(2)
    assert (suspect.worker, other.worker) == (2, 0)
    play.answer(suspect, seconds=QUICK)
    assert [other.worker, *(lease.worker for lease in play.submit_many(2))] == [2, 2, 2]


def test_those_beside_a_poisoned_one_are_cleared() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    poison, *others = play.submit_many(3)
    play.die(1)
    for worker in (2, 3):
        play.ready(worker)
        assert (poison.worker, [lease.worker for lease in others]) == (worker, [0, 0])
        play.die(worker)
    assert GiveUp(poison, "deaths") in play.take()
    play.ready(4)
    play.answer(others[0])
    play.answer(others[1])
    assert [lease.deaths for lease in others] == [["SIGSEGV"], ["SIGSEGV"]]


def test_a_suspect_gets_a_worker_to_itself_though_all_the_others_are_always_fed() -> None:
    play = staffed(PoolLimits(2, in_flight=3, start_failures=1))
    leases = play.submit_many(6)
    play.submit_many(20)
    suspects = leases[0:6:2]
    play.die(1)
    for worker in (3, 4):
        play.die(worker, "exit 1")  # none comes up to replace it
    assert all(lease.deaths for lease in suspects)
    for lease in leases[1:6:2]:
        assert suspects[0].worker == 0
        play.answer(lease)
        play.silently()
    assert suspects[0].worker == 2


# Failed starts --------------------------------------------------------------------------------------------------------


def test_waiting_leases_are_given_up_when_starts_keep_failing() -> None:
    play = Play(PoolLimits(1, spares=1, start_failures=2))
    leases = play.submit_many(2)
    for worker in (1, 2, 3, 4):
        assert not any(isinstance(each, GiveUp) for each in play.take())
        play.die(worker, "exit 1")
    started_before = play.rules.statistics().starting
    play.die(5, "exit 1")
    assert play.take() == [GiveUp(lease, "not ready") for lease in leases]
    assert (started_before, play.rules.statistics().starting) == (1, 0)


def test_the_next_lease_brings_a_new_and_smaller_budget() -> None:
    play = Play(PoolLimits(2, start_failures=2))
    play.submit()
    for worker in (1, 2, 3, 4):
        play.die(worker, "exit 1")
    play.silently()
    lease = play.submit()
    assert play.take() == [Start(5, "a")]
    play.die(5, "exit 1")
    assert play.take() == [Start(6, "a")]
    play.die(6, "exit 1")
    assert play.take() == [GiveUp(lease, "not ready")]


def test_an_answer_ends_the_row_of_failures() -> None:
    play = Play(PoolLimits(1, start_failures=2))
    lease = play.submit()
    play.die(1, "exit 1")
    play.ready(2)
    play.answer(lease)
    play.die(2)
    play.die(3, "exit 1")
    play.silently()
    play.submit()
    play.die(4, "exit 1")
    assert [type(each) for each in play.take()] == [GiveUp]


def test_one_that_is_ready_and_dies_before_its_first_lease_is_a_failed_start() -> None:
    play = Play(PoolLimits(1, spares=1, start_failures=1))
    play.rules.open("a", play.now)
    play.ready(1)
    play.die(1)
    assert starts(play.take()) == ["a", "a"]
    play.ready(2)
    play.die(2)
    assert play.take() == []


def test_one_that_dies_idle_after_its_first_lease_is_none() -> None:
    play = Play(PoolLimits(1, start_failures=1))
    for worker in range(1, 6):
        lease = play.submit()
        play.ready(worker)
        play.answer(lease)
        play.silently()
        play.die(worker)
        assert play.take() == [Start(worker + 1, "a")]


def test_a_start_that_takes_too_long_fails() -> None:
    play = Play(PoolLimits(1, start_timeout=30.0, start_failures=1))
    lease = play.submit()
    play.silently()
    assert play.rules.next_deadline() == play.now + 30.0
    play.wait(30.0)
    assert play.take() == [Kill(1, "not ready within 30 s"), GiveUp(lease, "not ready")]
    play.ready(1)
    play.die(1)
    assert play.take() == []


def test_failing_starts_of_one_fingerprint_take_nothing_from_another() -> None:
    play = Play(PoolLimits(2, start_failures=1))
    broken, sound = play.submit("a"), play.submit("b")
    play.ready(2)
    play.die(1, "exit 1")
    play.answer(sound)
    play.die(3, "exit 1")
    assert GiveUp(broken, "not ready") in play.take()
    assert play.submit("b").worker == 2


def test_leases_wait_for_a_busy_worker_though_no_other_can_be_started() -> None:
    play = Play(PoolLimits(2, start_failures=1))
    first, second = play.submit_many(2)
    play.ready(1)
    play.die(2, "exit 1")
    play.die(3, "exit 1")
    assert starts(play.take()) == ["a", "a", "a"]
    play.answer(first)
    assert second.worker == 1


def test_a_suspect_is_given_up_when_no_worker_can_be_started_for_it() -> None:
    play = Play(PoolLimits(1, start_failures=1))
    lease = play.submit()
    play.ready(1)
    play.die(1)
    play.silently()
    play.die(2, "exit 1")
    assert play.take() == [GiveUp(lease, "not ready")]


# Deadlines ------------------------------------------------------------------------------------------------------------


def test_a_lease_that_takes_too_long_is_given_up_with_its_worker() -> None:
    play = staffed(PoolLimits(1))
    lease, waiting = play.submit(timeout=2.0), play.submit()
    play.silently()
    play.wait(1.9)
    assert play.take() == []
    play.wait(0.2)
    assert play.take() == [GiveUp(lease, "timeout"), Kill(1, "no answer within 2 s"), Start(2, "a")]
    assert (lease.deaths, lease.attempt) == (["no answer within 2 s"], 0)
    assert play.rules.answered(1, 2, SLOW, play.now) is None
    assert play.rules.statistics().duplicates_dropped == 1
    play.die(1, "SIGKILL")
    assert play.take() == []
    play.ready(2)
    assert waiting.worker == 2


def test_the_time_of_a_lease_begins_when_the_one_before_it_was_answered() -> None:
    play = quick(PoolLimits(1))
    first, second = play.submit(timeout=2.0), play.submit(timeout=2.0)
    play.wait(1.5)
    play.answer(first)
    play.wait(1.5)
    assert second.worker == 1
    play.silently()
    play.wait(0.6)
    assert GiveUp(second, "timeout") in play.take()


def test_others_of_a_worker_that_is_killed_for_one_go_back_without_a_death() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    slow, begun, also = play.submit(timeout=1.0), play.submit(timeout=5.0), play.submit()
    play.wait(1.0)
    play.die(1, "SIGKILL")
    assert GiveUp(slow, "timeout") in play.take()
    assert (begun.deaths, also.deaths) == ([], [])
    play.ready(2)
    assert (begun.worker, also.worker) == (2, 2)


def test_an_answer_between_the_kill_and_the_end_still_counts() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    play.submit(timeout=1.0)
    other = play.submit()
    play.wait(1.0)
    play.answer(other)
    play.silently()
    play.die(1)
    assert play.take() == []
    assert play.rules.statistics().redispatched == 0


def test_what_is_held_behind_a_late_answer_of_a_killed_worker_has_not_begun() -> None:
    play = quick(PoolLimits(1, hang_timeout=10.0))
    silent, held = play.submit_many(2)
    play.wait(10.0)
    play.answer(silent)
    play.die(1)
    assert held.deaths == []


def test_a_killed_worker_is_not_retired_when_it_answers_late() -> None:
    play = Play(PoolLimits(1, hang_timeout=10.0, max_tasks=1))
    lease = play.submit()
    play.ready(1)
    play.wait(10.0)
    play.silently()
    play.answer(lease)
    assert play.take() == []


def test_a_lease_that_used_up_its_processor_time_is_given_up() -> None:
    play = quick(PoolLimits(1))
    lease, held = play.submit_many(2)
    play.silently()
    play.die(1, "SIGXCPU", cpu=True)
    assert play.take() == [GiveUp(lease, "cpu"), Start(2, "a")]
    assert (lease.deaths, lease.attempt, held.deaths) == (["SIGXCPU"], 0, [])


def test_of_several_nobody_knows_which_one_used_up_the_processor_time() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    leases = play.submit_many(2)
    play.silently()
    play.die(1, "SIGXCPU", cpu=True)
    assert play.take() == [Start(2, "a")]
    assert [lease.deaths for lease in leases] == [["SIGXCPU"], ["SIGXCPU"]]


def test_a_worker_without_a_word_is_killed_and_its_lease_has_seen_a_death() -> None:
    play = staffed(PoolLimits(1, hang_timeout=10.0))
    play.wait(50.0)
    lease = play.submit()
    play.silently()
    play.wait(9.0)
    play.rules.heard(1, play.now)
    play.wait(9.0)
    assert play.take() == []
    play.wait(1.0)
    assert play.take() == [Kill(1, "not a word within 10 s"), Start(2, "a")]
    play.die(1, "SIGKILL")
    assert lease.deaths == ["not a word within 10 s"], "why, and not how"
    play.ready(2)
    assert lease.worker == 2


def test_an_idle_worker_may_be_silent() -> None:
    play = staffed(PoolLimits(1, hang_timeout=10.0))
    play.wait(50.0)
    assert play.take() == []
    assert play.rules.next_deadline() == math.inf


def test_an_answer_is_a_word() -> None:
    play = staffed(PoolLimits(1, hang_timeout=10.0, in_flight=2))
    first, second = play.submit_many(2)
    play.wait(8.0)
    play.answer(first)
    play.silently()
    play.wait(8.0)
    assert play.take() == []
    assert second.worker == 1


def test_who_broke_the_protocol_is_killed_and_replaced() -> None:
    play = staffed(PoolLimits(1))
    lease = play.submit()
    play.silently()
    play.rules.broke(1, "garbage", play.now)
    assert play.take() == [Kill(1, "garbage"), Start(2, "a")]
    play.rules.broke(1, "more garbage", play.now)
    play.die(1, "SIGKILL")
    assert play.take() == []
    assert lease.deaths == ["garbage"]
    assert play.rules.statistics().workers_lost == 1


def test_who_was_told_to_end_may_close_its_pipe() -> None:
    play = staffed(PoolLimits(1))
    play.submit("b")
    assert play.take() == [Retire(1), Start(2, "b")]
    play.rules.broke(1, "closed its pipe", play.now)
    assert play.take() == []


# Cancelling -----------------------------------------------------------------------------------------------------------


def test_a_waiting_lease_that_is_cancelled_is_forgotten() -> None:
    play = staffed(PoolLimits(1))
    first, second, third = play.submit_many(3)
    play.silently()
    play.cancel(second)
    assert play.take() == []
    assert play.rules.statistics().queued == 1
    play.answer(first)
    assert third.worker == 1


def test_a_held_lease_that_is_cancelled_is_withdrawn() -> None:
    play = quick(PoolLimits(1))
    leases = play.submit_many(5)
    number = leases[1].number
    play.silently()
    play.cancel(leases[1])
    assert play.take() == [Withdraw(1, number), Send(1, leases[4], number + 3)]
    assert play.rules.answered(1, number, QUICK, play.now) is None
    assert play.rules.statistics().duplicates_dropped == 0, "it was withdrawn"
    assert play.rules.answered(1, number, QUICK, play.now) is None
    assert play.rules.statistics().duplicates_dropped == 1, "but answered twice"


def test_the_worker_of_a_begun_lease_that_is_cancelled_is_killed() -> None:
    play = staffed(PoolLimits(2))
    lease, other = play.submit_many(2)
    play.silently()
    play.cancel(lease)
    assert play.take() == [Kill(1, "its lease was cancelled")], "nothing waits, so nobody is needed"
    assert other.worker == 2
    play.die(1, "SIGKILL")
    assert play.take() == []
    assert play.rules.statistics().workers_lost == 0


def test_it_is_let_end_where_leases_take_less_time_than_another_worker_would() -> None:
    play = quick(PoolLimits(1))
    lease, held = play.submit_many(2)
    number = lease.number
    play.silently()
    play.cancel(lease)
    assert play.take() == [Withdraw(1, number)]
    play.wait(0.05)
    assert play.rules.answered(1, number, QUICK, play.now) is None
    play.wait(1.0)
    assert play.take() == []
    assert (held.worker, held.deaths) == (1, [])
    assert play.rules.statistics().duplicates_dropped == 0


def test_and_its_worker_is_killed_all_the_same_if_it_does_not_end() -> None:
    play = quick(PoolLimits(1))
    lease, held = play.submit_many(2)
    play.cancel(lease)
    play.silently()
    play.wait(0.1)
    assert play.take() == [Kill(1, "a withdrawn lease went on")]
    play.die(1, "SIGKILL")
    assert play.take() == [Start(2, "a")]
    play.ready(2)
    assert (held.worker, held.deaths) == (2, [])
    assert play.rules.statistics().workers_lost == 0


def test_its_place_is_taken_if_something_waits() -> None:
    play = staffed(PoolLimits(1))
    lease, waiting = play.submit_many(2)
    play.silently()
    play.cancel(lease)
    assert play.take() == [Kill(1, "its lease was cancelled"), Start(2, "a")]
    play.ready(2)
    assert waiting.worker == 2


def test_what_was_held_behind_it_goes_back_without_a_death() -> None:
    play = quick(PoolLimits(1))
    lease, held = play.submit_many(2)
    play.cancel(lease)
    play.die(1, "SIGKILL")
    assert (held.deaths, held.attempt) == ([], 0)
    play.ready(2)
    assert held.worker == 2


def test_one_of_several_in_flight_has_a_moment_to_stop() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    lease, other = play.submit_many(2)
    number = lease.number
    play.silently()
    play.cancel(lease)
    assert play.take() == [Withdraw(1, number)]
    play.wait(0.4)
    assert play.rules.answered(1, number, SLOW, play.now) is None
    play.wait(1.0)
    assert play.take() == []
    assert other.worker == 1
    assert play.rules.statistics().duplicates_dropped == 0


def test_if_it_does_not_the_worker_is_killed_and_the_others_go_back() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    lease, other = play.submit_many(2)
    number = lease.number
    play.cancel(lease)
    play.silently()
    play.wait(0.5)
    assert play.take() == [Kill(1, "a withdrawn lease went on")]
    assert play.rules.answered(1, number, SLOW, play.now) is None
    assert play.rules.statistics().duplicates_dropped == 0
    play.die(1, "SIGKILL")
    assert other.deaths == []
    assert play.take() == [Start(2, "a")]


def test_what_was_cancelled_can_be_cancelled_again() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    lease, _ = play.submit_many(2)
    play.cancel(lease)
    play.silently()
    play.cancel(lease)
    assert play.take() == []


def test_what_has_ended_cannot_be_cancelled() -> None:
    play = staffed(PoolLimits(1))
    lease = play.submit()
    play.answer(lease)
    play.silently()
    play.cancel(lease)
    assert play.take() == []


def test_a_lease_whose_worker_is_being_killed_can_be_cancelled() -> None:
    play = staffed(PoolLimits(1, hang_timeout=5.0))
    lease = play.submit()
    play.wait(5.0)
    play.silently()
    play.cancel(lease)
    play.die(1)
    assert play.take() == []
    assert play.rules.statistics().queued == 0


# Withdrawn too late ---------------------------------------------------------------------------------------------------


def behind_a_withdrawn_one() -> tuple[Play, Lease]:
    """A worker was told to forget a lease, perhaps too late, and has got another."""
    play = quick(PoolLimits(1))
    first, withdrawn = play.submit_many(2)
    play.cancel(withdrawn)
    play.answer(first, seconds=QUICK)
    lease = play.submit(timeout=2.0)
    play.silently()
    return play, lease


def test_once_a_lease_may_leave_the_blame_for_a_death_to_one_withdrawn_before_it() -> None:
    play = quick(PoolLimits(2))
    first, second, *withdrawn = play.submit_many(4)
    for lease in withdrawn:
        play.cancel(lease)
    play.answer(first, second, seconds=QUICK)
    lease = play.submit()
    play.die(1)
    assert (lease.worker, lease.deaths, lease.attempt) == (2, [], 0)
    play.die(2)
    assert (lease.deaths, lease.attempt) == (["SIGSEGV"], 1)


def test_once_a_lease_may_leave_the_blame_for_its_lateness_to_it() -> None:
    play, lease = behind_a_withdrawn_one()
    play.wait(2.0)
    assert play.take() == [Kill(1, "no answer within 2 s"), Start(2, "a")]
    play.die(1)
    play.ready(2)
    assert lease.worker == 2
    play.wait(2.0)
    assert GiveUp(lease, "timeout") in play.take()


def test_a_worker_that_may_be_busy_with_a_withdrawn_lease_has_the_time_of_that_one() -> None:
    play = quick(PoolLimits(1))
    first, withdrawn = play.submit(), play.submit(timeout=2.0)
    play.cancel(withdrawn)
    play.wait(1.0)
    play.answer(first, seconds=QUICK)
    patient = play.submit()
    play.silently()
    play.wait(1.9)
    assert play.take() == []
    play.wait(0.1)
    assert play.take() == [Kill(1, "a withdrawn lease went on")]
    play.die(1)
    play.ready(2)
    assert (patient.worker, patient.deaths) == (2, [])
    play.wait(100.0)
    assert patient.worker == 2


def test_an_answer_to_a_later_one_tells_that_the_withdrawn_one_is_over() -> None:
    play, lease = behind_a_withdrawn_one()
    following = play.submit()
    play.answer(lease, seconds=QUICK)
    play.die(1)
    assert len(following.deaths) == 1


def test_what_is_remembered_of_withdrawn_leases_is_bounded() -> None:
    play = quick(PoolLimits(1))
    play.submit()
    for _ in range(1000):
        play.cancel(play.submit())
    play.take()
    assert len(play.rules._roster.workers[1].withdrawn) < 100


# Answers --------------------------------------------------------------------------------------------------------------


def test_a_second_answer_is_dropped_and_counted() -> None:
    play = staffed(PoolLimits(1))
    lease = play.submit()
    number = lease.number
    play.answer(lease)
    for worker, forged in ((1, number), (1, 999), (77, number)):
        assert play.rules.answered(worker, forged, SLOW, play.now) is None
    assert play.rules.statistics().duplicates_dropped == 3


def test_a_worker_cannot_answer_for_another() -> None:
    play = staffed(PoolLimits(2))
    mine, yours = play.submit_many(2)
    assert play.rules.answered(mine.worker, yours.number, SLOW, play.now) is None
    assert play.rules.answered(yours.worker, yours.number, SLOW, play.now) is yours


def test_events_of_workers_nobody_knows_change_nothing() -> None:
    play = staffed(PoolLimits(1))
    before = play.rules.statistics()
    for worker in (0, 7):
        play.ready(worker)
        play.rules.heard(worker, play.now)
        play.rules.broke(worker, "garbage", play.now)
        play.die(worker)
    play.ready(1)
    assert play.take() == []
    assert play.rules.statistics() == before


# Closing, and what is left --------------------------------------------------------------------------------------------


def test_closing_gives_up_all_leases_and_ends_all_workers() -> None:
    play = staffed(PoolLimits(2))
    sent, waiting = play.submit(), play.submit("b")
    starting = play.take()[-1]
    assert starting == Start(3, "b")
    play.die(2, "exit 0")
    play.rules.close(play.now)
    assert play.take() == [
        Kill(1, "closed"),
        Kill(3, "closed"),
        GiveUp(sent, "closed"),
        GiveUp(waiting, "closed"),
    ]
    assert play.rules.answered(1, 3, SLOW, play.now) is None
    play.ready(3)
    play.die(1)
    play.die(3)
    assert play.take() == []
    assert play.rules.next_deadline() == math.inf
    assert play.rules.statistics().duplicates_dropped == 0


def test_closing_lets_idle_workers_end_by_themselves() -> None:
    play = staffed(PoolLimits(2))
    play.rules.close(play.now)
    assert play.take() == [Retire(1), Retire(2)]
    assert play.rules.statistics().workers_recycled == 0


def test_a_closed_pool_takes_nothing_starts_nothing_and_can_be_closed_again() -> None:
    play = Play(PoolLimits(1, spares=1))
    play.rules.close(play.now)
    play.rules.close(play.now)
    play.rules.open("a", play.now)
    lease = play.submit()
    play.cancel(lease)
    play.rules.expire(play.now)
    assert play.take() == [GiveUp(lease, "closed")]


def test_statistics_say_what_everyone_does() -> None:
    play = Play(PoolLimits(4, hang_timeout=5.0))
    play.submit_many(5)
    play.ready(1, 2)
    play.wait(5.0)
    said = play.rules.statistics()
    assert (said.size, said.starting, said.idle, said.busy, said.stopping) == (4, 4, 0, 0, 2)
    assert (said.queued, said.in_flight, said.workers_started, said.workers_lost) == (3, 2, 6, 2)


def test_nothing_is_left_of_many_leases_workers_and_fingerprints() -> None:
    play = Play(PoolLimits(2, max_tasks=3))
    for number in range(2000):
        lease = play.submit(f"fingerprint {number // 10}")
        while not lease.worker:
            carry_out(play)
        play.answer(lease, seconds=QUICK)
        carry_out(play)
    assert len(play.rules._roster.crews) <= 2
    assert len(play.rules._roster.workers) <= 2
    assert play.take() == []

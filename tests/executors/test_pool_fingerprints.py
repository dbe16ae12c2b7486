"""What a pool decides, sentence by sentence: who gets what when there is more than one fingerprint."""

from __future__ import annotations

import pytest
from pool_play import QUICK, SLOW, Play, carry_out, staffed, starts

from adescent.executors.pool_rules import (
    PoolLimits,
    Retire,
    Start,
)


def test_a_lease_goes_to_a_worker_of_its_own_fingerprint() -> None:
    play = Play(PoolLimits(2))
    first, second = play.submit("a"), play.submit("b")
    assert play.take() == [Start(1, "a"), Start(2, "b")]
    play.ready(2, 1)
    assert (first.worker, second.worker) == (1, 2)


def test_each_fingerprint_has_as_many_started_as_it_needs() -> None:
    play = Play(PoolLimits(4))
    play.submit("a")
    play.submit_many(2, "b")
    assert starts(play.take()) == ["a", "b", "b"]


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
    assert play.rules.statistics().workers_recycled == 2


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
    play.submit("b")
    assert play.take() == [Retire(2), Start(4, "b")]
    play.die(2, "exit 0")
    play.submit("b")
    assert play.take() == []


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
    play.ready(2, 1)
    play.answer(lease)
    play.silently()
    play.submit("b")
    assert play.take() == [Retire(2), Start(3, "b")]


def test_two_that_have_nobody_claim_two_workers() -> None:
    play = staffed(PoolLimits(2, in_flight=2))
    one, two, *_ = play.submit_many(3)
    play.submit("b")
    play.submit("c")
    late = play.submit_many(3)
    play.answer(one)
    assert [lease.worker for lease in late] == [0, 0, 0]
    play.answer(two)
    assert [lease.worker for lease in late] == [0, 0, 0]


def test_a_worker_that_is_starting_is_not_claimed_if_another_can_be() -> None:
    play = Play(PoolLimits(2, in_flight=2))
    first, _, waiting = play.submit_many(3)
    play.ready(1)
    play.submit("b")
    late = play.submit("a")
    play.answer(first)
    assert waiting.worker == 1
    play.answer(waiting)
    assert late.worker == 0


def test_leases_wait_though_the_last_worker_of_their_fingerprint_is_gone() -> None:
    play = staffed(PoolLimits(1))
    first = play.submit("a")
    stranger, late = play.submit("b"), play.submit("a")
    play.answer(first)
    play.die(1, "exit 0")
    play.ready(2)
    play.answer(stranger)
    play.ready(3)
    assert late.worker == 3


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


@pytest.mark.parametrize("claimed", [1, 2])
def test_a_claim_ends_with_the_start_of_a_worker_for_which_more_wait(claimed: int) -> None:
    play = staffed(PoolLimits(2, in_flight=2))
    leases = play.submit_many(4)
    by_worker = {worker: [lease for lease in leases if lease.worker == worker] for worker in (1, 2)}
    play.answer(by_worker[claimed].pop())
    play.submit("b")
    play.silently()
    other = 3 - claimed
    play.answer(*by_worker[other])
    assert play.take() == [Retire(other), Start(3, "b")]
    play.ready(3)
    play.submit_many(2, "b")
    assert play.submit("a").worker == claimed, "though it is younger than one that waits for 3"


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

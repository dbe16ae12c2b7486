"""What a pool decides, sentence by sentence: who gets what."""

from __future__ import annotations

import math

import pytest
from pool_play import QUICK, SLOW, Play, quick, staffed, starts

from adescent.executors.pool_rules import (
    PoolLimits,
    Retire,
    Send,
    Start,
    Withdraw,
)

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


def test_it_is_sent_more_at_once_when_an_answer_shows_that_they_are_quick() -> None:
    play = Play(PoolLimits(1, in_flight=2))
    leases = play.submit_many(7)
    play.ready(1)
    play.answer(leases[0], seconds=0.0)
    assert [lease.worker for lease in leases[1:]] == [1, 1, 1, 1, 0, 0]


def test_leases_that_take_as_long_as_quick_ones_may_are_not_quick() -> None:
    play = quick(PoolLimits(1, quick_seconds=QUICK))
    assert [lease.worker for lease in play.submit_many(2)] == [1, 0]


def test_one_that_takes_a_little_longer_among_quick_ones_changes_nothing() -> None:
    play = quick(PoolLimits(1, quick_seconds=0.002))
    play.answer(play.submit(), seconds=0.003)
    assert [lease.worker for lease in play.submit_many(2)] == [1, 1]


def test_quick_or_not_as_many_are_in_flight_as_may_be() -> None:
    play = quick(PoolLimits(1, in_flight=6, prefetch=4))
    assert [lease.worker for lease in play.submit_many(7)] == [1] * 6 + [0]


@pytest.mark.parametrize("garbage", [SLOW, math.nan, math.inf, -QUICK, 1e300])
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


def test_it_grows_for_those_of_each_fingerprint() -> None:
    play = Play(PoolLimits(5))
    for worker, fingerprint in enumerate("ab", start=1):
        lease = play.submit(fingerprint)
        play.ready(worker)
        play.answer(lease, seconds=QUICK)
    play.silently()
    play.submit_many(2, "b")
    assert starts(play.take()) == ["b"], "held behind the first"
    play.submit_many(2, "a")
    assert starts(play.take()) == ["a"], "held behind the first"


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


def test_each_worker_gives_back_what_it_holds_when_it_is_time() -> None:
    play = Play(PoolLimits(2, steal_after=0.05))
    for worker, fingerprint in enumerate("ab", start=1):
        lease = play.submit(fingerprint)
        play.ready(worker)
        play.answer(lease, seconds=QUICK)
    _, first = play.submit_many(2, "a")
    play.wait(0.03)
    _, second = play.submit_many(2, "b")
    assert (first.worker, second.worker) == (1, 2)
    play.rules.expire(play.now)
    play.wait(0.03)
    assert (first.worker, second.worker) == (0, 2)
    play.wait(0.03)
    assert (first.worker, second.worker) == (0, 0)


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


def test_spares_are_started_where_there_is_a_place() -> None:
    play = Play(PoolLimits(1, spares=1))
    play.rules.open("a", play.now)
    play.submit("b")
    play.ready(1, 2)
    play.submit("a")
    assert starts(play.take()) == ["a", "b"]


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

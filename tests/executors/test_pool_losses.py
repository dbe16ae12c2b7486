"""What a pool decides, sentence by sentence: deaths, failed starts."""

from __future__ import annotations

import pytest
from pool_play import QUICK, SLOW, Play, quick, staffed, starts

from adescent.executors.pool_rules import (
    GiveUp,
    Kill,
    PoolLimits,
    Send,
    Start,
)

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
    assert (play.rules.statistics().redispatched, play.rules.statistics().workers_lost) == (3, 3)


@pytest.mark.parametrize("waiting", [0, 1])
def test_those_lost_at_once_are_replaced_each_by_its_own_kind(waiting: int) -> None:
    play = Play(PoolLimits(2, hang_timeout=5.0))
    play.submit("a")
    play.submit("b")
    play.ready(1, 2)
    play.submit_many(waiting, "a")
    play.silently()
    play.wait(5.0)
    assert starts(play.take()) == ["a", "b"]


def test_unless_their_places_are_needed_by_others() -> None:
    play = Play(PoolLimits(2, hang_timeout=5.0))
    play.submit("a")
    play.submit("b")
    play.ready(1, 2)
    play.submit("c")
    play.silently()
    play.wait(5.0)
    assert starts(play.take()) == ["c", "a"]


def test_a_suspect_is_served_before_younger_leases_of_others() -> None:
    play = Play(PoolLimits(1))
    suspect = play.submit("b")
    play.ready(1)
    play.submit("a")
    play.submit("b")
    play.silently()
    play.die(1)
    assert suspect.deaths
    assert play.take() == [Start(2, "b")]


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


def test_it_gets_one_too_though_more_keep_coming_and_starts_keep_failing() -> None:
    play = staffed(PoolLimits(2, in_flight=3, start_failures=1))
    victim, *others = play.submit_many(6)
    play.die(1)
    for _ in range(20):
        others.append(play.submit())
        play.rules.expire(play.now)  # whatever happens while one is starting, that one does not count
        play.answer(next(lease for lease in others if lease.worker and not lease.deaths))
        if victim.worker:
            break
        for worker in [each.worker for each in play.take() if isinstance(each, Start)]:
            play.die(worker, "exit 1")
    assert victim.worker == 2


def test_none_is_kept_for_suspects_when_there_are_none_left() -> None:
    play = staffed(PoolLimits(2, in_flight=2))
    first, second, third, _ = play.submit_many(4)
    waiting = play.submit()
    play.die(1)
    play.cancel(first)
    play.cancel(third)
    play.answer(second)
    assert waiting.worker == 2


def test_a_worker_that_takes_no_more_is_not_the_one_that_is_kept_for_a_suspect() -> None:
    play = staffed(PoolLimits(3, in_flight=2, max_tasks=4, start_failures=1))
    victim, second, third, _, fifth, sixth = play.submit_many(6)
    play.submit_many(6)
    play.answer(second, fifth)
    play.die(1)
    for worker in (4, 5, 6):
        play.die(worker, "exit 1")
    play.answer(third, sixth)
    assert victim.worker == 3


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
    lease, waiting = play.submit_many(2)
    play.ready(1)
    play.die(1)
    play.silently()
    play.die(2, "exit 1")
    assert play.take() == [GiveUp(lease, "not ready"), GiveUp(waiting, "not ready")]


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_an_answer_shows_that_as_many_may_be_started_as_are_needed(seconds: float) -> None:
    play = Play(PoolLimits(5, start_failures=1))
    first, *_ = play.submit_many(5)
    play.ready(1)
    play.silently()
    for worker in range(2, 10):
        play.die(worker, "exit 1")
    assert play.rules.statistics().starting == 0
    play.silently()
    play.answer(first, seconds=seconds)
    assert starts(play.take()) == ["a", "a", "a"]


def test_it_does_so_too_if_its_worker_has_others() -> None:
    play = Play(PoolLimits(2, in_flight=2, start_failures=1))
    first, *_ = play.submit_many(5)
    play.ready(1)
    for worker in (2, 3):
        play.die(worker, "exit 1")
    play.silently()
    play.answer(first)
    assert starts(play.take()) == ["a"]


def test_it_does_so_too_if_nobody_waits_for_it() -> None:
    play = Play(PoolLimits(2, in_flight=2, start_failures=1))
    first, *_ = play.submit_many(5)
    play.ready(1)
    number = first.number
    play.cancel(first)
    for worker in (2, 3):
        play.die(worker, "exit 1")
    play.silently()
    assert play.rules.answered(1, number, SLOW, play.now) is None
    assert starts(play.take()) == ["a"]

"""What a pool decides, sentence by sentence: what is cancelled, answered late, closed."""

from __future__ import annotations

import math

from pool_play import QUICK, SLOW, Play, carry_out, quick, staffed

from adescent.executors.pool_crews import REMEMBERED_WITHDRAWALS
from adescent.executors.pool_rules import (
    GiveUp,
    Kill,
    Lease,
    PoolLimits,
    Retire,
    Send,
    Start,
    Withdraw,
)

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


def test_it_is_killed_too_if_nobody_knows_how_long_leases_take() -> None:
    play = Play(PoolLimits(1))
    lease = play.submit()
    play.ready(1)
    play.silently()
    play.cancel(lease)
    assert play.take() == [Kill(1, "its lease was cancelled")]


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
    play = staffed(PoolLimits(1, in_flight=2))
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


def test_of_several_withdrawn_ones_the_first_to_have_had_its_time_counts() -> None:
    play = quick(PoolLimits(1))
    first, short, long = play.submit(), play.submit(timeout=2.0), play.submit(timeout=5.0)
    play.cancel(short)
    play.cancel(long)
    play.answer(first, seconds=QUICK)
    play.submit()
    play.silently()
    play.wait(2.0)
    assert play.take() == [Kill(1, "a withdrawn lease went on")]


def test_an_answer_to_a_later_one_tells_that_the_withdrawn_one_is_over() -> None:
    play, lease = behind_a_withdrawn_one()
    following = play.submit()
    play.answer(lease, seconds=QUICK)
    play.die(1)
    assert len(following.deaths) == 1


def test_so_its_time_does_not_count_any_more() -> None:
    play = quick(PoolLimits(1))
    first, withdrawn, lease, following = play.submit(), play.submit(timeout=2.0), play.submit(), play.submit()
    play.cancel(withdrawn)
    play.answer(first, lease, seconds=QUICK)
    play.silently()
    play.wait(10.0)
    assert (play.take(), following.worker) == ([], 1)


def test_an_answer_to_an_earlier_one_changes_nothing_about_that() -> None:
    play = quick(PoolLimits(1, in_flight=2))
    first, second, withdrawn, third = play.submit_many(4)
    play.cancel(withdrawn)
    play.answer(first, third, second, seconds=QUICK)
    lease = play.submit()
    play.die(1)
    assert len(lease.deaths) == 1


def test_of_withdrawn_leases_only_the_last_are_remembered() -> None:
    play = quick(PoolLimits(1))
    play.submit()
    numbers = []
    for _ in range(100):
        numbers.append((lease := play.submit()).number)
        play.cancel(lease)
    play.take()
    assert list(play.rules._roster.workers[1].withdrawn) == numbers[-REMEMBERED_WITHDRAWALS:]


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


def test_closing_does_not_give_up_what_was_cancelled() -> None:
    play = staffed(PoolLimits(1, in_flight=2))
    cancelled, other = play.submit_many(2)
    play.cancel(cancelled)
    play.silently()
    play.rules.close(play.now)
    assert play.take() == [Kill(1, "closed"), GiveUp(other, "closed")]


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

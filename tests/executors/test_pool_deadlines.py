"""What a pool decides, sentence by sentence: who is late, who is silent, who breaks the rules."""

from __future__ import annotations

import math

from pool_play import SLOW, Play, quick, staffed

from adescent.executors.pool_rules import (
    GiveUp,
    Kill,
    PoolLimits,
    Retire,
    Start,
    Withdraw,
)


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


def test_it_goes_on_when_one_that_was_sent_later_is_answered_first() -> None:
    play = quick(PoolLimits(1))
    first, second = play.submit(timeout=2.0), play.submit()
    play.wait(1.5)
    play.answer(second)
    play.silently()
    play.wait(0.5)
    assert GiveUp(first, "timeout") in play.take()


def test_what_is_held_behind_one_that_is_late_goes_back_at_once() -> None:
    play = quick(PoolLimits(1))
    late, held = play.submit(timeout=2.0), play.submit()
    play.silently()
    play.wait(2.0)
    assert play.take() == [GiveUp(late, "timeout"), Kill(1, "no answer within 2 s"), Start(2, "a")]
    play.die(1, "SIGKILL")
    play.ready(2)
    assert (held.worker, held.deaths, held.attempt) == (2, [], 0)


def test_one_that_is_late_beside_others_is_told_to_stop_and_they_go_on() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    late, begun, also = play.submit(timeout=1.0), play.submit(timeout=5.0), play.submit()
    play.silently()
    play.wait(1.0)
    assert play.take() == [Withdraw(1, late.number)]
    assert play.rules.answered(1, late.number, 1.0, play.now) is None  # that it has stopped, or that it is done
    assert play.take() == [GiveUp(late, "timeout")]
    assert late.deaths == ["no answer within 1 s"]
    assert (begun.deaths, also.deaths) == ([], [])
    play.answer(begun, also)


def test_one_that_was_told_to_stop_can_be_cancelled() -> None:
    play = staffed(PoolLimits(1, in_flight=2))
    late, other = play.submit(timeout=1.0), play.submit()
    number = late.number
    play.wait(1.0)
    play.cancel(late)
    play.silently()
    assert play.rules.answered(1, number, SLOW, play.now) is None
    assert play.take() == []
    assert (late.deaths, other.worker) == ([], 1)


def test_a_worker_that_is_not_even_told_to_stop_may_be_held_up_by_any_that_it_has_begun() -> None:
    play = staffed(PoolLimits(1, in_flight=3))
    late, begun, also = play.submit(timeout=1.0), play.submit(timeout=1.0), play.submit()
    play.silently()
    play.wait(1.5)
    assert Kill(1, "no answer in time, nor to being told to stop") in play.take()
    play.die(1, "SIGKILL")
    assert [len(lease.deaths) for lease in (late, begun, also)] == [1, 1, 1]
    play.ready(2)
    assert [lease.worker for lease in (late, begun, also)] == [2, 0, 0]  # each alone, so that they can be told apart
    play.wait(1.0)
    assert GiveUp(late, "timeout") in play.take()


def test_that_another_is_late_just_then_does_not_matter() -> None:
    play = staffed(PoolLimits(1, in_flight=2))
    play.submit(timeout=1.0)
    play.submit(timeout=1.5)
    play.wait(1.0)
    play.silently()
    play.wait(0.5)
    assert play.take() == [Kill(1, "no answer in time, nor to being told to stop"), Start(2, "a")]


def test_a_worker_whose_lease_is_late_may_be_due_for_its_silence_too() -> None:
    play = staffed(PoolLimits(1, in_flight=2, hang_timeout=5.0))
    late, _ = play.submit(timeout=5.0), play.submit()
    number = late.number
    play.silently()
    play.wait(5.0)
    assert play.take() == [Withdraw(1, number), Kill(1, "not a word within 5 s"), Start(2, "a")]


def test_what_is_due_first_is_done_first() -> None:
    play = staffed(PoolLimits(1, hang_timeout=10.0))
    late = play.submit(timeout=2.0)
    play.wait(2.0)
    assert GiveUp(late, "timeout") in play.take()


def test_an_answer_between_the_kill_and_the_end_still_counts() -> None:
    play = staffed(PoolLimits(1, in_flight=2))
    play.submit(timeout=1.0)
    other = play.submit()
    play.wait(1.5)
    play.answer(other)
    play.silently()
    play.die(1)
    assert play.take() == []
    assert play.rules.statistics().redispatched == 1  # the one that was late


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
    play.ready(2)
    assert (lease.worker, held.worker) == (0, 2)


def test_how_a_killed_worker_ends_does_not_matter() -> None:
    play = staffed(PoolLimits(1, hang_timeout=10.0))
    lease = play.submit()
    play.wait(10.0)
    play.die(1, "SIGXCPU", cpu=True)
    play.ready(2)
    assert (lease.worker, lease.deaths) == (2, ["not a word within 10 s"])


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
    assert play.rules.next_deadline() == play.now + 10.0
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

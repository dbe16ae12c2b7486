from __future__ import annotations

from typing import Any

import pytest

from adescent.aggregator.reverification import Wave, gain_on, planned, worsened
from adescent.policies import Measurement, Reading


def scores(**by_task: float | None) -> Measurement:
    return Measurement(
        tuple(Reading(name) if score is None else Reading(name, score, 1) for name, score in by_task.items())
    )


@pytest.mark.parametrize(
    ("eval_concurrency", "tasks"), [(1, ["t3"]), (2, ["t3"]), (4, ["t3", "t2"]), (8, ["t3", "t2", "t1"])]
)
def test_tasks_are_taken_from_the_newest_card_as_long_as_both_sides_fit(
    card: Any, eval_concurrency: int, tasks: list[str]
) -> None:
    cards = [card(learnt_from=str(number), **{f"x{number}": "1"}) for number in (1, 2, 3)]
    wave = planned(cards, eval_concurrency)
    assert wave is not None
    assert [task.id for task in wave.tasks] == tasks
    assert wave.union.ops.keys() == {"x1", "x2", "x3"}


def test_cards_that_contradict_the_union_are_left_to_the_conflict(card: Any) -> None:
    cards = [card(learnt_from="1", x="1"), card(learnt_from="2", x="2")]
    wave = planned(cards, 8)
    assert wave is not None
    assert wave.cards == (cards[0],)
    assert wave.union.ops == {"x": "1"}


def test_without_a_task_there_is_nothing_to_look_at(card: Any) -> None:
    assert planned([card(x="1")], 8) is None
    assert planned([], 8) is None


def test_a_card_ends_when_its_own_tasks_lose_in_sum(card: Any) -> None:
    better, worse, mixed = card(learnt_from="1", x="1"), card(learnt_from="2", y="2"), card(learnt_from="1 2 3", z="3")
    wave = Wave(better.diff, (better, worse, mixed), ())
    before, after = scores(t1=0.0, t2=1.0, t3=0.5), scores(t1=0.5, t2=0.4, t3=0.5)
    assert worsened(wave, before, after) == [worse, mixed]


def test_a_task_without_a_score_accuses_nobody(card: Any) -> None:
    only = card(learnt_from="1", x="1")
    wave = Wave(only.diff, (only,), ())
    assert worsened(wave, scores(t1=1.0), scores(t1=None)) == []
    assert worsened(wave, scores(t1=None), scores(t1=0.0)) == []


def test_rounding_is_neither_gain_nor_loss() -> None:
    assert gain_on(["a", "b"], scores(a=0.1, b=0.3), scores(a=0.3, b=0.1)) == 0.0
    assert gain_on(["c"], scores(a=0.1), scores(a=0.3)) is None

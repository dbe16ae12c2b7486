from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.aggregator import KeepBetter
from adescent.aggregator.union import Union

POLICY = KeepBetter()


def test_cards_that_agree_are_not_contested(card: Any) -> None:
    cards = [card(x="1"), card(y="2"), card(x="1", z="3")]
    assert POLICY.contested(cards) == []
    assert POLICY.resolve(cards, {}).kept == tuple(cards)


@pytest.mark.parametrize(("old", "new", "kept"), [(0.5, 0.6, 1), (0.5, 0.5, 0), (0.6, 0.5, 0)])
def test_the_newcomer_must_be_strictly_better(card: Any, old: float, new: float, kept: int) -> None:
    cards = [card(x="1"), card(x="2")]
    assert POLICY.contested(cards) == cards
    resolution = POLICY.resolve(cards, {cards[0].id: old, cards[1].id: new})
    assert resolution.kept == (cards[kept],)
    [(dropped, reason)] = resolution.dropped
    assert dropped == cards[1 - kept]
    assert "'x'" in reason


@pytest.mark.parametrize(("scored", "kept"), [((), 0), ((0,), 0), ((1,), 1)])
def test_who_has_no_score_loses_to_who_has_one(card: Any, scored: tuple[int, ...], kept: int) -> None:
    cards = [card(x="1"), card(x="2")]
    scores = {cards[number].id: 0.0 for number in scored}
    assert POLICY.resolve(cards, scores).kept == (cards[kept],)


def test_a_newcomer_must_beat_everyone_it_contradicts(card: Any) -> None:
    first, second, newcomer = cards = [card(x="1"), card(y="1"), card(x="2", y="2")]
    scores = {first.id: 0.1, second.id: 0.5, newcomer.id: 0.4}
    assert POLICY.resolve(cards, scores).kept == (first, second)
    assert POLICY.resolve(cards, {**scores, newcomer.id: 0.6}).kept == (newcomer,)


def test_texts_that_can_be_merged_are_not_contested(card: Any) -> None:
    base = {"x": "one\ntwo\nthree"}
    cards = [card(base, x="ONE\ntwo\nthree"), card(base, x="one\ntwo\nTHREE"), card(base, x="uno\ntwo\nthree")]
    assert POLICY.contested(cards[:2]) == []
    assert POLICY.contested(cards) == [cards[0], cards[2]]
    assert POLICY.resolve(cards, {cards[0].id: 0.1, cards[2].id: 0.2}).kept == (cards[1], cards[2])


def test_who_contradicts_only_a_loser_of_the_first_look_is_contested_too(card: Any) -> None:
    cards = [card(x="1"), card(x="2", y="2"), card(y="3")]
    assert POLICY.contested(cards) == cards


ops = st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, "1", "2", "L1\n=\nl3", "l1\n=\nL3"]), min_size=1)


@given(edits=st.lists(ops, max_size=8, unique_by=lambda edit: tuple(sorted(edit.items()))), data=st.data())
def test_everyone_is_kept_or_dropped_and_the_kept_agree(card: Any, edits: list[Any], data: st.DataObject) -> None:
    base = dict.fromkeys("abc", "l1\n=\nl3")
    cards = [card(base, **edit) for edit in edits]
    contested = POLICY.contested(cards)
    scores = {one.id: data.draw(st.sampled_from([0.0, 0.5, 1.0])) for one in contested}
    resolution = POLICY.resolve(cards, scores)
    assert sorted(one.id for one in (*resolution.kept, *(lost for lost, _ in resolution.dropped))) == sorted(
        one.id for one in cards
    )
    assert len(Union(resolution.kept).cards) == len(resolution.kept)
    assert {lost.id for lost, _ in resolution.dropped} <= scores.keys()
    if scores:
        best = max(scores.values())
        assert any(scores.get(one.id) == best for one in resolution.kept)

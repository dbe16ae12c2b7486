from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from adescent.aggregator import UnionFusion
from adescent.aggregator.fusion import MOST_RANKED, fused, ranking, worth_ranking


def ids(candidates: Any) -> list[str]:
    return [candidate.diff.id for candidate in candidates]


def test_complementary_cards_become_one_candidate(card: Any) -> None:
    cards = [card(x="1"), card(y="2"), card(x="1", z="3")]
    union = fused(cards)
    assert not isinstance(union, str)
    assert union.diff.ops == {"x": "1", "y": "2", "z": "3"}
    assert union.cards == tuple(cards)
    assert union.fused


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([{"x": "1"}], "one diff"),
        ([{"x": "1"}, {"x": "2"}], "contradiction"),
        ([{"x": "1", "y": "2"}, {"y": "2"}], "nothing new"),
    ],
)
def test_when_there_is_no_union(card: Any, edits: list[dict[str, str]], why: str) -> None:
    assert fused([card(**edit) for edit in edits]) == why


def test_without_scores_only_the_union_is_put_forward(card: Any) -> None:
    cards = [card(x="1"), card(y="2")]
    [union] = UnionFusion().candidates(cards, {})
    assert union.fused


def test_after_the_union_the_best_two_singles_by_score(card: Any) -> None:
    cards = [card(x="1"), card(y="2"), card(z="3"), card(w="4")]
    scores = {cards[0].diff.id: 0.1, cards[1].diff.id: 0.9, cards[3].diff.id: 0.5}
    union, *singles = UnionFusion().candidates(cards, scores)
    assert union.fused
    assert ids(singles) == [cards[1].diff.id, cards[3].diff.id]


def test_one_diff_is_its_own_candidate(card: Any) -> None:
    only = card(x="1")
    assert ids(UnionFusion().candidates([only], {})) == [only.diff.id]
    assert UnionFusion().candidates([], {}) == []


def test_cards_that_contradict_are_tried_alone(card: Any) -> None:
    cards = [card(x="1"), card(x="2")]
    assert ids(UnionFusion().candidates(cards, {})) == [cards[0].diff.id]
    scores = {cards[0].diff.id: 0.1, cards[1].diff.id: 0.2}
    assert ids(UnionFusion().candidates(cards, scores)) == [cards[1].diff.id, cards[0].diff.id]


@pytest.mark.parametrize(("union", "first"), [(0.9, "union"), (0.5, "single"), (0.4, "single"), (None, "single")])
def test_in_a_tournament_a_tie_is_not_a_win(card: Any, union: float | None, first: str) -> None:
    cards = [card(x="1"), card(y="2")]
    scores = {cards[0].diff.id: 0.5, cards[1].diff.id: 0.3}
    candidate = fused(cards)
    assert not isinstance(candidate, str)
    if union is not None:
        scores[candidate.diff.id] = union
    [winner, *rest] = UnionFusion(tournament=True).candidates(cards, scores)
    assert winner.fused == (first == "union")
    assert not any(other.fused for other in rest)


@pytest.mark.parametrize(
    ("union", "singles", "word"),
    [
        (0.5, [0.4], "won"),
        (0.5, [0.4, 0.5], "tied"),
        (0.5, [0.6], "lost"),
        (None, [0.1], "unmeasured"),
        (1.0, [], "unmeasured"),
    ],
)
def test_how_a_tournament_went(union: float | None, singles: list[float], word: str) -> None:
    assert ranking(union, singles) == word


def test_cheap_scores_are_bought_for_the_most_promising(card: Any) -> None:
    cards = [evolve(card(**{f"x{number}": "1"}), before_after_delta=number % 3) for number in range(40)]
    ranked = worth_ranking(cards)
    assert len(ranked) == MOST_RANKED
    assert [one.before_after_delta for one in ranked] == [2] * 13 + [1] * 3
    assert ranked[0] is cards[2]

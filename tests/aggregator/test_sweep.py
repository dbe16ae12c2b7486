from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from adescent.aggregator import Ingested
from adescent.aggregator.ends import End
from adescent.aggregator.sweep import Sweep
from adescent.policies import Outcome

TIE = End(Outcome.TIE, "no better")


def sweep_of(*cards: Any) -> Sweep:
    return Sweep("a", [Ingested((number,), card) for number, card in enumerate(cards)])


def test_cards_stand_in_the_order_of_their_keys(card: Any) -> None:
    first, second = card(x="1"), card(x="2")
    assert Sweep("a", [Ingested((2,), second), Ingested((1,), first)]).open == (first, second)


def test_a_card_that_became_another_is_settled_as_what_came_in(card: Any) -> None:
    came_in, stands = card(x="1"), card({}, 2, x="1")
    sweep = sweep_of(came_in)
    sweep.sift(lambda _: stands)
    assert sweep.rebased == sweep.open == (stands,)
    sweep.settle([stands], TIE)
    [settled] = sweep.report().settled
    assert settled.card is came_in
    assert (settled.outcome, settled.reason) == (TIE.outcome, TIE.reason)


def test_after_a_restart_open_cards_are_what_came_in(card: Any) -> None:
    came_in, other = card(x="1"), card(y="1")
    sweep = sweep_of(came_in, other)
    sweep.sift(lambda one: TIE if one is other else evolve(one, before_after_delta=0.5))
    assert sweep.open != (came_in,)
    sweep.restart()
    assert sweep.open == (came_in,)


def test_cards_that_come_to_one_edit_are_one(card: Any) -> None:
    sweep = sweep_of(card(x="1"), card({}, 2, x="1"), card(y="1"))
    sweep.sift(lambda one: one)
    assert [settled.outcome for settled in sweep.report().settled] == [Outcome.DUPLICATE]
    assert [one.diff.ops for one in sweep.open] == [{"x": "1"}, {"y": "1"}]


def test_a_card_ends_once(card: Any) -> None:
    only = card(x="1")
    sweep = sweep_of(only)
    sweep.settle([only], TIE)
    with pytest.raises(KeyError):
        sweep.settle([only], TIE)
    assert sweep.still_open([only]) == []


def test_what_is_open_waits_and_is_counted(card: Any) -> None:
    first, second = card(x="1"), card(y="1")
    sweep = sweep_of(first, second)
    sweep.settle([second], TIE)
    report = sweep.report(0.5)
    assert (report.considered, report.held_out) == (1, 0.5)
    assert [entry.card for entry in sweep.leftover] == [first]
    sweep.end_all(TIE)
    assert sweep.leftover == ()
    assert sweep.report().considered == 2

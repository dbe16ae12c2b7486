from __future__ import annotations

from itertools import permutations
from typing import Any

from adescent.aggregator import EvidenceBuffer


def test_cards_come_out_by_order_and_not_by_arrival(card: Any) -> None:
    cards = {(1, 0): card(x="a"), (1, 1): card(x="b"), (2, 0): card(x="c")}
    for arrival in permutations(cards):
        buffer = EvidenceBuffer()
        for order in arrival:
            buffer.ingest(cards[order], order)
        assert [entry.card for entry in buffer.drain("a")] == list(cards.values())


def test_each_artifact_has_a_bucket_of_its_own(card: Any, run: Any) -> None:
    buffer = EvidenceBuffer()
    buffer.ingest(card(x="a"), (0, 0))
    buffer.ingest(card(x="b"), (0, 1))
    assert buffer.artifacts() == ["a"]
    assert buffer.drain("b") == ()
    assert len(buffer) == 2
    assert len(buffer.drain("a")) == 2
    assert buffer.drain("a") == ()
    assert len(buffer) == 0


def test_what_is_put_back_waits_where_its_order_says(card: Any) -> None:
    buffer = EvidenceBuffer()
    first = buffer.ingest(card(x="a"), (1, 0))
    buffer.drain("a")
    buffer.ingest(card(x="b"), (2, 0))
    buffer.put_back([first])
    assert [entry.order for entry in buffer.drain("a")] == [(1, 0), (2, 0)]
    assert buffer.ingested == 2


def test_the_first_are_taken_out_and_the_others_wait_in_order(card: Any) -> None:
    buffer = EvidenceBuffer()
    for turn in (3, 1, 2, 0):
        buffer.ingest(card(x=str(turn)), (turn, 0))
    assert [entry.order[0] for entry in buffer.drain("a", 3)] == [0, 1, 2]
    assert [entry.order[0] for entry in buffer.drain("a", 3)] == [3]
    assert buffer.drain("a", 3) == ()

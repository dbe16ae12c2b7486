from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.aggregator.trust_region import oversized, within_union
from adescent.evolvable import Diff


@pytest.mark.parametrize(
    ("ops", "too_large"),
    [
        ({}, False),
        ({str(number): "x" for number in range(6)}, False),
        ({str(number): None for number in range(7)}, True),
        ({"x": "a" * 32_000}, False),
        ({"x": "a" * 32_001}, True),
    ],
)
def test_how_large_a_diff_may_be(ops: Any, too_large: bool) -> None:
    assert bool(oversized(Diff("a", ops))) == too_large


def test_keys_that_cards_share_count_once(card: Any) -> None:
    cards = [card(x="a", y="b"), card(x="a"), card(z="c")]
    assert within_union(cards, 2) == (cards[:2], cards[2:])


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=30), limit=st.integers(1, 64))
def test_a_union_is_cut_in_order_and_never_to_nothing(card: Any, sizes: list[int], limit: int) -> None:
    cards = [card(**{f"{number}.{key}": "x" for key in range(size)}) for number, size in enumerate(sizes)]
    within, waiting = within_union(cards, limit)
    assert [*within, *waiting] == cards
    assert within
    assert len(within) == 1 or sum(card.diff.size() for card in within) <= limit
    assert not waiting or sum(card.diff.size() for card in (*within, waiting[0])) > limit

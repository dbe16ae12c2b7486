from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from adescent.aggregator.off_loop import A_CARD, LARGE, disputed, off_the_loop, overtaken
from adescent.evolvable import Evolvable


@pytest.mark.anyio
async def test_only_much_text_goes_to_a_thread(anyio_backend: Any) -> None:
    here = threading.get_ident()
    with anyio.fail_after(5):
        assert await off_the_loop(LARGE - 1, threading.get_ident) == here
        assert await off_the_loop(LARGE, threading.get_ident) != here


def test_text_counts_where_it_has_to_be_merged(card: Any) -> None:
    base = {"x": "old", "y": "old"}
    cards = [card(base, x="12345"), card(base, x="12345", y="1"), card(base, x="123", new="12", y=None)]
    assert disputed(cards) == len(cards) * A_CARD + 3
    assert overtaken(cards, Evolvable("a", base)) == len(cards) * A_CARD
    assert overtaken(cards, Evolvable("a", {**base, "x": "newer"})) == len(cards) * A_CARD + 13


@pytest.mark.anyio
async def test_a_merge_of_much_text_ends_like_one_of_little(anyio_backend: Any, run: Any) -> None:
    await run.start()
    long = "\n".join(f"line {number} of a long text" for number in range(300))
    base = run.ledger.foreign("a", text=long)
    run.ledger.foreign("a", text=long.replace("line 7 ", "LINE 7 "))
    edits = [long.replace(f"line {number}0 ", f"+{number} ") for number in (5, 6, 7)]
    cards = [run.card(base, "5", text=text) for text in edits]
    assert await run.outcomes(*cards) == ["committed"] * 3
    assert all(word in run.head.state["text"] for word in ("LINE 7 ", "+5 ", "+6 ", "+7 "))

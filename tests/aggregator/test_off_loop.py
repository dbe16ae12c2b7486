from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from adescent.aggregator.off_loop import A_CARD, LARGE, disputed, off_the_loop, overtaken
from adescent.evolvable import Evolvable
from adescent.own_thread import in_own_thread
from adescent.textmerge import Merge

BOUND = 30.0


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


class SlowMerging:
    """Stands in for the merge of two texts: it does not come to an end before it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.merges = 0

    def __call__(self, base: str, ours: str, theirs: str) -> Merge:
        self.merges += 1
        self.begun.set()
        self.let_go.wait(BOUND)
        return Merge(None, 1)


@pytest.mark.anyio
@pytest.mark.parametrize("step", ["evolvable", "aggregator.union"])
async def test_a_cancelled_merge_waits_for_no_text_and_begins_no_other(
    step: str, run: Any, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    merging = SlowMerging()
    monkeypatch.setattr(f"adescent.{step}.merge_lines", merging)
    await run.start()
    long = "\n".join(f"line {number} of a long text" for number in range(300))
    base = run.ledger.foreign("a", text=long)
    if step == "evolvable":
        run.ledger.foreign("a", text=long.replace("line 7 ", "LINE 7 "))
    cards = [run.card(base, str(number), text=f"{long}\n{number}") for number in range(8)]

    async def cancel(scope: anyio.CancelScope) -> None:
        await anyio.to_thread.run_sync(merging.begun.wait, BOUND)
        scope.cancel()

    ended = threading.Event()

    async def told_of_the_end(function: Callable[[], Any], **options: Any) -> Any:
        def whole() -> Any:
            try:
                return function()
            finally:
                ended.set()

        return await in_own_thread(whole, **options)

    monkeypatch.setattr("adescent.aggregator.off_loop.in_own_thread", told_of_the_end)
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as host:
            with anyio.CancelScope() as scope:
                host.start_soon(cancel, scope)
                await run.outcomes(*cards)
            assert scope.cancelled_caught
            assert not ended.is_set()
            merging.let_go.set()
            await anyio.to_thread.run_sync(ended.wait, BOUND)
    assert merging.merges == 1

"""Where pure steps run: on the loop, or in a thread when they have so much text to merge that the loop would notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from anyio.to_thread import run_sync

from adescent.evolvable import EvidenceCard, Evolvable

__all__ = ["disputed_text", "off_the_loop", "overtaken_text"]

LARGE = 4_000
"""Characters from which texts are merged in a thread: aligning their lines takes milliseconds."""

T = TypeVar("T")


def overtaken_text(cards: Sequence[EvidenceCard], head: Evolvable) -> int:
    """How many characters the cards set where the head has moved on from their base: a rebase merges these."""
    return sum(
        len(value or "")
        for card in cards
        for key, value in card.diff.ops.items()
        if card.base_values.get(key) != head.state.get(key)
    )


def disputed_text(cards: Sequence[EvidenceCard]) -> int:
    """How many characters the cards set where an earlier one sets something else: a union has to merge these."""
    first: dict[str, str | None] = {}
    return sum(
        len(value or "")
        for card in cards
        for key, value in card.diff.ops.items()
        if first.setdefault(key, value) != value
    )


async def off_the_loop(characters: int, step: Callable[[], T]) -> T:
    """The result of a pure step that has this much text to merge."""
    return step() if characters < LARGE else await run_sync(step)

"""Where pure steps run: on the loop, or in a thread when they have so much to do that the loop would notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from adescent.evolvable import EvidenceCard, Evolvable
from adescent.own_thread import in_own_thread

__all__ = ["disputed", "off_the_loop", "overtaken"]

LARGE = 4_000
"""Work from which a step goes to a thread, in characters of text to merge: aligning their lines takes milliseconds."""

A_CARD = 80
"""What a card with nothing to merge counts for."""

T = TypeVar("T")


def overtaken(cards: Sequence[EvidenceCard], head: Evolvable) -> int:
    """The work of a rebase: the texts the cards set where the head has moved on from their base."""
    return len(cards) * A_CARD + sum(
        len(value or "")
        for card in cards
        for key, value in card.diff.ops.items()
        if card.base_values.get(key) != head.state.get(key)
    )


def disputed(cards: Sequence[EvidenceCard]) -> int:
    """The work of a union: the texts the cards set where an earlier one sets something else."""
    first: dict[str, str | None] = {}
    return len(cards) * A_CARD + sum(
        len(value or "")
        for card in cards
        for key, value in card.diff.ops.items()
        if first.setdefault(key, value) != value
    )


async def off_the_loop(work: int, step: Callable[[], T]) -> T:
    """The result of a pure step that has this much to do."""
    return step() if work < LARGE else await in_own_thread(step, pure=True)

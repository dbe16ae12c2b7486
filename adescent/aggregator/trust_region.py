"""Step 0: how much one merge may change at once."""

from __future__ import annotations

from collections.abc import Sequence

from adescent.evolvable import Diff, EvidenceCard

__all__ = ["MOST_CHARACTERS", "MOST_OPS", "MOST_UNION_OPS", "oversized", "within_union"]

MOST_OPS = 6
"""Keys one diff may change: a larger edit cannot be told good from bad by one measurement."""

MOST_CHARACTERS = 32_000
"""Length of one value, in characters."""

MOST_UNION_OPS = 64
"""Keys a union of diffs may change."""


def oversized(diff: Diff) -> str:
    """Why a diff is too large to be looked at, or ``""``."""
    if diff.size() > MOST_OPS:
        return f"it changes {diff.size()} keys; at most {MOST_OPS} at once."
    for key, value in diff.ops.items():
        if value is not None and len(value) > MOST_CHARACTERS:
            return f"the text of {key!r} has {len(value)} characters; at most {MOST_CHARACTERS}."
    return ""


def within_union(
    cards: Sequence[EvidenceCard], limit: int = MOST_UNION_OPS
) -> tuple[Sequence[EvidenceCard], Sequence[EvidenceCard]]:
    """(cards whose keys together are at most ``limit``, the rest, which waits): a cut that keeps the order.

    The first card is always within: a merge that let everything wait would never end.
    """
    keys: set[str] = set()
    for index, card in enumerate(cards):
        keys.update(card.diff.ops)
        if index and len(keys) > limit:
            return cards[:index], cards[index:]
    return cards, ()

"""Numbers with what they count, in grammar."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, thing: str) -> str:
    """``1 fork``, ``2 forks``: for words that take an s."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

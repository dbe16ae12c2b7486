"""How a card ends: an outcome and, in words, why."""

from __future__ import annotations

from attrs import frozen

from adescent.policies.records import Outcome

__all__ = ["End"]


@frozen
class End:
    """An outcome and the reason, told to whoever proposes next."""

    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.reason}" if self.reason else self.outcome.value

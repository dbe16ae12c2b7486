"""Step 7: when a version on dev has been confirmed often enough for stable."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen

from adescent.aggregator.books import Book
from adescent.aggregator.candidates import AsyncLedger
from adescent.aggregator.gate import HeldOutGate
from adescent.errors import BudgetExhausted, OptionError
from adescent.policies.keeping import PromotionPolicy
from adescent.policies.records import Measurement
from adescent.telemetry import ArtifactPromoted, Emit

__all__ = ["ConfirmedPromotion", "Promoter"]


def _whole_and_positive(instance: object, attribute: object, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"ConfirmedPromotion(k={value!r}): k is a number of merges, at least 1.")


@frozen
class ConfirmedPromotion:
    """Due once the head has outlasted ``k`` decided merges."""

    k: int = field(default=3, validator=_whole_and_positive)

    def due(self, quiet_sweeps: int) -> bool:
        """Whether ``quiet_sweeps`` decided merges without a commit or an oracle rejection suffice."""
        return quiet_sweeps >= self.k


class Promoter:
    """Makes heads stable: re-scored, and not below the figure of what is stable now."""

    def __init__(
        self,
        *,
        ledger: AsyncLedger,
        gate: HeldOutGate,
        policy: PromotionPolicy,
        count: Callable[[str], None],
        emit: Emit,
    ) -> None:
        self._ledger = ledger
        self._gate = gate
        self._policy = policy
        self._count = count
        self._emit = emit

    async def after_merge(self, book: Book) -> None:
        """Promote the head if its clock has run down; the clock starts again, whatever comes of it."""
        if book.head.version != book.stable.version and self._policy.due(book.quiet):
            book.quiet = 0
            await self.confirm(book, None)

    async def confirm(self, book: Book, measurement: Measurement | None) -> bool:
        """Promote the head unless it is below stable's figure or cannot be measured; whether it is stable now."""
        if book.head.version == book.stable.version:
            return True
        try:
            confirmed = await self._gate.confirmed(book, measurement)
        except BudgetExhausted:
            self._count("promotions_unaffordable")
            return False
        if confirmed:
            await self._promote(book)
        return confirmed

    async def _promote(self, book: Book) -> None:
        head, rate = book.head, book.pool.rate
        await self._ledger.promote(head.id, head.version)
        book.promoted()
        self._count("promotions")
        self._emit(
            lambda elapsed: ArtifactPromoted(elapsed=elapsed, artifact_id=head.id, version=head.version, held_out=rate)
        )

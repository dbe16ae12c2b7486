"""The merge of one artifact: its steps, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import frozen

from adescent.aggregator.buffer import Ingested
from adescent.evolvable import Evolvable
from adescent.governance import L1SerialGate
from adescent.policies.protocols import (
    AcceptancePolicy,
    Auditor,
    ConflictPolicy,
    Evaluator,
    FusionPolicy,
    PromotionPolicy,
    StalenessPolicy,
    Strategy,
    Verifier,
)
from adescent.policies.records import Measurement, SettledCard, SweepReport
from adescent.tasks import Splits
from adescent.telemetry.events import Event

__all__ = ["AsyncLedger", "Merged", "Merger"]

Emit = Callable[[Callable[[float], Event]], None]
"""Takes a maker of an event, which is called with the seconds since the run began, or not at all."""


class AsyncLedger(Protocol):
    """What a merge asks of the ledger, awaited. A call that was begun is finished, whoever is cancelled meanwhile."""

    async def head(self, artifact_id: str) -> Evolvable:
        """The newest version on dev; raises UnknownArtifact."""
        ...

    async def commit(
        self, artifact: Evolvable, base_version: int, *, message: str, decision: Mapping[str, str]
    ) -> Evolvable:
        """Compare-and-swap on dev; raises CASConflict."""
        ...

    async def promote(self, artifact_id: str, version: int) -> Evolvable:
        """Make exactly this version the one on stable."""
        ...


@frozen(eq=False)
class Merged:
    """What a merge leaves: its report, the cards that wait for the next one, and the head (None: no such artifact)."""

    report: SweepReport
    leftover: tuple[Ingested, ...] = ()
    head: Evolvable | None = None


class Merger:
    """Merges cards into artifacts; the only one that touches what is remembered of each artifact.

    At most one `merge` per artifact may be under way at a time; merges of different artifacts may overlap.
    ``async_ratio`` is how many versions the run lets a worker lag (None: no bound of its own). ``noisy`` says whether
    one artifact may score differently when measured twice; it may be set once the seed has been measured.
    """

    def __init__(
        self,
        *,
        ledger: AsyncLedger,
        evaluator: Evaluator,
        verifier: Verifier,
        auditor: Auditor,
        gate: L1SerialGate,
        strategy: Strategy,
        splits: Splits,
        staleness: StalenessPolicy,
        conflict: ConflictPolicy,
        fusion: FusionPolicy,
        acceptance: AcceptancePolicy,
        promotion: PromotionPolicy,
        count: Callable[[str], None],
        emit: Emit,
        noisy: bool = False,
        eval_repeats: int = 1,
        eval_concurrency: int = 8,
        async_ratio: int | None = None,
    ) -> None:
        self.noisy = noisy

    def open(self, head: Evolvable, measurement: Measurement, *, stable: Evolvable | None = None) -> None:
        """Begin with an artifact: its head on dev and that head's measurement on the held-out split.

        ``stable`` is the version on stable, where it is another one (a run that continues an earlier one).
        """

    async def merge(self, artifact_id: str, entries: Sequence[Ingested]) -> Merged:
        """Bring every card to its end: decide what of ``entries`` is kept, commit it, and move the promotion clock.

        Entries are taken in the order of their keys. Those in ``leftover`` have not ended and wait for the next merge.
        """
        raise NotImplementedError

    async def confirm(self, artifact_id: str, measurement: Measurement | None = None) -> bool:
        """Promote the head at the end of a run, unless it is below stable's figure; whether it is stable now.

        ``measurement`` is a fresh one of the head on the held-out split, bought here (purpose ``promotion``) if None.
        """
        raise NotImplementedError

    def history(self, artifact_id: str) -> Sequence[SettledCard]:
        """The cards of this artifact that ended last, newest last (at most 64): what proposers learn from."""
        return ()

    def held_out(self, artifact_id: str) -> float | None:
        """The head's pooled figure on the held-out split, in [0, 1], or None where none is known."""
        return None

    def acceptance_rate(self, artifact_id: str) -> tuple[float, float]:
        """Mean and standard deviation of the share of measured candidates that were kept (Beta(1, 1) prior)."""
        return (0.5, 0.0)

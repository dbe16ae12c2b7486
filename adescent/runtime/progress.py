"""What both schedules share: evidence in, merges, the history, and the reasons to end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from adescent.aggregator import EvidenceBuffer, Ingested, Merged, Merger
from adescent.budget import Account
from adescent.evolvable import EvidenceCard
from adescent.policies import Outcome, SweepReport
from adescent.runtime.control import Control
from adescent.runtime.heads import HeadCell
from adescent.runtime.result import RoundInfo
from adescent.telemetry import (
    ArtifactCommitted,
    CardIngested,
    Event,
    EventHub,
    MergeFinished,
    RoundFinished,
    WorkersRefreshed,
)

__all__ = ["Progress", "by_name"]


class Progress:
    """Brings cards to their end and decides, from what comes of them, whether the run goes on.

    ``cards_a_merge`` bounds what one merge looks at (None: all there is); the rest waits in order.
    ``patience`` is a number of rollouts in a row that came to their end without a commit, ``target`` a held-out rate;
    None means that this does not end the run.
    """

    def __init__(
        self,
        *,
        merger: Merger,
        head: HeadCell,
        account: Account,
        control: Control,
        hub: EventHub,
        count: Callable[[str], None],
        target: float | None,
        patience: int | None,
        stall: int,
        cards_a_merge: int | None,
    ) -> None:
        self.control = control
        self.buffer = EvidenceBuffer()
        self.outcomes: Counter[Outcome] = Counter()
        self.history: list[RoundInfo] = []
        self.fusion: Counter[str] = Counter()
        self._merger = merger
        self._head = head
        self._account = account
        self._hub = hub
        self.count = count
        self._target = target
        self._patience = patience
        self._stall = stall
        self._cards_a_merge = cards_a_merge
        self._sweeps: list[SweepReport] = []
        self._fruitless = 0
        self._stale_in_a_row = 0

    @property
    def held_out(self) -> float | None:
        """The head's pooled figure on the held-out split."""
        return self._merger.held_out(self._head.current.artifact.id)

    def outcomes_by_name(self) -> dict[str, int]:
        """How cards ended so far."""
        return by_name(self.outcomes.elements())

    def ingest(self, card: EvidenceCard, order: tuple[int, int]) -> None:
        """Let a card wait for the next merge of its artifact."""
        self.buffer.ingest(card, order)
        self._hub.emit(
            lambda elapsed: CardIngested(
                elapsed=elapsed,
                artifact_id=card.diff.target,
                diff_id=card.diff.id,
                task_id=card.trajectories[0].task.id,
            )
        )

    @property
    def _gate_refused(self) -> bool:
        """Whether a candidate could not be measured any more: then nothing that is found can be kept."""
        return "gate" in self._account.refused

    def without_card(self) -> None:
        """A rollout has ended and there is nothing to merge."""
        self._fruitless += 1

    async def merge(self, settled: Callable[[Ingested], None] = lambda entry: None) -> bool:
        """Merge everything that waits, artifact by artifact; whether a card came to its end.

        ``settled`` is told each that did, even if the run is cut off in the promotion after the merge.
        """
        any_ended = False
        for artifact_id in self.buffer.artifacts():
            entries = self.buffer.drain(artifact_id, self._cards_a_merge)
            merged = await self._merger.merge(artifact_id, entries)
            self.buffer.put_back(merged.leftover)
            if merged.head is not None and artifact_id == self._head.current.artifact.id:
                self._head.publish(merged.head)  # it may be somebody else's
            waiting = set(map(id, merged.leftover))
            ended = [entry for entry in entries if id(entry) not in waiting]
            any_ended = any_ended or bool(ended)
            self._note(merged)
            try:
                await self._merger.promote_due(artifact_id)
            finally:
                for entry in ended:
                    settled(entry)
        return any_ended

    async def merge_all(self) -> None:
        """At the end every bucket fires until nothing waits; a merge that ends no card would never end itself."""
        while len(self.buffer) and not self._gate_refused:
            if not await self.merge():
                break
        if self._sweeps:
            self.round_ended(len(self.history))

    def round_ended(self, index: int) -> None:
        """Enter the sweeps since the last entry as one row of the history."""
        sweeps, self._sweeps = self._sweeps, []
        info = RoundInfo.of(
            index,
            sweeps,
            held_out=self.held_out,
            rollouts=self._account.rollouts,
            calls=self._account.calls,
            elapsed=self._hub.elapsed(),
        )
        self.history.append(info)
        self._hub.emit(
            lambda elapsed: RoundFinished(
                elapsed=elapsed,
                index=index,
                held_out=info.held_out_reward,
                rollouts=info.rollouts,
                calls=info.calls,
            )
        )
        self.look_whether_to_end()

    def settle_rest(self) -> None:
        """Cards that the end of the run overtook were never measured: so they end."""
        unsettled = self.buffer.ingested - sum(self.outcomes.values())
        if unsettled:
            self.outcomes[Outcome.UNMEASURED] += unsettled

    def _note(self, merged: Merged) -> None:
        report = merged.report
        self._sweeps.append(report)
        self.outcomes.update(settled.outcome for settled in report.settled)
        self.fusion.update(report.fusion)
        self._fruitless += report.considered
        if report.version is not None:
            self._fruitless = 0
            self._hub.emit(lambda elapsed: _committed(report, elapsed))
        self._hub.emit(lambda elapsed: _merge_finished(report, elapsed))
        self._watch_for_stall(report)

    def _watch_for_stall(self, report: SweepReport) -> None:
        """When card after card is too old to be merged, workers must let go of their old snapshots."""
        if report.version is not None or report.count(Outcome.STALE) < report.considered:
            self._stale_in_a_row = 0
            return
        self._stale_in_a_row += report.considered
        if self._stale_in_a_row < self._stall:
            return
        self._stale_in_a_row = 0
        self._head.refresh()
        self.count("forced_refreshes")
        reason = f"the last {self._stall} cards were all stale"
        self._hub.emit(lambda elapsed: WorkersRefreshed(elapsed=elapsed, reason=reason))

    def look_whether_to_end(self) -> None:
        """Stop the run when there is a reason to."""
        held_out = self.held_out
        if self._target is not None and held_out is not None and held_out >= self._target:
            self.control.stop("target_reward")
        elif self._patience is not None and self._fruitless >= self._patience:
            self.control.stop("patience")
        elif self._gate_refused:
            self.control.stop("budget:calls", grace=math.inf)  # what is under way has been paid for


def _committed(report: SweepReport, elapsed: float) -> Event:
    return ArtifactCommitted(
        elapsed=elapsed,
        artifact_id=report.artifact_id,
        version=report.version or 0,
        held_out=report.held_out,
        cards=report.count(Outcome.COMMITTED),
    )


def _merge_finished(report: SweepReport, elapsed: float) -> Event:
    return MergeFinished(
        elapsed=elapsed,
        artifact_id=report.artifact_id,
        considered=report.considered,
        outcomes=by_name(settled.outcome for settled in report.settled),
    )


def by_name(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How often each outcome occurs, by its name."""
    return {outcome.value: number for outcome, number in Counter(outcomes).items()}

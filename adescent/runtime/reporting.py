"""From what a run knows to what it tells: its status while it goes on, its result at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import frozen

from adescent.policies import Commit
from adescent.runtime.heads import HeadCell
from adescent.runtime.progress import Progress
from adescent.runtime.result import EvolutionResult, Figure
from adescent.runtime.wiring import Wiring

__all__ = ["Ending", "Phase", "RunStatus", "result_of"]

Phase = Literal["starting", "running", "paused", "stopping", "ended"]


@frozen(kw_only=True)
class RunStatus:
    """Where a run stands. ``under_way`` maps the leases under way to their tasks; ``elapsed`` is seconds."""

    phase: Phase
    elapsed: float
    rollouts: int = 0
    calls: int = 0
    version: int = 0
    held_out_reward: float | None = None
    outcomes: Mapping[str, int] = {}
    under_way: Mapping[str, str] = {}


@frozen(kw_only=True)
class Ending:
    """What was found out around the search: the figures, the versions, and what the ledger says of itself."""

    seed: Figure = Figure()
    stable: Figure = Figure()
    final: Figure = Figure()
    test: Figure = Figure()
    noisy: bool = False
    resumed_from: int = 0
    stable_version: int = 0
    ledger: str = ""
    log: tuple[Commit, ...] = ()


def result_of(
    wiring: Wiring, head: HeadCell, progress: Progress, ending: Ending, under_way: tuple[str, ...]
) -> EvolutionResult:
    """Everything a run reports."""
    control, account = wiring.control, wiring.account
    artifact = head.current.artifact
    return EvolutionResult(
        artifact_id=artifact.id,
        rendered=head.current.rendered,
        state=dict(artifact.state),
        version=artifact.version,
        stable_version=ending.stable_version,
        stop_reason=control.stop_reason,
        error="" if control.broken is None else f"{type(control.broken).__name__}: {control.broken}",
        exception=control.broken,
        seed=ending.seed,
        stable=ending.stable,
        final=ending.final,
        test=ending.test,
        noisy=ending.noisy,
        resumed_from=ending.resumed_from,
        rollouts=account.rollouts,
        elapsed=wiring.hub.elapsed(),
        history=tuple(progress.history),
        outcome_counts=progress.outcomes_by_name(),
        fusion=dict(progress.fusion),
        counters=_counters(wiring),
        causes=wiring.health.causes,
        calls_by_purpose={str(purpose): calls for purpose, calls in account.by_purpose.items()},
        ledger=ending.ledger,
        log=ending.log,
        under_way=under_way,
    )


def _counters(wiring: Wiring) -> dict[str, int]:
    counters = wiring.counted()
    if wiring.hub.dropped:
        counters["events_dropped"] = wiring.hub.dropped
    return {name: number for name, number in counters.items() if number}

"""What a watcher sees: typed, frozen events. They report; nothing in a run depends on anyone reading them."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

__all__ = [
    "ArtifactCommitted",
    "ArtifactPromoted",
    "AuditFinished",
    "CardIngested",
    "Event",
    "MergeFinished",
    "RolloutFailed",
    "RoundFinished",
    "RunFinished",
    "RunStarted",
    "WorkersRefreshed",
]


@frozen(kw_only=True)
class Event:
    """Something that happened; ``elapsed`` is seconds since the run began."""

    elapsed: float


@frozen(kw_only=True)
class RunStarted(Event):
    """The seed has been measured and workers are about to start. ``resumed`` is the version continued from, or 0."""

    artifact_id: str
    schedule: str
    n_workers: int
    tasks: Mapping[str, int]
    seed_reward: float | None
    resumed: int


@frozen(kw_only=True)
class RolloutFailed(Event):
    """A worker's rollout gave no score or no proposal. ``stage`` is run, reward, propose or worker."""

    task_id: str
    stage: str
    message: str


@frozen(kw_only=True)
class CardIngested(Event):
    """A worker handed in evidence for a diff."""

    artifact_id: str
    diff_id: str
    task_id: str


@frozen(kw_only=True)
class AuditFinished(Event):
    """An audit of a candidate has ended, by the oracle or, where there is none of its own, by the gate in its place."""

    artifact_id: str
    decision: str
    reason: str


@frozen(kw_only=True)
class ArtifactCommitted(Event):
    """A new version is the head of dev. ``held_out`` is its measured rate."""

    artifact_id: str
    version: int
    held_out: float | None
    cards: int


@frozen(kw_only=True)
class ArtifactPromoted(Event):
    """A version became stable."""

    artifact_id: str
    version: int
    held_out: float | None


@frozen(kw_only=True)
class MergeFinished(Event):
    """A merge ended; ``outcomes`` counts its cards by how they ended."""

    artifact_id: str
    considered: int
    outcomes: Mapping[str, int] = field(hash=False)


@frozen(kw_only=True)
class RoundFinished(Event):
    """A round (or, in stream, a merge sweep) was entered in the history at ``index``."""

    index: int
    held_out: float | None
    rollouts: int
    calls: int


@frozen(kw_only=True)
class WorkersRefreshed(Event):
    """Workers were told to take the newest head, since nothing had been merged for a while."""

    reason: str


@frozen(kw_only=True)
class RunFinished(Event):
    """The run ended. ``under_way`` lists the leases that were cut off."""

    stop_reason: str
    error: str
    final_reward: float | None
    under_way: tuple[str, ...] = ()

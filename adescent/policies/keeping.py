"""What is kept: decisions about diffs and candidates, and the ledger that holds what they let through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from attrs import frozen

from adescent.evolvable import Diff, EvidenceCard, Evolvable, VersionVector
from adescent.policies.records import Candidate, GateEvidence, Resolution, Verdict

__all__ = [
    "AcceptancePolicy",
    "Commit",
    "ConflictPolicy",
    "FusionPolicy",
    "Ledger",
    "PromotionPolicy",
    "StalenessAction",
    "StalenessPolicy",
]


StalenessAction = Literal["accept", "rebase", "discard"]


class StalenessPolicy(Protocol):
    """What becomes of a diff whose base lies behind the head."""

    def decide(self, eta: int, alpha: int, contract_breaking: bool) -> StalenessAction:
        """``eta`` versions behind (≥ 0) where ``alpha`` are tolerated (0 for a breaking diff)."""
        ...


class ConflictPolicy(Protocol):
    """Who stays when diffs contradict each other."""

    def contested(self, cards: Sequence[EvidenceCard]) -> Sequence[EvidenceCard]:
        """The cards whose cheap score is needed to decide, after texts that can be merged have been."""
        ...

    def resolve(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Resolution:
        """Cards that do not contradict each other. ``scores``: card id → cheap score in [0, 1]."""
        ...


class FusionPolicy(Protocol):
    """Which diffs are put to the test together, and what is tried next when the union fails."""

    @property
    def tournament(self) -> bool:
        """Whether union and singles are ranked on the cheap subset first."""
        ...

    def candidates(self, cards: Sequence[EvidenceCard], scores: Mapping[str, float]) -> Sequence[Candidate]:
        """What to put before the gate, in order. ``scores``: diff id → cheap score, where one was measured."""
        ...


class AcceptancePolicy(Protocol):
    """Whether the evidence suffices to commit a candidate."""

    def decide(self, evidence: GateEvidence) -> Verdict:
        """Accept, reject, or ask for more measurements."""
        ...

    def can_still_accept(self, evidence: GateEvidence) -> bool:
        """Whether the rest of an incomplete measurement could still lead to acceptance.

        Asked of prefixes in the order of the tasks: not of every one where there are many.
        """
        ...


class PromotionPolicy(Protocol):
    """When a version on dev is confirmed often enough to be looked at for stable."""

    def due(self, quiet_sweeps: int) -> bool:
        """After ``quiet_sweeps`` decided merges of this artifact without a commit or an oracle rejection."""
        ...


@frozen
class Commit:
    """One entry of a ledger's history. ``id`` is the commit's name in git, ``tree`` that of its tree."""

    id: str
    tree: str
    artifact_id: str
    version: int
    message: str
    decision: Mapping[str, str]


class Ledger(Protocol):
    """What has been kept: every version of every artifact, on ``dev`` and, once confirmed, on ``stable``.

    Synchronous; a run calls it from one thread of its own. All methods raise LedgerError when they cannot do their job
    and UnknownArtifact for names it does not hold.
    """

    blocking: bool
    """Whether calls may wait for a disk, and so belong in a thread."""

    location: str
    """Where the repository is, or ``""`` when it is in memory."""

    def register(self, artifact: Evolvable) -> Evolvable:
        """Take in an artifact as version 1 on both branches, or a held one under another contract major as the next."""
        ...

    def head(self, artifact_id: str, branch: str = "dev") -> Evolvable:
        """The newest version on a branch."""
        ...

    def versions(self, branch: str = "dev") -> VersionVector:
        """The versions of all artifacts on a branch."""
        ...

    def snapshot(self, branch: str = "dev") -> Mapping[str, Evolvable]:
        """All artifacts of a branch at one commit."""
        ...

    def commit(
        self, artifact: Evolvable, base_version: int, *, message: str = "", decision: Mapping[str, str] | None = None
    ) -> Evolvable:
        """Compare-and-swap on dev: the artifact as its next version.

        Raises CASConflict when the head is not ``base_version`` and ContractError for another contract major.
        """
        ...

    def commit_atomic(
        self,
        artifacts: Sequence[Evolvable],
        base_versions: Mapping[str, int],
        *,
        message: str = "",
        decision: Mapping[str, str] | None = None,
    ) -> tuple[Evolvable, ...]:
        """All or nothing, in one commit."""
        ...

    def promote(self, artifact_id: str, version: int) -> Evolvable:
        """Make exactly this version the one on stable."""
        ...

    def rollback(self, artifact_id: str, version: int, *, message: str = "") -> Evolvable:
        """Commit the state of an old version as a new one; history is never rewritten."""
        ...

    def history(self, artifact_id: str) -> Sequence[Commit]:
        """The commits that changed an artifact, newest first."""
        ...

    def diff(self, artifact_id: str, old: int, new: int) -> Diff:
        """What changed between two versions."""
        ...

    def log(self, limit: int | None = None) -> Sequence[Commit]:
        """The commits on dev, newest first."""
        ...

    def close(self) -> None:
        """Leave the repository tidy. Idempotent."""
        ...

"""How far a change may reach: three levels, one definition.

L0 is frozen, L1 reaches far (one merge at a time across the run, every merge through the oracle), L2 merges freely.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

import anyio

from adescent.errors import GovernanceError
from adescent.evolvable import Evolvable

__all__ = [
    "FAST_MAX",
    "FROZEN_IDS",
    "L1SerialGate",
    "Level",
    "audit_gain",
    "classify",
    "ensure_not_frozen",
    "oracle_forced",
]

FAST_MAX = 0.30
"""Largest blast radius that still merges freely."""

FROZEN_IDS = frozenset({"oracle", "audit_budget", "merge_permissions", "safety_constraints"})
"""What decides over the run is never evolved by it: frozen by name, whatever radius is claimed."""

LEAST_TRUST = 0.25
TRUSTED = 0.75


class Level(Enum):
    """How carefully changes to an artifact are handled."""

    L0 = "frozen"
    L1 = "serial"
    L2 = "fast"


def classify(artifact: Evolvable) -> Level:
    """The level of an artifact: L0 by name, L2 up to a blast radius of `FAST_MAX`, else L1."""
    if artifact.id in FROZEN_IDS:
        return Level.L0
    return Level.L2 if artifact.blast_radius <= FAST_MAX else Level.L1


def ensure_not_frozen(artifact_id: str) -> None:
    """Raise GovernanceError when no run may register, commit or propose to this artifact."""
    if artifact_id in FROZEN_IDS:
        raise GovernanceError(artifact_id)


def audit_gain(blast_radius: float, uncertainty: float, trust: float) -> float:
    """What an oracle call is expected to be worth, Ĝ = blast radius · uncertainty / max(0.25, trust); ranks audits.

    ``blast_radius`` in [0, 1], ``uncertainty`` the standard deviation of the candidate's rate, ``trust`` in [0.25, 4].
    """
    return blast_radius * uncertainty / max(LEAST_TRUST, trust)


def oracle_forced(blast_radius: float, trust: float) -> bool:
    """Whether nothing is committed without the oracle: it reaches too far, or cheap verdicts have been wrong."""
    return blast_radius > FAST_MAX or trust < TRUSTED


class L1SerialGate:
    """Lets L2 artifacts through at once and L1 artifacts one at a time, across the whole run."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def merging(self, artifact: Evolvable) -> AsyncIterator[None]:
        """Hold the gate while ``artifact`` is merged. Raises GovernanceError for a frozen one."""
        ensure_not_frozen(artifact.id)
        if classify(artifact) is Level.L2:
            yield
            return
        async with self._lock:
            yield

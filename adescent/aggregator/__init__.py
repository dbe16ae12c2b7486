"""What is kept: cards go in, and every one comes to exactly one end."""

from __future__ import annotations

from adescent.aggregator.acceptance import BetaAcceptance, judge
from adescent.aggregator.buffer import EvidenceBuffer, Ingested
from adescent.aggregator.candidates import AsyncLedger
from adescent.aggregator.conflict import KeepBetter
from adescent.aggregator.fusion import UnionFusion
from adescent.aggregator.merge import Merged, Merger
from adescent.aggregator.promotion import ConfirmedPromotion
from adescent.aggregator.staleness import FullStaleness, GuardedStaleness, ReflectiveStaleness

__all__ = [
    "AsyncLedger",
    "BetaAcceptance",
    "ConfirmedPromotion",
    "EvidenceBuffer",
    "FullStaleness",
    "GuardedStaleness",
    "Ingested",
    "KeepBetter",
    "Merged",
    "Merger",
    "ReflectiveStaleness",
    "UnionFusion",
    "judge",
]

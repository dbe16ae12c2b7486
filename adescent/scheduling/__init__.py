"""What to try next: which tasks, which cluster, how units share them, and what the oracle is asked first."""

from __future__ import annotations

from adescent.scheduling.audit import AuditScheduler
from adescent.scheduling.clusters import ClusterArms
from adescent.scheduling.parallel import ClusterParallel, DataParallel
from adescent.scheduling.sampling import DifficultyWeighted, RoundRobin

__all__ = ["AuditScheduler", "ClusterArms", "ClusterParallel", "DataParallel", "DifficultyWeighted", "RoundRobin"]

"""Where a rollout runs: one seam, ``await executor.rollout(spec) -> Result``, and who is behind it.

Names load on first use, so that a process which needs one of them does not load what the others need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adescent.doors import door

if TYPE_CHECKING:
    from adescent.executors.context import RolloutContext as RolloutContext
    from adescent.executors.driving import collect_rollouts as collect_rollouts
    from adescent.executors.driving import map_rollouts as map_rollouts
    from adescent.executors.driving import run_rollouts as run_rollouts
    from adescent.executors.inline import InlineExecutor as InlineExecutor
    from adescent.executors.pool_records import PoolStatistics as PoolStatistics
    from adescent.executors.process import ProcessExecutor as ProcessExecutor
    from adescent.executors.thread import ThreadExecutor as ThreadExecutor

_HOMES = {
    "InlineExecutor": "inline",
    "PoolStatistics": "pool_records",
    "ProcessExecutor": "process",
    "RolloutContext": "context",
    "ThreadExecutor": "thread",
    "collect_rollouts": "driving",
    "map_rollouts": "driving",
    "run_rollouts": "driving",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__, _HOMES)

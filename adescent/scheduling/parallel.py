"""How units of work that run side by side share the tasks."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from adescent.errors import ContractError
from adescent.policies.records import Assignment
from adescent.scheduling.clusters import ClusterArms
from adescent.tasks import Score, Task

__all__ = ["ClusterParallel", "DataParallel"]


@frozen
class DataParallel:
    """Every unit has a shard of the tasks and moves on to the next shard with each turn, so that all see all tasks.

    A shard takes every k-th task, k being the number of units or of tasks, whichever is smaller.
    """

    def begin(self, tasks: Sequence[Task], n_units: int, artifact_id: str, solved_threshold: float) -> _Shards:
        """A planner for one run. ``tasks`` and ``n_units`` are at least 1."""
        count = min(n_units, len(tasks))
        return _Shards(tuple(Assignment(tuple(tasks[start::count])) for start in range(count)))


class _Shards:
    def __init__(self, shards: tuple[Assignment, ...]) -> None:
        self._shards = shards

    def assign(self, turn: int, unit: int) -> Assignment:
        return self._shards[(turn + unit) % len(self._shards)]


@frozen
class ClusterParallel:
    """Every lease works on one cluster (``task.meta["cluster"]``): the one where most can be learnt.

    Clusters are arms of an upper confidence bound, see `ClusterArms`; a lease under way counts, so that units which
    start together spread out. Tasks without a cluster form one of their own.
    """

    def begin(self, tasks: Sequence[Task], n_units: int, artifact_id: str, solved_threshold: float) -> _Clusters:
        """A planner for one run. Raises ContractError when no task says which cluster it belongs to."""
        members: dict[str, list[Task]] = {}
        for task in tasks:
            members.setdefault(task.cluster, []).append(task)
        if members.keys() == {""}:
            raise ContractError(
                "ClusterParallel draws from clusters and no task has meta['cluster']: set it, or use DataParallel()."
            )
        return _Clusters(members, artifact_id, solved_threshold)


class _Clusters:
    def __init__(self, members: dict[str, list[Task]], artifact_id: str, solved_threshold: float) -> None:
        self._artifact_id = artifact_id
        self._assignments = {name: Assignment(tuple(tasks), name) for name, tasks in members.items()}
        self._arms = ClusterArms([(name, artifact_id) for name in members], solved_threshold)

    def assign(self, turn: int, unit: int) -> Assignment:
        cluster, _ = self._arms.lease()
        return self._assignments[cluster]

    def observe(self, assignment: Assignment, score: Score | None) -> None:
        self._arms.observe((assignment.arm, self._artifact_id), score)

"""Who works on what next: leases, each one rollout of one task against one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from adescent.budget import Account
from adescent.evolvable import EvidenceCard
from adescent.policies import Assignment, Planner, TaskDraw
from adescent.runtime.heads import Snapshot
from adescent.tasks import Score, Task

__all__ = ["Lease", "LeaseSource", "Turn"]


@frozen(eq=False)
class Lease:
    """One rollout to be made. ``unit`` (0 … n_workers - 1) and ``turn`` order it; no worker task is named."""

    id: str
    turn: int
    unit: int
    task: Task
    assignment: Assignment
    snapshot: Snapshot


@frozen(eq=False)
class Turn:
    """What came of a lease: the worker's score if there is one, and its card if it had something to propose."""

    lease: Lease
    score: Score | None = None
    card: EvidenceCard | None = None


class LeaseSource:
    """Draws leases until the run's number of rollouts or its budget is used up."""

    def __init__(
        self,
        planner: Planner,
        tasks: TaskDraw,
        account: Account,
        *,
        limit: int | None,
        calls_each: int,
        name: str,
    ) -> None:
        self._planner = planner
        self._tasks = tasks
        self._account = account
        self._limit = limit
        self._calls_each = calls_each
        self.calls_of_a_gate = 0
        """Calls that are left over when leases are granted: what it costs to put a candidate before the gate."""
        self._name = name
        self._observe_plan: Callable[[Assignment, Score | None], Any] | None = getattr(planner, "observe", None)
        self.exhausted = ""
        """Why there are no more leases (``rounds`` or ``budget:…``), or ``""`` while there are."""

    def grant(self, wanted: int) -> int:
        """Take up to ``wanted`` leases from the budget; `exhausted` is set when fewer are left."""
        account = self._account
        if self._limit is not None and self._limit - account.rollouts < wanted:
            wanted = self._limit - account.rollouts
            self.exhausted = "rounds"
        granted, ran_out = account.take_leases(wanted, self._calls_each, self.calls_of_a_gate)
        if ran_out:
            self.exhausted = f"budget:{ran_out}"
        return granted

    def draw(self, turn: int, unit: int, snapshot: Snapshot) -> Lease:
        """A lease that `grant` has paid for."""
        assignment = self._planner.assign(turn, unit)
        task = self._tasks.draw(assignment, turn)
        return Lease(f"{self._name}.{turn}.{unit}", turn, unit, task, assignment, snapshot)

    def draw_round(self, turn: int, snapshots: list[Snapshot], granted: int) -> Iterator[Lease]:
        """The leases of one round in the order of their units, drawn as workers take them."""
        for unit in range(granted):
            yield self.draw(turn, unit, snapshots[unit])

    def give_back(self, undrawn: int) -> None:
        """So many of the granted leases will not be drawn."""
        self._account.return_leases(undrawn, self._calls_each)

    def observe(self, turn: Turn) -> None:
        """Tell sampler and plan how a lease went."""
        if turn.score is not None:
            self._tasks.observe(turn.lease.task, turn.score)
        if self._observe_plan is not None:
            self._observe_plan(turn.lease.assignment, turn.score)

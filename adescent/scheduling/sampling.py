"""Which of its tasks a unit tries next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from adescent.checks import is_number, shown
from adescent.errors import OptionError
from adescent.policies.records import Assignment
from adescent.scheduling.confidence import UpperConfidence
from adescent.stats import ema, learning_signal
from adescent.tasks import Score, Task

__all__ = ["DifficultyWeighted", "RoundRobin"]

_UNKNOWN = 0.5
"""Pass rate of a task before its first score: as hard to tell as can be, and so as much to learn from."""

_KEPT = 0.7
"""Share of the old pass rate in the new one: a task is seen a few times only, and the artifact moves on."""

_MOST_ASSIGNMENTS = 1024


@frozen
class RoundRobin:
    """The tasks of an assignment in turn, from its first, and again from there."""

    def begin(self, tasks: Sequence[Task], seed: int) -> _RoundRobinDraw:
        """A draw for one run; neither chance nor scores play a part in it."""
        return _RoundRobinDraw()


class _RoundRobinDraw:
    def __init__(self) -> None:
        self._next: dict[tuple[str, str, int], int] = {}

    def draw(self, assignment: Assignment, turn: int) -> Task:
        tasks = assignment.tasks
        # Not by `turn`: several units work through one assignment, and a unit comes back to it at odd intervals.
        key = (assignment.arm, tasks[0].id, len(tasks))
        at = self._next.get(key, 0)
        self._next[key] = at + 1 if at + 1 < len(tasks) else 0
        return tasks[at]

    def observe(self, task: Task, score: Score) -> None:
        """Nothing to remember."""


def _check_c(_: Any, __: Any, c: float) -> None:
    if not is_number(c) or not 0.0 <= c < math.inf:
        raise OptionError(f"DifficultyWeighted(c={shown(c)}) must be a finite number of at least 0.")


@frozen
class DifficultyWeighted:
    """Tasks that are neither always nor never solved first: highest ``4p(1-p) + c·√(ln t / n)``.

    p is the task's running mean score, n how often it was drawn (leases under way included), t the draws of all tasks.
    Untried tasks come first, in their order. A draw is linear in the number of tasks of the assignment (8 µs at 100).
    """

    c: float = field(default=0.2, validator=_check_c)

    def begin(self, tasks: Sequence[Task], seed: int) -> _DifficultyDraw:
        """A draw for one run over ``tasks``; ties are broken by their order and not by chance."""
        return _DifficultyDraw(tasks, self.c)


class _DifficultyDraw:
    def __init__(self, tasks: Sequence[Task], c: float) -> None:
        self._tasks = tasks
        self._index = {task.id: index for index, task in enumerate(tasks)}
        self._passed = [_UNKNOWN] * len(tasks)
        self._bounds = UpperConfidence(len(tasks), c, learning_signal(_UNKNOWN))
        self._members: dict[int, tuple[Assignment, list[int]]] = {}

    def draw(self, assignment: Assignment, turn: int) -> Task:
        return self._tasks[self._bounds.pick(self._indexes(assignment))]

    def observe(self, task: Task, score: Score) -> None:
        index = self._index[task.id]
        self._passed[index] = passed = ema(self._passed[index], score.value, _KEPT)
        self._bounds.judge(index, learning_signal(passed))

    def _indexes(self, assignment: Assignment) -> list[int]:
        """Plans hand out the same few assignments again and again: they are known by identity, while they are held."""
        known = self._members.get(id(assignment))
        if known is None:
            if len(self._members) >= _MOST_ASSIGNMENTS:
                self._members.clear()
            known = assignment, [self._index[task.id] for task in assignment.tasks]
            self._members[id(assignment)] = known
        return known[1]

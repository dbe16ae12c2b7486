"""Two measured artifacts side by side: only on tasks both have scores for, and only in the same environment."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from adescent.policies.records import Pool

__all__ = ["COMMON_SHARE", "EXACT", "Comparison", "compared"]

COMMON_SHARE = 0.9
"""Share of the held-out tasks that must have scores on both sides."""

EXACT = 1e-9
"""Rates closer than this are equal: sums of the same scores in another order differ by rounding."""


@frozen
class Comparison:
    """Sums and numbers of scores on the common tasks: ``mine`` of the one asked about, ``theirs`` of the other."""

    tasks: int
    mine: float
    n: int
    theirs: float
    m: int

    @property
    def gain(self) -> float:
        """Difference of the mean scores, in [-1, 1]; 0.0 exactly where they are equal but for rounding."""
        gain = self.mine / self.n - self.theirs / self.m
        return 0.0 if abs(gain) < EXACT else gain


def compared(mine: Pool, theirs: Pool, held_out: int) -> Comparison | str:
    """The two pools on their common tasks, or why they cannot be compared. ``held_out`` is how many tasks there are."""
    if mine.by_task and theirs.by_task and mine.environment != theirs.environment:
        return "it was measured in another environment than the head."
    tasks = _common(mine, theirs)
    if not tasks or len(tasks) < COMMON_SHARE * held_out:
        return f"only {len(tasks)} of {held_out} held-out tasks have a score on both sides."
    total, trials = mine.on(tasks)
    their_total, their_trials = theirs.on(tasks)
    return Comparison(len(tasks), total, trials, their_total, their_trials)


def _common(mine: Pool, theirs: Pool) -> Sequence[str]:
    return [task_id for task_id in theirs.by_task if task_id in mine.by_task]

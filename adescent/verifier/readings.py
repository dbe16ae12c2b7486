"""What a rollout's result means for a measurement: a score, a 0 the candidate has earned, or nothing at all."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from attrs import frozen

from adescent.errors import VoidScore
from adescent.policies.records import Reading
from adescent.tasks import Score, as_score
from adescent.workspec import Failure, Result

__all__ = ["Trial", "reading_of", "trial_of"]

LONGEST_REASON = 200
"""Characters of a failure's message that a reading keeps."""


@frozen
class Trial:
    """One attempt to score: a ``score``, a 0 because the candidate itself ``failed``, or ``missing`` and why."""

    score: Score | None = None
    failed: bool = False
    missing: str = ""


def trial_of(result: Result) -> Trial:
    """Judge a result.

    A candidate whose own run raised has earned its 0, and so has one that killed a worker on every attempt (whether
    its base does the same is not asked here). A scorer that failed or returned no score, a model that could not be
    reached and a broken machine say nothing about the candidate: missing, never 0.
    """
    if result.error is not None:
        if result.died_every_time or _raised_by_run(result.error):
            return Trial(failed=True)
        return Trial(missing=str(result.error)[:LONGEST_REASON])
    try:
        return Trial(as_score(result.score))
    except VoidScore as void:
        return Trial(missing=str(void)[:LONGEST_REASON])


def _raised_by_run(error: Failure) -> bool:
    return error.kind == "model" and error.stage == "run" and not error.transient


def reading_of(task_id: str, trials: Sequence[Trial]) -> Reading:
    """The trials of one task added up; the last one without a score says why there are fewer."""
    scored = [trial for trial in trials if not trial.missing]
    return Reading(
        task_id,
        total=fsum(trial.score.value for trial in scored if trial.score is not None),
        trials=len(scored),
        missing=next((trial.missing for trial in reversed(trials) if trial.missing), ""),
    )

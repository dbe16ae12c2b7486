"""What a rollout tells the proposer: its output and score, or how the workers died that had to run it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import frozen

from adescent.tasks import Score
from adescent.workspec import Result

__all__ = ["Evidence", "evidence_of"]

LAST_WORDS = 4_000
"""Characters of what was printed before a death that are told: the last ones, since they are the nearest to it."""


@frozen(eq=False)
class Evidence:
    """What a proposal is made from."""

    output: Any
    score: Score


def evidence_of(result: Result) -> Evidence | None:
    """What can be learnt from a rollout, or None where it failed and says nothing about the artifact.

    One that ended every worker it was given to is an unsolved task whose output is the causes of death and what was
    printed before them. What living rollouts print is not told: it depends on where they run, and so would proposals.
    """
    if result.score is not None:
        return Evidence(result.output, result.score)
    if not result.died_every_time:
        return None
    told = f"the worker died: {_causes(result)}"
    printed = result.log[-LAST_WORDS:].strip()
    output = f"{told}\nIt had printed:\n{printed}" if printed else told
    return Evidence(output, Score(0.0, feedback=told))


def _causes(result: Result) -> str:
    deaths = Counter(result.deaths)
    return "; ".join(cause if times == 1 else f"{cause} ({times} times)" for cause, times in deaths.items())

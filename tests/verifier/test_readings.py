from __future__ import annotations

import math
from typing import Any

import pytest

from adescent.tasks import Score
from adescent.verifier.readings import Trial, reading_of, trial_of
from adescent.workspec import Failure, Result


def failed(kind: Any, stage: Any, *, transient: bool = False, deaths: int = 0, attempt: int = 0) -> Result:
    error = Failure(kind, stage, "SomeError", "words", transient)
    return Result("lease", "task", error=error, deaths=("signal 9",) * deaths, attempt=attempt)


def test_a_score_is_kept_with_its_words() -> None:
    score = Score(0.25, "nearly")
    assert trial_of(Result("lease", "task", score=score)) == Trial(score)


@pytest.mark.parametrize(
    ("result", "earned_zero"),
    [
        (failed("model", "run"), True),
        (failed("model", "run", transient=True), False),
        (failed("caller", "run"), False),
        (failed("model", "reward"), False),
        (failed("caller", "reward"), False),
        (failed("infrastructure", "worker"), False),
        (failed("infrastructure", "worker", deaths=3, attempt=2), True),
        (failed("infrastructure", "worker", deaths=2, attempt=2), False),
        (failed("caller", "reward", deaths=1, attempt=0), False),
    ],
)
def test_only_what_the_candidate_did_counts_as_zero(result: Result, earned_zero: bool) -> None:
    trial = trial_of(result)
    assert trial.score is None
    assert trial.failed is earned_zero
    assert bool(trial.missing) is not earned_zero


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, True, "0.9", 1e308, None, -0.1])
@pytest.mark.parametrize("wrapped", [True, False])
def test_garbage_is_void_and_no_score(garbage: Any, wrapped: bool) -> None:
    trial = trial_of(Result("lease", "task", score=Score(garbage) if wrapped else garbage))
    assert trial.score is None
    assert not trial.failed
    assert "scorer returned" in trial.missing


def test_a_long_reason_is_cut() -> None:
    error = Failure("caller", "reward", "SomeError", "x" * 10_000)
    assert len(trial_of(Result("lease", "task", error=error)).missing) <= 200


def test_trials_of_one_task_add_up() -> None:
    trials = [
        Trial(Score(0.5)),
        Trial(failed=True),
        Trial(missing="scorer"),
        Trial(Score(1.0)),
        Trial(missing="network"),
    ]
    reading = reading_of("t", trials)
    assert (reading.task_id, reading.total, reading.trials) == ("t", 1.5, 3)
    assert reading.missing == "network"


def test_the_sum_does_not_depend_on_the_order_of_trials() -> None:
    values = [0.1, 0.2, 0.3]
    forth, back = (
        reading_of("t", [Trial(Score(value)) for value in order]) for order in (values, list(reversed(values)))
    )
    assert forth == back


def test_nothing_scored_is_no_score() -> None:
    reading = reading_of("t", [Trial(missing="scorer")])
    assert reading.trials == 0
    assert reading.missing == "scorer"

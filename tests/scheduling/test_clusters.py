from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.scheduling import ClusterArms
from adescent.tasks import Score

ARMS = [("a", "x"), ("b", "x"), ("c", "x")]


def by_the_formula(history: list[tuple[int, float | None]], solved: float) -> list[float]:
    """What the page on scheduling says, written down as it says it."""
    total = len(history)
    bounds = []
    for arm in range(len(ARMS)):
        value, passed = 1.0, 0.5
        tries = sum(1 for index, _ in history if index == arm)
        for index, score in history:
            if index == arm and score is not None:
                value = 0.8 * value + 0.2 * (1 - score)
                passed = 0.9 * passed + 0.1 * (score >= solved)
        if not tries:
            bounds.append(math.inf)
        else:
            bounds.append(value * (4 * passed * (1 - passed) + 0.001) + 1.4 * math.sqrt(math.log(total) / tries))
    return bounds


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.9, 1.0])), max_size=40))
def test_the_highest_bound_is_leased(scores: list[float | None]) -> None:
    arms = ClusterArms(ARMS, solved_threshold=0.9)
    history: list[tuple[int, float | None]] = []
    for score in scores:
        bounds = by_the_formula(history, 0.9)
        leased = arms.lease()
        assert bounds[ARMS.index(leased)] == pytest.approx(max(bounds))
        arms.observe(leased, None if score is None else Score(score))
        history.append((ARMS.index(leased), score))


def test_workers_that_start_together_spread_out() -> None:
    arms = ClusterArms(ARMS, solved_threshold=0.999)
    assert Counter(arms.lease() for _ in range(9)) == dict.fromkeys(ARMS, 3)


def test_an_arm_whose_leases_all_fail_is_not_drawn_for_ever() -> None:
    arms = ClusterArms(ARMS, solved_threshold=0.999)
    for _ in range(30):
        arm = arms.lease()
        arms.observe(arm, None if arm == ARMS[0] else Score(0.0))
    assert all(arms.tries(arm) >= 6 for arm in ARMS)


def test_a_solved_cluster_is_left_alone_for_one_with_something_to_learn() -> None:
    arms = ClusterArms(ARMS[:2], solved_threshold=0.999)
    for _ in range(400):
        arm = arms.lease()
        arms.observe(arm, Score(1.0 if arm == ARMS[0] else arms.tries(arm) % 2))
    assert arms.tries(ARMS[1]) > 1.3 * arms.tries(ARMS[0])


def test_one_cluster_of_two_artifacts_is_two_arms() -> None:
    arms = ClusterArms([("a", "x"), ("a", "y"), ("a", "x")], solved_threshold=0.999)
    assert {arms.lease(), arms.lease()} == {("a", "x"), ("a", "y")}

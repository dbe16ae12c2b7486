from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.evolvable import Diff, EvidenceCard, VersionVector
from adescent.policies import Candidate, Measurement, Outcome, Pool, Reading, SettledCard, SweepReport

# Scores that are sums of powers of two add without rounding, so the algebra can be tested as equality.
READINGS = st.builds(
    lambda task_id, scores: Reading(task_id, sum(scores), len(scores)),
    st.sampled_from("abcd"),
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=3),
)
MEASUREMENTS = st.lists(READINGS, max_size=4, unique_by=lambda reading: reading.task_id).map(
    lambda readings: Measurement(tuple(readings), "here")
)
A_CARD = EvidenceCard(Diff("x", {"a": "1"}), VersionVector({"x": 1}))


@given(MEASUREMENTS, MEASUREMENTS, MEASUREMENTS)
def test_pools_do_not_mind_the_order_of_what_is_added(a: Measurement, b: Measurement, c: Measurement) -> None:
    first = Pool() + a + b + c
    assert first == Pool() + c + a + b
    assert first.on("abcd") == (a.total + b.total + c.total, a.trials + b.trials + c.trials)


@given(MEASUREMENTS, MEASUREMENTS)
def test_adding_leaves_the_pool_as_it_was(a: Measurement, b: Measurement) -> None:
    pool = Pool() + a
    before = dict(pool.by_task)
    assert (pool + b).on("abcd")[1] == a.trials + b.trials
    assert dict(pool.by_task) == before


@given(MEASUREMENTS, MEASUREMENTS, st.sets(st.sampled_from("abcd")))
def test_a_pool_on_some_tasks_and_on_the_rest_is_all_of_it(a: Measurement, b: Measurement, some: set[str]) -> None:
    pool = Pool() + a + b
    (total, trials), (other_total, other_trials) = pool.on(some), pool.on(set("abcd") - some)
    assert (total + other_total, trials + other_trials) == pool.on("abcd")


@given(MEASUREMENTS)
def test_a_rate_is_the_mean_score_or_none(measurement: Measurement) -> None:
    pool = Pool() + measurement
    assert measurement.rate == pool.rate
    if measurement.trials:
        assert measurement.rate == measurement.total / measurement.trials
    else:
        assert measurement.rate is None
    assert [reading.task_id for reading in measurement.missing] == [
        reading.task_id for reading in measurement.readings if reading.trials == 0
    ]


def test_figures_of_two_environments_are_never_added() -> None:
    here = Measurement((Reading("a", 1.0, 1),), "here")
    there = Measurement((Reading("b", 0.0, 1),), "there")
    assert Pool() + here + there == Pool() + there == Pool({"b": (0.0, 1)}, "there")


def test_a_measurement_that_gave_no_score_replaces_nothing() -> None:
    pool = Pool() + Measurement((Reading("a", 1.0, 1),), "here")
    assert pool + Measurement((Reading("a", missing="scorer failed"),), "there") == pool


def test_a_candidate_of_several_cards_is_fused() -> None:
    assert Candidate(A_CARD.diff, (A_CARD, A_CARD)).fused
    assert not Candidate(A_CARD.diff, (A_CARD,)).fused


def test_a_report_counts_how_its_cards_ended() -> None:
    ends = [Outcome.COMMITTED, Outcome.COMMITTED, Outcome.TIE, Outcome.STALE]
    report = SweepReport("x", tuple(SettledCard(A_CARD, outcome) for outcome in ends), version=2)
    assert report.considered == 4
    assert report.count(Outcome.COMMITTED) == 2
    assert report.count(Outcome.TIE, Outcome.STALE) == 2
    assert sum(report.count(outcome) for outcome in Outcome) == report.considered


@pytest.mark.parametrize("name", ["committed", "below-threshold", "no-op", "cas-conflict", "unmeasured"])
def test_outcomes_are_known_by_the_words_they_are_stored_as(name: str) -> None:
    assert Outcome(name) == name

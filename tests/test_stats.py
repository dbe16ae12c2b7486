from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent import stats
from adescent.errors import ContractError

parameters = st.floats(0.05, 2000.0)
counts = st.integers(1, 60)

# Four parameters and P(X > Y): fractions are exact, the others come from arithmetic with 20 digits.
REFERENCES = [
    ((2, 1, 1, 2), 5 / 6),
    ((3, 2, 2, 3), 53 / 70),
    ((8, 4, 5, 7), 445 / 494),
    ((4, 1, 1, 1), 4 / 5),
    ((10, 2, 7, 5), 299 / 323),
    ((11, 1, 1, 11), 705431 / 705432),
    ((120, 80, 100, 100), 0.97812949999346303247),
    ((5000, 5000, 4900, 5100), 0.92137201914189570945),
    ((1.3, 2.7, 4.2, 3.3), 0.19678074017316365213),
]


@pytest.mark.parametrize(("betas", "expected"), REFERENCES)
def test_one_beta_beats_another_as_often_as_known(betas: tuple[float, float, float, float], expected: float) -> None:
    assert stats.prob_greater(*betas) == pytest.approx(expected, rel=0, abs=1e-13)
    assert stats._by_quadrature(*betas) == pytest.approx(expected, rel=0, abs=1e-13)


@given(counts, counts, counts, counts)
def test_integer_parameters_agree_with_exact_fractions(a1: int, b1: int, a2: int, b2: int) -> None:
    assert stats.prob_greater(a1, b1, a2, b2) == pytest.approx(float(exactly(a1, b1, a2, b2)), rel=0, abs=1e-12)


def exactly(a1: int, b1: int, a2: int, b2: int) -> Fraction:
    """P(X > Y) by counting: the a1-th of a1+b1-1 uniforms lies above the a2-th of another a2+b2-1."""
    n, m = a1 + b1 - 1, a2 + b2 - 1
    orders = sum(math.comb(a1 - 1 + k, k) * math.comb(n - a1 + m - k, m - k) for k in range(a2, m + 1))
    return Fraction(orders, math.comb(n + m, n))


@given(st.integers(1, 300), parameters, parameters, parameters, st.integers(0, 3))
def test_the_finite_sum_agrees_with_the_quadrature(n: int, p: float, q: float, r: float, place: int) -> None:
    betas = [p, q, r]
    betas.insert(place, n)
    a1, b1, a2, b2 = betas
    assert stats.prob_greater(a1, b1, a2, b2) == pytest.approx(stats._by_quadrature(a1, b1, a2, b2), rel=0, abs=2e-11)


@given(parameters | counts, parameters | counts, parameters | counts, parameters | counts)
def test_one_of_the_two_is_greater(a1: float, b1: float, a2: float, b2: float) -> None:
    p = stats.prob_greater(a1, b1, a2, b2)
    assert 0.0 <= p <= 1.0
    assert p + stats.prob_greater(a2, b2, a1, b1) == pytest.approx(1.0, rel=0, abs=1e-11)
    assert p == pytest.approx(stats.prob_greater(b2, a2, b1, a1), rel=0, abs=1e-11)
    assert stats.prob_greater(a1, b1, a1, b1) == pytest.approx(0.5, rel=0, abs=1e-11)


@given(parameters | counts, parameters | counts, parameters | counts, parameters | counts, st.floats(0.01, 50.0))
def test_more_successes_never_hurt(a1: float, b1: float, a2: float, b2: float, more: float) -> None:
    p = stats.prob_greater(a1, b1, a2, b2)
    assert stats.prob_greater(a1 + more, b1, a2, b2) >= p - 1e-11
    assert stats.prob_greater(a1, b1 + more, a2, b2) <= p + 1e-11


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e9, 1e12, 1e15])
def test_large_parameters_approach_the_normal_law(scale: float) -> None:
    # One standard deviation of the difference of the logits apart.
    apart = math.sqrt(8.0 / scale)
    a1, b1 = scale * math.exp(apart / 2) / 2, scale * math.exp(-apart / 2) / 2
    expected = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    assert stats.prob_greater(a1, b1, scale / 2, scale / 2) == pytest.approx(expected, abs=2 / math.sqrt(scale))


@pytest.mark.parametrize(
    ("betas", "expected"),
    [
        ((1e-6, 1e-6, 1.0, 1.0), 0.5),
        ((1e-100, 1e100, 1e-99, 1e99), 1 / 11),
        ((1e12, 1e12, 2e12, 1e12), 0.0),
        ((2e12, 1e12, 1e12, 1e12), 1.0),
        ((1, 3e12, 1, 1e12), 1 / 4),
        ((1, 1, 0.01, 1e9), 1.0),
    ],
)
def test_extreme_parameters_neither_overflow_nor_vanish(
    betas: tuple[float, float, float, float], expected: float
) -> None:
    assert stats.prob_greater(*betas) == pytest.approx(expected, rel=0, abs=1e-9)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, -math.inf, 1e-200, 1e200])
def test_a_parameter_that_is_none_is_refused_by_name(place: int, bad: float) -> None:
    betas = [1.0, 2.0, 3.0, 4.0]
    betas[place] = bad
    with pytest.raises(ContractError, match=("a1", "b1", "a2", "b2")[place]):
        stats.prob_greater(*betas)


# Four digits, as in R. G. Newcombe, "Two-sided confidence intervals for the single proportion" (1998), method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_a_rate_has_the_interval_of_wilson(successes: int, trials: int, low: float, high: float) -> None:
    interval = stats.rate_interval(successes, trials)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 5000), st.floats(0.0, 1.0), st.floats(0.5, 0.99))
def test_an_interval_holds_its_rate_and_grows_with_confidence(trials: int, rate: float, confidence: float) -> None:
    successes = min(rate * trials, trials)
    inner = stats.rate_interval(successes, trials, confidence)
    outer = stats.rate_interval(successes, trials, confidence + 0.005)
    assert 0.0 <= outer.low <= inner.low + 1e-12
    assert inner.high - 1e-12 <= outer.high <= 1.0
    if trials:
        assert inner.low <= successes / trials <= inner.high
    mirrored = stats.rate_interval(trials - successes, trials, confidence)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((inner.low, inner.high), abs=1e-9)


def test_without_trials_a_rate_may_be_anything() -> None:
    assert stats.rate_interval(0, 0) == stats.Interval(0.0, 1.0)
    assert stats.posterior_sd(0, 0) == pytest.approx(math.sqrt(1 / 12))


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_posterior_spreads_like_its_beta(successes: int, failures: int) -> None:
    a, b = Fraction(1 + successes), Fraction(1 + failures)
    variance = a * b / ((a + b) ** 2 * (a + b + 1))
    assert stats.posterior_sd(successes, successes + failures) ** 2 == pytest.approx(float(variance))


# Quantiles of Student's t as tabulated, for n - 1 degrees of freedom.
@pytest.mark.parametrize(
    ("n", "quantile", "error"), [(3, 4.30265, 0.008), (5, 2.77645, 4e-4), (8, 2.36462, 3e-5), (20, 2.09302, 1e-5)]
)
def test_paired_differences_have_the_interval_of_student(n: int, quantile: float, error: float) -> None:
    differences = [float(i) for i in range(n)]
    half = quantile * math.sqrt(sum((d - (n - 1) / 2) ** 2 for d in differences) / (n - 1) / n)
    interval = stats.paired_interval(differences)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=error)
    assert (interval.high + interval.low) / 2 == pytest.approx((n - 1) / 2)


def test_an_average_keeps_what_it_is_told_to() -> None:
    assert stats.ema(1.0, 0.0, 0.8) == pytest.approx(0.8)
    assert stats.ema(0.0, 1.0, 0.8) == pytest.approx(0.2)


def test_the_untried_come_first_and_the_bonus_shrinks_with_trials() -> None:
    assert stats.ucb_bonus(5, 0, 1.4) == math.inf
    assert stats.ucb_bonus(1, 1, 1.4) == 0.0
    assert stats.ucb_bonus(100, 4, 1.4) == pytest.approx(1.4 * math.sqrt(math.log(100) / 4))
    assert stats.ucb_bonus(100, 5, 1.4) < stats.ucb_bonus(100, 4, 1.4) < stats.ucb_bonus(101, 4, 1.4)


@given(st.floats(0.0, 1.0))
def test_most_is_learnt_where_half_succeeds(p: float) -> None:
    assert 0.0 <= stats.learning_signal(p) <= stats.learning_signal(0.5) == 1.0
    assert stats.learning_signal(0.0) == stats.learning_signal(1.0) == 0.0


BAD_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (stats.rate_interval, (3, 2)),
    (stats.rate_interval, (-1, 2)),
    (stats.rate_interval, (math.nan, 2)),
    (stats.rate_interval, (1, math.inf)),
    (stats.rate_interval, (1, 2, 0.0)),
    (stats.rate_interval, (1, 2, 1.0)),
    (stats.rate_interval, (0, 0, 2.0)),
    (stats.posterior_sd, (3, 2)),
    (stats.posterior_sd, (-0.1, 2)),
    (stats.paired_interval, ([1.0, 2.0],)),
    (stats.paired_interval, ([1.0, 2.0, math.nan],)),
    (stats.paired_interval, ([1.0, 2.0, 3.0], 95)),
    (stats.ucb_bonus, (3, 4, 1.4)),
    (stats.ucb_bonus, (3, -1, 1.4)),
]


@pytest.mark.parametrize(("function", "arguments"), BAD_CALLS)
def test_what_cannot_be_counted_is_refused(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ContractError, match=r"cannot be|at least three"):
        function(*arguments)

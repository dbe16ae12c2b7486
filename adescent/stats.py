"""Beta, UCB and interval arithmetic on the standard library alone.

Every function is pure; an argument out of range is a ``ContractError``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from statistics import NormalDist, fmean, stdev

from attrs import frozen

from adescent.errors import ContractError

__all__ = [
    "Interval",
    "ema",
    "learning_signal",
    "paired_interval",
    "posterior_sd",
    "prob_greater",
    "rate_interval",
    "ucb_bonus",
]

# Where the finite sum is used: so few terms that the first cannot underflow unless the whole sum is negligible, and
# parameters so small that the rounding of their log-Gammas stays below 1e-11.
_MOST_TERMS = 500
_LARGEST_TOTAL = 4000
_SMALLEST_PARAMETER, _LARGEST_PARAMETER = 1e-100, 1e100

# Steps in t. At 1/24 the error is about 1e-13, at 1/32 it is that of rounding.
_STEP = 1 / 32
_NEGLIGIBLE = 1e-20  # relative to a peak
_WIDTHS_APART = 40.0  # so far apart, two peaks do not overlap in double precision
_OVERFLOWS = 700.0  # about the largest argument of exp()

# The central-difference corrections of Gauss, -1/12, 11/720, -191/60480 and 2497/3628800 times the mean differences of
# order 1, 3, 5 and 7, collected by distance: what a node's neighbours 1 to 4 steps below (+) and above (-) weigh.
_NEIGHBOUR_WEIGHTS = tuple(numerator / 7257600 for numerator in (505538, -136238, 26442, -2497))


@frozen
class Interval:
    """A closed interval, ``low`` <= ``high``."""

    low: float
    high: float


def prob_greater(a1: float, b1: float, a2: float, b2: float) -> float:
    """P(X > Y) for independent X ~ Beta(a1, b1) and Y ~ Beta(a2, b2), in [0, 1], good to 1e-10 or better.

    If a parameter is an integer up to 500 (and all four together at most 4000) this is a finite sum over the smallest
    such parameter: Evan Miller, "Formulas for Bayesian A/B Testing" (2014), and its mirror images. Otherwise it is a
    trapezoid sum in logit space, whose cost does not grow with the parameters.

    Raises:
        ContractError: a parameter is not a number between 1e-100 and 1e100.
    """
    for name, value in (("a1", a1), ("b1", b1), ("a2", a2), ("b2", b2)):
        if not _SMALLEST_PARAMETER <= value <= _LARGEST_PARAMETER:
            raise ContractError(f"{name} is {value!r}: a Beta parameter must be positive and finite (1e-100 to 1e100)")
    terms = min(a1, b1, a2, b2, key=_terms)
    if _terms(terms) > _MOST_TERMS or a1 + b1 + a2 + b2 > _LARGEST_TOTAL:
        return _by_quadrature(a1, b1, a2, b2)
    # Counting failures for successes reverses the order; exchanging X and Y gives the complement.
    if terms == a1:
        return _by_finite_sum(a1, b1, a2, b2)
    if terms == b2:
        return _by_finite_sum(b2, a2, b1, a1)
    if terms == a2:
        return 1.0 - _by_finite_sum(a2, b2, a1, b1)
    return 1.0 - _by_finite_sum(b1, a1, b2, a2)


def _terms(parameter: float) -> float:
    return parameter if parameter == math.floor(parameter) else math.inf


def _by_finite_sum(a1: float, b1: float, a2: float, b2: float) -> float:
    """Sum B(a2 + i, b1 + b2) / ((b1 + i) B(1 + i, b1) B(a2, b2)) over 0 <= i < a1, an integer."""
    total = b1 + a2 + b2
    term = math.exp(math.lgamma(b1 + b2) - math.lgamma(total) + math.lgamma(a2 + b2) - math.lgamma(b2))
    p = term
    for i in range(int(a1) - 1):
        term *= (a2 + i) / (total + i) * (b1 + i) / (i + 1)
        p += term
    return min(1.0, p)


def _by_quadrature(a1: float, b1: float, a2: float, b2: float) -> float:
    """Integrate the density of X times the distribution function of Y over the logit.

    Each density is taken relative to its peak and normalised by its own sum, so no Gamma function is evaluated.
    """
    x, y = _LogitDensity(a1, b1), _LogitDensity(a2, b2)
    if abs(x.peak - y.peak) > _WIDTHS_APART * max(x.width, y.width):
        return float(x.peak > y.peak)
    below, above = list(_masses(x, y, -1)), list(_masses(x, y, 1))
    masses = [*below[:0:-1], *above]  # the narrower peak is the first node of both
    x_masses, y_masses = [mass for mass, _ in masses], [mass for _, mass in masses]
    weighted = sum(mass * integral for mass, integral in zip(x_masses, _running_integral(y_masses), strict=True))
    return min(1.0, max(0.0, weighted / (sum(x_masses) * sum(y_masses))))


class _LogitDensity:
    """The density of the logit of a Beta variable, relative to its peak."""

    __slots__ = ("_a", "_b", "_share", "_sign", "peak", "width")

    def __init__(self, a: float, b: float) -> None:
        self.peak = math.log(a) - math.log(b)
        self.width = math.sqrt(1 / a + 1 / b)
        # Mirrored so that the share of `a` is at most a half: then nothing cancels below.
        self._sign = 1.0 if a <= b else -1.0
        self._a, self._b = min(a, b), max(a, b)
        self._share = self._a / (self._a + self._b)

    def __call__(self, logit: float) -> float:
        distance = self._sign * (logit - self.peak)
        if distance > _OVERFLOWS:
            return math.exp(-self._b * distance - (self._a + self._b) * math.log(self._share))
        growth = math.log1p(self._share * math.expm1(distance))
        return math.exp(self._a * distance - (self._a + self._b) * growth)


def _masses(x: _LogitDensity, y: _LogitDensity, direction: int) -> Iterator[tuple[float, float]]:
    """Yield what X and Y weigh at nodes from the narrower peak outwards, until nothing more comes.

    The nodes are peak + width * sinh(t) for equidistant t: dense where the narrower density lives, and few steps away
    from the far end of the other.
    """
    narrow = min(x, y, key=lambda density: density.width)
    width = min(1.0, narrow.width) * direction
    last_peak = max(x.peak * direction, y.peak * direction)
    for step in count():
        t = step * _STEP
        logit = narrow.peak + width * math.sinh(t)
        stretch = math.cosh(t)
        mass = x(logit) * stretch, y(logit) * stretch
        yield mass
        if max(mass) < _NEGLIGIBLE and logit * direction > last_peak:
            return


def _running_integral(masses: Sequence[float]) -> Iterator[float]:
    """Yield the integral up to each node: a trapezoid sum with Gauss's central-difference corrections at its end.

    The corrections are those of E. T. Whittaker and G. Robinson, "The Calculus of Observations" (1924), chapter VII.
    """
    reach = len(_NEIGHBOUR_WEIGHTS)
    padding = (0.0,) * reach
    padded = (*padding, *masses, *padding)
    below = 0.0
    for node, mass in enumerate(masses, reach):
        correction = 0.0
        for distance, weight in enumerate(_NEIGHBOUR_WEIGHTS, 1):
            correction += weight * (padded[node - distance] - padded[node + distance])
        yield below + mass / 2 + correction
        below += mass


def posterior_sd(successes: float, trials: float) -> float:
    """Return the standard deviation of Beta(1 + successes, 1 + trials - successes): 0.289 without trials.

    ``successes`` may be fractional, a sum of scores in [0, 1].

    Raises:
        ContractError: not 0 <= successes <= trials.
    """
    _check_counts(successes, trials)
    mean = (1 + successes) / (2 + trials)
    return math.sqrt(mean * (1 - mean) / (3 + trials))


def rate_interval(successes: float, trials: float, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval for a rate, within [0, 1]; without trials it is all of [0, 1].

    ``successes`` may be fractional, a sum of scores in [0, 1]: the interval is then on the wide side, because such
    scores vary less than successes and failures of the same mean. E. B. Wilson, "Probable inference" (1927).

    Raises:
        ContractError: not 0 <= successes <= trials, or the confidence is not inside (0, 1).
    """
    _check_counts(successes, trials)
    z = _two_sided(confidence)
    if not trials:
        return Interval(0.0, 1.0)
    rate, spread = successes / trials, z * z / trials
    middle = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # The rate itself lies inside; rounding must not say otherwise at 0 and at 1.
    return Interval(max(0.0, min(rate, middle - half)), min(1.0, max(rate, middle + half)))


def paired_interval(differences: Iterable[float], confidence: float = 0.95) -> Interval:
    """Return Student's t interval for the mean of paired differences, say of two methods under the same seeds.

    The quantile is Fisher and Cornish's expansion (Abramowitz and Stegun, 26.7.5): at a confidence of 0.95 it is 0.8 %
    short for three differences, 0.03 % for five and 0.002 % for eight.

    Raises:
        ContractError: fewer than three differences, one that is not finite, or a confidence not inside (0, 1).
    """
    values = list(differences)
    if len(values) < 3 or not all(map(math.isfinite, values)):
        raise ContractError(f"a paired interval needs at least three differences, all of them finite; got {values!r}")
    mean = fmean(values)
    half = _student(_two_sided(confidence), len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean - half, mean + half)


def _student(z: float, freedom: int) -> float:
    """Return the quantile of Student's t at which the normal one is ``z``."""
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / float(freedom) ** order for order, term in enumerate(terms))


def ema(old: float, new: float, keep: float) -> float:
    """Return the exponential moving average after ``new``: ``keep``, in [0, 1], is the share that ``old`` retains."""
    return keep * old + (1.0 - keep) * new


def ucb_bonus(total: float, tried: float, c: float) -> float:
    """Return c * sqrt(ln total / tried), infinite for what was never tried (Auer et al., UCB1, 2002).

    ``total`` counts the trials of all arms and is at least ``tried``, those of this arm.

    Raises:
        ContractError: not 0 <= tried <= total.
    """
    _check_counts(tried, total)
    if not tried:
        return math.inf
    return c * math.sqrt(math.log(max(1.0, total)) / tried)


def learning_signal(p: float) -> float:
    """Return 4p(1 - p), how much there is to learn where the pass rate is ``p`` in [0, 1]: 1 at 0.5, 0 at 0 and 1."""
    return 4.0 * p * (1.0 - p)


def _check_counts(part: float, whole: float) -> None:
    if not 0 <= part <= whole < math.inf:
        raise ContractError(f"{part!r} of {whole!r} cannot be: both must be finite, and 0 <= the first <= the second")


def _two_sided(confidence: float) -> float:
    """Return the normal quantile that leaves out (1 - confidence) / 2 on either side."""
    if not 0.0 < confidence < 1.0:
        raise ContractError(f"a confidence of {confidence!r} cannot be: it must lie between 0 and 1")
    return -NormalDist().inv_cdf((1.0 - confidence) / 2.0)

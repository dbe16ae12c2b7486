"""Which cluster of tasks to work on next."""

from __future__ import annotations

from collections.abc import Iterable

from adescent.scheduling.confidence import UpperConfidence
from adescent.stats import ema, learning_signal
from adescent.tasks import Score

__all__ = ["Arm", "ClusterArms"]

Arm = tuple[str, str]
"""(cluster, artifact id)."""

EXPLORATION = 1.4
_FLOOR = 0.001
_KEPT_VALUE = 0.8
_KEPT_PASSED = 0.9
# Before the first score everything is left to gain, and nothing is known of how hard it is.
_UNKNOWN_VALUE = 1.0
_UNKNOWN_PASSED = 0.5


class ClusterArms:
    """Upper confidence over arms: ``value · (4p(1-p) + 0.001) + 1.4·√(ln t / n)``, untried arms first.

    value is a running mean (0.8 old, 0.2 new) of 1 - score, what is left to gain; p one (0.9, 0.1) of scores of at
    least ``solved_threshold``. n counts the leases of an arm from the moment they are handed out, t those of all arms.
    """

    def __init__(self, arms: Iterable[Arm], solved_threshold: float) -> None:
        self._arms = list(dict.fromkeys(arms))
        self._index = {arm: index for index, arm in enumerate(self._arms)}
        self._all = range(len(self._arms))
        self._solved = solved_threshold
        self._value = [_UNKNOWN_VALUE] * len(self._arms)
        self._passed = [_UNKNOWN_PASSED] * len(self._arms)
        self._bounds = UpperConfidence(len(self._arms), EXPLORATION, _gain(_UNKNOWN_VALUE, _UNKNOWN_PASSED))

    def lease(self) -> Arm:
        """The arm of the next lease, which is under way from now on."""
        return self._arms[self._bounds.pick(self._all)]

    def observe(self, arm: Arm, score: Score | None) -> None:
        """A lease has ended. Without a score it still counts as a try, and the arm is judged as before."""
        if score is None:
            return
        index = self._index[arm]
        self._value[index] = ema(self._value[index], 1.0 - score.value, _KEPT_VALUE)
        self._passed[index] = ema(self._passed[index], float(score.value >= self._solved), _KEPT_PASSED)
        self._bounds.judge(index, _gain(self._value[index], self._passed[index]))

    def tries(self, arm: Arm) -> int:
        """How many leases of an arm were handed out."""
        return self._bounds.tries(self._index[arm])


def _gain(value: float, passed: float) -> float:
    return value * (learning_signal(passed) + _FLOOR)

"""Which of several options to try next, by upper confidence bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adescent.stats import ucb_bonus

__all__ = ["UpperConfidence"]


class UpperConfidence:
    """Picks the option with the highest ``gain + c·√(ln t / n)``: n tries of it, t of all (UCB1, Auer et al. 2002).

    A try counts from the moment it is picked and whatever comes of it: options under way are not all picked again, and
    one whose tries keep failing does not stay untried. Untried options come first, ties go to the first in order.
    ``prior`` is the gain of an option that was tried and has not been judged yet.
    """

    def __init__(self, options: int, c: float, prior: float) -> None:
        self._c = c
        self._prior = prior
        self._tries = [0] * options
        self._total = 0
        # Kept ready, so that a pick costs one multiplication and one addition an option.
        self._gain = [math.inf] * options
        self._inverse_root = [0.0] * options

    def pick(self, among: Sequence[int]) -> int:
        """The best of the options ``among``, which counts as tried from now on."""
        width = ucb_bonus(max(1, self._total), 1, self._c)  # what one try would get; n tries get 1/√n of it
        gain, inverse_root = self._gain, self._inverse_root
        bounds = [gain[option] + width * inverse_root[option] for option in among]
        picked = among[bounds.index(max(bounds))]
        self._count(picked)
        return picked

    def _count(self, option: int) -> None:
        if not self._tries[option]:
            self._gain[option] = self._prior
        self._tries[option] += 1
        self._total += 1
        self._inverse_root[option] = 1.0 / math.sqrt(self._tries[option])

    def judge(self, option: int, gain: float) -> None:
        """What trying a picked option is now known to gain."""
        self._gain[option] = gain

    def tries(self, option: int) -> int:
        """How often an option was picked."""
        return self._tries[option]

"""The figures a run reports, bought outside the search: the seed's, the final one, and the sealed test's."""

from __future__ import annotations

from adescent.budget import Account
from adescent.evolvable import Evolvable
from adescent.policies import Evaluator, Measurement
from adescent.runtime.result import Figure
from adescent.stats import rate_interval
from adescent.tasks import Splits

__all__ = ["Measuring", "figure_of", "set_aside_for_figures"]

NOISE_PROBE = 8
"""Held-out tasks on which the seed is run and scored a second time to see whether the same artifact scores alike."""


def figure_of(total: float, trials: int) -> Figure:
    """A mean with its 95 % interval."""
    return Figure(total / trials if trials else None, rate_interval(total, trials), trials)


def set_aside_for_figures(account: Account, splits: Splits, *, repeats: int, noisy: bool | None) -> None:
    """Keep the calls for every figure a run must be able to report. Raises ContractError when there are not enough."""
    account.set_aside("seed", len(splits.held_out) * repeats)
    if noisy is None:
        account.set_aside("noise", len(splits.held_out[:NOISE_PROBE]))
    account.set_aside("final", len(splits.held_out) * repeats)
    account.set_aside("test", len(splits.test) * repeats)


class Measuring:
    """Buys them out of what `set_aside_for_figures` has kept.

    ``noisy`` is None where nobody said whether one artifact may score differently when measured twice.
    """

    def __init__(
        self, evaluator: Evaluator, splits: Splits, account: Account, *, repeats: int, noisy: bool | None
    ) -> None:
        self._evaluator = evaluator
        self._splits = splits
        self._account = account
        self._repeats = range(repeats)
        self._noisy = noisy

    async def seed(self, artifact: Evolvable) -> tuple[Measurement, bool]:
        """The starting artifact on the held-out split, and whether scores are noisy. Raises BudgetExhausted."""
        first = await self._evaluator.measure(
            artifact, self._splits.held_out, split="held_out", purpose="seed", repeats=self._repeats
        )
        self._account.release("seed")
        if self._noisy is not None:
            return first, self._noisy
        probed = self._splits.held_out[:NOISE_PROBE]
        again = await self._evaluator.measure(artifact, probed, split="held_out", purpose="noise", fresh=True)
        self._account.release("noise")
        return first, _differ(first, again)

    async def final(self, artifact: Evolvable) -> Measurement:
        """The head on the set that selected it, past the cache. Raises BudgetExhausted."""
        return await self._evaluator.measure(
            artifact, self._splits.held_out, split="held_out", purpose="final", repeats=self._repeats, fresh=True
        )

    async def test(self, artifact: Evolvable) -> Figure:
        """The head on the sealed split, which nothing has looked at. Raises BudgetExhausted."""
        if not self._splits.test:
            return Figure()
        measured = await self._evaluator.measure(
            artifact, self._splits.test, split="test", purpose="test", repeats=self._repeats
        )
        return figure_of(measured.total, measured.trials)


def _differ(first: Measurement, again: Measurement) -> bool:
    before = {reading.task_id: reading for reading in first.readings}
    return any(
        reading.trials and before[reading.task_id].trials and reading.total != before[reading.task_id].total
        for reading in again.readings
    )

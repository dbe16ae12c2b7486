"""Three verdicts of growing cost: a cheap measurement, an estimate that says how sure it is, ground truth."""

from __future__ import annotations

import random

from adescent.evolvable import Evolvable
from adescent.policies.measuring import VerifierServices
from adescent.policies.records import Estimate, Measurement
from adescent.stats import posterior_sd
from adescent.tasks import Task

__all__ = ["LayeredVerifier"]


class LayeredVerifier:
    """The `Verifier` of a run.

    The cheap subset comes out of the **train** split, is drawn once and stays: ranking on tasks of the gate would
    select on the data that decides. ``has_oracle`` says whether there is a scorer independent of the reward. Without
    one the oracle would be the reward on the held-out split, which is what the gate decides by: audits take its word.
    """

    def __init__(self, services: VerifierServices) -> None:
        self._evaluator = services.evaluator
        self._truth = services.oracle or services.evaluator
        self.has_oracle = services.oracle is not None
        self._held_out = services.splits.held_out
        self.cheap = _cheap_subset(services.splits.train, services.cheap_tasks, services.seed)

    async def rule(self, artifact: Evolvable) -> Measurement:
        """On the cheap subset. Raises BudgetExhausted."""
        return await self._evaluator.measure(artifact, self.cheap, split="train", purpose="rule")

    async def learned(self, artifact: Evolvable) -> Estimate:
        """Mean and standard deviation of the Beta posterior (uniform prior) over the cheap subset."""
        measured = await self.rule(artifact)
        mean = (1.0 + measured.total) / (2.0 + measured.trials)
        return Estimate(mean, posterior_sd(measured.total, measured.trials))

    async def oracle(self, artifact: Evolvable) -> Measurement:
        """On the full held-out split. Raises BudgetExhausted."""
        return await self._truth.measure(artifact, self._held_out, split="held_out", purpose="audit")

    def oracle_cost(self, artifact: Evolvable) -> int:
        """How many task scorings an oracle call would have to buy."""
        return self._truth.unanswered(artifact, self._held_out, split="held_out")


def _cheap_subset(train: tuple[Task, ...], wanted: int, seed: int) -> tuple[Task, ...]:
    drawn = random.Random(f"{seed}:cheap").sample(range(len(train)), min(wanted, len(train)))
    return tuple(train[index] for index in sorted(drawn))

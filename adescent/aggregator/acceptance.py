"""Step 5: whether what was measured suffices to commit a candidate."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from attrs import evolve, field, frozen

from adescent.errors import ContractError, OptionError
from adescent.policies.comparison import EXACT, Comparison, compared
from adescent.policies.keeping import AcceptancePolicy
from adescent.policies.records import GateEvidence, Measurement, Outcome, Pool, Verdict
from adescent.stats import prob_greater

__all__ = ["BetaAcceptance", "judge"]

LEAST_DELTA = 0.01
"""Annealing stops here: a test at δ = 0 would accept nothing."""

More = Callable[[int], Awaitable[tuple[Measurement, Measurement]]]
"""Measures incumbent and candidate so many times more, afresh."""


async def judge(policy: AcceptancePolicy, evidence: GateEvidence, more: More) -> tuple[Verdict, GateEvidence]:
    """Ask the policy, and measure more for as long as it asks for more; its last word and what it was based on."""
    verdict = _decided(policy, evidence)
    while verdict.decision == "measure":
        incumbent, candidate = await more(verdict.repeats)
        if not candidate.trials:  # asking again would never end
            return _refused(Outcome.UNMEASURED, "measured once more, it had no score on any task."), evidence
        evidence = evolve(evidence, incumbent=evidence.incumbent + incumbent, fresh=evidence.fresh + candidate)
        verdict = _decided(policy, evidence)
    return verdict, evidence


def _decided(policy: AcceptancePolicy, evidence: GateEvidence) -> Verdict:
    verdict = policy.decide(evidence)
    if not isinstance(verdict, Verdict):
        raise ContractError(
            f"{type(policy).__name__}.decide returned a {type(verdict).__name__}; it must return a Verdict, at once."
        )
    if verdict.decision not in ("accept", "reject", "measure"):
        raise ContractError(
            f"{type(policy).__name__}.decide said {verdict.decision!r}; a verdict is 'accept', 'reject' or 'measure'."
        )
    return verdict


def _probability(instance: object, attribute: object, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < 1.0:
        raise OptionError(f"BetaAcceptance(delta={value!r}): δ is a probability between 0 and 1.")


def _count(instance: object, attribute: object, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise OptionError(f"BetaAcceptance(confirm_repeats={value!r}): a number of measurements, at least 0.")


def _half_life(instance: object, attribute: object, value: float | None) -> None:
    if value is not None and (isinstance(value, bool) or not value > 0):
        raise OptionError(f"BetaAcceptance(anneal_half_life={value!r}): a number of candidates above 0, or None.")


@frozen
class BetaAcceptance:
    """Accepts where P(candidate > incumbent) is high, for Beta(1, 1) plus the counts of each side.

    Without noise one measurement decides, and any net gain on the held-out split is taken (p > 0.5). With noise the
    first measurement only screens; ``confirm_repeats`` fresh ones of both sides decide, at p > 1 - δ. 0 repeats decide
    by the first measurement, which prefers candidates that were lucky in it. ``stepwise`` buys the repeats one by one
    and refuses a candidate as soon as it falls behind. ``anneal_half_life`` halves δ every so many measured candidates.
    """

    delta: float = field(default=0.2, validator=_probability)
    confirm_repeats: int = field(default=2, validator=_count)
    anneal_half_life: float | None = field(default=None, validator=_half_life)
    stepwise: bool = False

    def decide(self, evidence: GateEvidence) -> Verdict:
        """Equal rates are a tie, before any p; a lower rate is never accepted."""
        if not evidence.first.complete:
            return _refused(Outcome.BELOW_THRESHOLD, "stopped early: it could no longer reach the head's rate.")
        seen = evidence.fresh if evidence.fresh.by_task else Pool() + evidence.first
        sides = compared(seen, evidence.incumbent, evidence.held_out)
        if isinstance(sides, str):
            return _refused(Outcome.UNMEASURED, sides)
        if sides.gain <= 0:
            return _refused(Outcome.BELOW_THRESHOLD if sides.gain else Outcome.TIE, _figures(sides))
        if not evidence.noisy:
            return self._by_probability(sides, 0.5)
        if repeats := self._missing_repeats(evidence):
            return Verdict("measure", repeats=repeats)
        return self._by_probability(sides, 1 - self.delta_after(evidence.candidates))

    def can_still_accept(self, evidence: GateEvidence) -> bool:
        """False once a candidate that scores 1 on every task to come would still stay below the incumbent's rate."""
        incumbent = evidence.incumbent
        compared_so_far = [r for r in evidence.first.readings if r.task_id in incumbent.by_task]
        scored = [reading for reading in compared_so_far if reading.trials]
        theirs, m = incumbent.on(r.task_id for r in compared_so_far if not r.trials)  # no score: out of the comparison
        most = max((reading.trials for reading in scored), default=1)
        ahead = most * (len(incumbent.by_task) - len(compared_so_far))
        n = sum(reading.trials for reading in scored) + ahead
        best = sum(reading.total for reading in scored) + ahead
        if incumbent.trials == m or n == 0:
            return True
        bar: float = (incumbent.total - theirs) / (incumbent.trials - m)
        return best / n >= bar - EXACT

    def delta_after(self, candidates: int) -> float:
        """δ after so many candidates of an artifact have been measured: max(0.01, δ · 0.5^(k/h))."""
        if self.anneal_half_life is None:
            return self.delta
        return max(LEAST_DELTA, self.delta * math.pow(0.5, candidates / self.anneal_half_life))

    def _missing_repeats(self, evidence: GateEvidence) -> int:
        """How many measurements to ask for now."""
        trials = max((reading.trials for reading in evidence.first.readings), default=1)
        done = max((trials for _, trials in evidence.fresh.by_task.values()), default=0) // max(1, trials)
        missing = self.confirm_repeats - done
        if self.stepwise:
            return min(1, max(0, missing))
        return 0 if done else missing

    def _by_probability(self, sides: Comparison, threshold: float) -> Verdict:
        p = prob_greater(1 + sides.mine, 1 + sides.n - sides.mine, 1 + sides.theirs, 1 + sides.m - sides.theirs)
        reason = f"{_figures(sides)}, p = {p:.3f}"
        if p > threshold:
            return Verdict("accept", p=p, reason=reason)
        return Verdict("reject", Outcome.BELOW_THRESHOLD, p=p, reason=f"{reason}, more than {threshold:.2f} is needed.")


def _refused(outcome: Outcome, reason: str) -> Verdict:
    return Verdict("reject", outcome, reason=reason)


def _figures(sides: Comparison) -> str:
    return f"{sides.mine / sides.n:.4f} against the head's {sides.theirs / sides.m:.4f} on {sides.tasks} held-out tasks"

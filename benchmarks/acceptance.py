"""What an acceptance policy makes of a noisy scorer: does it keep gains, refuse the rest, and know how good it is?

Held-out scores are coin flips at an artifact's true rate, 0.6 at first. 200 candidates come one after the other:

* ``no-op``: none changes the true rate, so every commit is a false one, and the incumbent's figure should stay at 0.6;
* ``mixture``: 10 % of the candidates gain 0.08, 27 % lose 0.08, the others change nothing.

The policies are the library's own, asked through the loop the gate asks them through. A row shows, as means over its
runs: commits without a gain, by how much the incumbent's figure is too high (bias), the true rate reached and the
evaluations spent after all candidates, and the true rate reached with half and with all of the evaluations that the
default spends, however many candidates that takes.

    python benchmarks/acceptance.py            300 runs a row, about three minutes
    python benchmarks/acceptance.py --smoke    20 runs a row
    python benchmarks/acceptance.py --json     one JSON object on stdout
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import fmean, stdev

import anyio
from anyio.lowlevel import checkpoint
from attrs import asdict, evolve, frozen

from adescent.aggregator import BetaAcceptance, judge
from adescent.policies import AcceptancePolicy, GateEvidence, Measurement, Pool, Reading

SEED_RATE = 0.6
STEP = 0.08
GAINING, LOSING = 0.10, 0.27

DEFAULT = "screen and confirm (default)"
POLICIES: dict[str, AcceptancePolicy] = {
    DEFAULT: BetaAcceptance(),
    "one look, δ 0.5 annealed": BetaAcceptance(delta=0.5, confirm_repeats=0, anneal_half_life=50),
    "confirm 3, δ 0.3": BetaAcceptance(delta=0.3, confirm_repeats=3),
    "stepwise 2": BetaAcceptance(stepwise=True),
    "stepwise 3, δ 0.3": BetaAcceptance(delta=0.3, confirm_repeats=3, stepwise=True),
}


def no_op(rng: random.Random) -> float:
    return 0.0


def mixture(rng: random.Random) -> float:
    draw = rng.random()
    return STEP if draw < GAINING else -STEP if draw < GAINING + LOSING else 0.0


EDITS: dict[str, Callable[[random.Random], float]] = {"no-op": no_op, "mixture": mixture}


# One run --------------------------------------------------------------------------------------------------------------


@cache
def reading(task: int, total: int, trials: int) -> Reading:
    return Reading(f"h{task}", float(total), trials)


class Simulation:
    """One incumbent, candidate after candidate."""

    def __init__(
        self, policy: AcceptancePolicy, effect: Callable[[random.Random], float], tasks: int, seed: str
    ) -> None:
        self._policy = policy
        self._effect = effect
        self._tasks = tasks
        self._rng = random.Random(seed)
        self.evaluations = 0
        self.candidates = 0
        self.false_commits = 0
        self.rate = SEED_RATE
        self.pool = Pool() + self._measured(SEED_RATE, 1)

    async def next_candidate(self) -> None:
        """Measure and judge one more candidate; where it is accepted, it is the incumbent from now on."""
        effect = self._effect(self._rng)
        rate = min(1.0, max(0.0, self.rate + effect))

        async def more(repeats: int) -> tuple[Measurement, Measurement]:
            incumbent = self._measured(self.rate, repeats)
            self.pool += incumbent
            return incumbent, self._measured(rate, repeats)

        verdict, evidence = await judge(self._policy, self._first_look(rate), more)
        self.candidates += 1
        if verdict.decision == "accept":
            self.false_commits += effect <= 0
            self.rate = rate
            self.pool = evidence.fresh if evidence.fresh.by_task else Pool() + evidence.first

    @property
    def bias(self) -> float:
        """By how much the incumbent's figure lies above its true rate."""
        figure = self.pool.rate
        assert figure is not None
        return figure - self.rate

    def _first_look(self, rate: float) -> GateEvidence:
        """The first measurement, ended where the gate would end it: a candidate that is given up stays given up."""
        whole = self._measured(rate, 1)
        seen = GateEvidence(self.pool, whole, noisy=True, candidates=self.candidates, held_out=self._tasks)
        low, high = 1, self._tasks
        while low < high:
            middle = (low + high) // 2
            prefix = Measurement(whole.readings[:middle], complete=False)
            if self._policy.can_still_accept(evolve(seen, first=prefix)):
                low = middle + 1
            else:
                high = middle
        if low == self._tasks:
            return seen
        self.evaluations -= self._tasks - low
        return evolve(seen, first=Measurement(whole.readings[:low], complete=False))

    def _measured(self, rate: float, repeats: int) -> Measurement:
        draw, trials = self._rng.random, range(repeats)
        totals = [sum(draw() < rate for _ in trials) for _ in range(self._tasks)]
        self.evaluations += repeats * self._tasks
        return Measurement(tuple(reading(task, total, repeats) for task, total in enumerate(totals)))


@frozen
class Run:
    """Where one run stood after all candidates, and the true rate it had reached at each of the budgets."""

    false_commits: int
    bias: float
    rate: float
    evaluations: int
    at_budgets: tuple[float, ...]


async def simulate(simulation: Simulation, candidates: int, budgets: Sequence[float]) -> Run:
    at_budgets: list[float] = []
    ended: Run | None = None
    while ended is None or len(at_budgets) < len(budgets):
        before = simulation.rate
        await simulation.next_candidate()
        while len(at_budgets) < len(budgets) and simulation.evaluations > budgets[len(at_budgets)]:
            at_budgets.append(before)  # what the last candidate brought was no longer paid for
        if simulation.candidates == candidates:
            s = simulation
            ended = Run(s.false_commits, s.bias, s.rate, s.evaluations, ())
    return evolve(ended, at_budgets=tuple(at_budgets))


# Many -----------------------------------------------------------------------------------------------------------------


@frozen
class Row:
    """Means over the runs of one policy in one setting. ``*_error`` are standard errors."""

    policy: str
    edits: str
    held_out: int
    runs: int
    false_commits: float
    bias: float
    bias_error: float
    rate: float
    rate_error: float
    evaluations: float
    rate_at_half_budget: float
    rate_at_budget: float


async def measure(policy: str, edits: str, tasks: int, runs: int, candidates: int, budget: float | None) -> Row:
    """One row. Without a ``budget`` the policy's own spending is the budget."""
    ended = []
    for number in range(runs):
        budgets = () if budget is None else (budget / 2, budget)
        simulation = Simulation(POLICIES[policy], EDITS[edits], tasks, f"{policy} {edits} {tasks} {number}")
        ended.append(await simulate(simulation, candidates, budgets))
        await checkpoint()
    if budget is None:
        spent = fmean(run.evaluations for run in ended)
        return await measure(policy, edits, tasks, runs, candidates, spent)
    half, whole = zip(*(run.at_budgets for run in ended), strict=True)
    return Row(
        policy,
        edits,
        tasks,
        runs,
        false_commits=fmean(run.false_commits for run in ended),
        bias=fmean(run.bias for run in ended),
        bias_error=standard_error([run.bias for run in ended]),
        rate=fmean(run.rate for run in ended),
        rate_error=standard_error([run.rate for run in ended]),
        evaluations=fmean(run.evaluations for run in ended),
        rate_at_half_budget=fmean(half),
        rate_at_budget=fmean(whole),
    )


def standard_error(figures: Sequence[float]) -> float:
    return float(stdev(figures)) / len(figures) ** 0.5 if len(figures) > 1 else 0.0


async def measure_all(runs: int, candidates: int, show: Callable[[Row], None]) -> list[Row]:
    rows: list[Row] = []
    for tasks in (10, 40):
        for edits in EDITS:
            budget: float | None = None
            for policy in POLICIES:
                row = await measure(policy, edits, tasks, runs, candidates, budget)
                budget = budget or row.evaluations  # the default comes first
                rows.append(row)
                show(row)
    return rows


HEADINGS = ("policy", "edits", "tasks", "false commits", "bias", "true rate", "evaluations", "at ½ budget", "at budget")
WIDTHS = (30, 8, 5, 13, 16, 15, 11, 11, 9)


def line(cells: Sequence[str]) -> str:
    return "  ".join(
        cell.ljust(width) if n < 2 else cell.rjust(width)
        for n, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )


def cells(row: Row) -> Iterator[str]:
    yield from (row.policy, row.edits, str(row.held_out), f"{row.false_commits:.2f}")
    yield f"{row.bias:+.3f} ± {row.bias_error:.3f}"
    yield f"{row.rate:.3f} ± {row.rate_error:.3f}"
    yield from (f"{row.evaluations:.0f}", f"{row.rate_at_half_budget:.3f}", f"{row.rate_at_budget:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="simulated runs a row (300)")
    parser.add_argument("--candidates", type=int, default=200, help="candidates a run (200)")
    parser.add_argument("--smoke", action="store_true", help="20 runs a row")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of a table")
    options = parser.parse_args()
    runs = 20 if options.smoke else options.runs
    if not options.json:
        print(line(HEADINGS))

    def show(row: Row) -> None:
        print(line(tuple(cells(row))), file=sys.stderr if options.json else sys.stdout, flush=True)

    rows = anyio.run(measure_all, runs, options.candidates, show)
    if options.json:
        print(json.dumps({"runs": runs, "candidates": options.candidates, "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()

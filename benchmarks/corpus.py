"""Real texts: how well do evolved rules tell ten languages apart, and what do eight workers save over one?

Utterances are routed to their language by keyword rules. About 200 of them are held out, which decides what is kept,
and as many are sealed and scored once at the end. A rollout waits 5 ms, where a model would be asked. Per seed, one and
eight workers get the same tasks, split, number of rollouts and evaluation concurrency (64 for both, so that what is
compared are workers and not how many evaluations a gate may run at once).

A row gives means over the seeds beside a guess, which is the most frequent language every time; ``seconds`` is the
median of a run's whole wall time. Below, eight workers against one: the mean difference seed by seed with its 95 %
interval, and the ratio of the medians of the time.

    python benchmarks/corpus.py                20 seeds, about eight minutes
    python benchmarks/corpus.py --smoke        3 seeds and few rollouts: does it run?
    python benchmarks/corpus.py --json         one JSON object on stdout
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

import anyio
from attrs import asdict, frozen

from adescent.budget import Budget
from adescent.config import Schedule
from adescent.domains.keywords import majority_rate
from adescent.domains.utterances import utterance_domain
from adescent.evolution import async_evolve
from adescent.orchestrator import options_for
from adescent.stats import Interval, paired_interval
from adescent.tasks import make_splits

SCHEDULES: tuple[Schedule, ...] = ("rounds", "stream")
ONE, MANY = 1, 8
EVAL_CONCURRENCY = 64
TEST_FRAC = 0.4


@frozen(kw_only=True)
class Run:
    """One run. Rewards are accuracies in [0, 1]; ``guess`` is that of the most frequent language on the same tasks."""

    seed: int
    workers: int
    guess_held_out: float
    guess_test: float
    start: float
    held_out: float
    test: float
    commits: int
    rollouts: int
    calls: int
    seconds: float


@frozen(kw_only=True)
class Contrast:
    """Eight workers against one: differences of accuracy, and how many times faster."""

    schedule: str
    held_out: float
    held_out_interval: Interval
    test: float
    test_interval: Interval
    faster: float


async def one_run(schedule: Schedule, workers: int, seed: int, rollouts: int, delay: float) -> Run:
    domain = utterance_domain(seed=seed, delay=delay)
    splits = make_splits(domain.tasks, test_frac=TEST_FRAC, seed=seed)
    options: dict[str, Any] = {
        "schedule": schedule,
        "n_workers": workers,
        "seed": seed,
        "budget": Budget(rollouts=rollouts),
        "test_frac": TEST_FRAC,
        "eval_concurrency": EVAL_CONCURRENCY,
        "noise": "no",
    }
    found = await async_evolve(domain.tasks, domain.reward, **options_for(domain, options))
    assert not found.error, found.error
    return Run(
        seed=seed,
        workers=workers,
        guess_held_out=majority_rate(splits.held_out),
        guess_test=majority_rate(splits.test),
        start=found.seed_reward or 0.0,
        held_out=found.final_reward or 0.0,
        test=found.test_reward or 0.0,
        commits=found.version - 1,
        rollouts=found.rollouts,
        calls=found.calls,
        seconds=found.elapsed,
    )


def contrast(schedule: str, one: Sequence[Run], many: Sequence[Run]) -> Contrast:
    held_out = [ours.held_out - theirs.held_out for ours, theirs in zip(many, one, strict=True)]
    test = [ours.test - theirs.test for ours, theirs in zip(many, one, strict=True)]
    return Contrast(
        schedule=schedule,
        held_out=fmean(held_out),
        held_out_interval=paired_interval(held_out),
        test=fmean(test),
        test_interval=paired_interval(test),
        faster=median(run.seconds for run in one) / median(run.seconds for run in many),
    )


COLUMNS = {
    "schedule": 8,
    "workers": 7,
    "guess": 6,
    "for test": 8,
    "start": 6,
    "held-out": 8,
    "test": 6,
    "commits": 7,
    "rollouts": 8,
    "calls": 7,
    "seconds": 7,
}
"""Headings and widths."""


def line(cells: Sequence[str]) -> str:
    return "  ".join(
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, COLUMNS.values(), strict=True))
    )


def cells(schedule: str, runs: Sequence[Run]) -> Sequence[str]:
    def mean(name: str) -> float:
        return fmean(getattr(run, name) for run in runs)

    return (
        schedule,
        str(runs[0].workers),
        f"{mean('guess_held_out'):.3f}",
        f"{mean('guess_test'):.3f}",
        f"{mean('start'):.3f}",
        f"{mean('held_out'):.3f}",
        f"{mean('test'):.3f}",
        f"{mean('commits'):.1f}",
        f"{mean('rollouts'):.0f}",
        f"{mean('calls'):.0f}",
        f"{median(run.seconds for run in runs):.2f}",
    )


def points(difference: float, interval: Interval) -> str:
    return f"{100 * difference:+.1f} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}] points"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rollouts", type=int, default=1200)
    parser.add_argument("--delay", type=float, default=0.005, help="seconds a rollout waits")
    parser.add_argument("--smoke", action="store_true", help="3 seeds, 160 rollouts that do not wait")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    seeds, rollouts, delay = options.seeds, options.rollouts, options.delay
    if options.smoke:
        seeds, rollouts, delay = 3, 160, 0.0
    say = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    say(f"{seeds} seeds, {rollouts} rollouts of {1000 * delay:g} ms, evaluation concurrency {EVAL_CONCURRENCY}")
    say(line(tuple(COLUMNS)))
    runs: dict[str, list[Run]] = {}
    contrasts = []
    for schedule in SCHEDULES:
        one, many = (
            [anyio.run(one_run, schedule, workers, seed, rollouts, delay) for seed in range(seeds)]
            for workers in (ONE, MANY)
        )
        say(line(cells(schedule, one)))
        say(line(cells(schedule, many)))
        runs[schedule] = [*one, *many]
        contrasts.append(contrast(schedule, one, many))
    for found in contrasts:
        held_out = points(found.held_out, found.held_out_interval)
        test = points(found.test, found.test_interval)
        say(f"{found.schedule}, {MANY} against {ONE}: {found.faster:.1f}× faster, held-out {held_out}, test {test}")
    if options.json:
        told = {schedule: [asdict(run) for run in found] for schedule, found in runs.items()}
        print(json.dumps({"runs": told, "contrasts": [asdict(found) for found in contrasts]}))


if __name__ == "__main__":
    main()

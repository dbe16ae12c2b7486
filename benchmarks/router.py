"""Does merging pay? Workers that merge against forks that do not and against one worker, for the same calls.

The reference domain: six clusters of texts, each with keywords of its own, a proposer that is wrong one time in five.
``plain`` has no more to it; in ``conflict`` half of a cluster's keywords mean another label next door, so that no
artifact can be right everywhere. Per seed, four arms get the same tasks, the same split and the same budget of calls:

* ``merge``: six workers and one aggregator,
* ``fork, own cluster``: six copies, each of which sees one cluster; the one that does best on the held-out split,
* ``fork, all clusters``: six copies that see everything; again the best of them,
* ``serial``: one worker that sees everything.

Every arm is measured on the whole held-out split before and after; six copies are measured six times, out of the same
budget (``fixed`` says how many calls that takes of it). A row gives the held-out reward as mean over the seeds, the
median, and how far merge is ahead: the mean of the differences seed by seed with its 95 % interval.

    python benchmarks/router.py                20 seeds, about three minutes
    python benchmarks/router.py --smoke        3 seeds and a small budget: does it run?
    python benchmarks/router.py --json         one JSON object on stdout
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any, Literal

import anyio
from attrs import asdict, frozen

from adescent.budget import Budget
from adescent.config import Schedule
from adescent.domains import Domain, router_domain
from adescent.evolution import async_evolve
from adescent.orchestrator import async_run_fork_baseline, options_for
from adescent.runtime.result import EvolutionResult
from adescent.stats import paired_interval

WORKERS = 6
SCHEDULES: tuple[Schedule, ...] = ("rounds", "stream")
VARIANTS = {"plain": 0.0, "conflict": 0.5}
MERGE = "merge"


@frozen
class Run:
    """What one arm reached with one seed."""

    reward: float
    start: float
    rollouts: int
    calls: int
    fixed: int


@frozen(kw_only=True)
class Row:
    """One arm over all seeds. ``ahead`` is by how much merge is ahead of it, with its 95 % interval."""

    variant: str
    schedule: str
    arm: str
    mean: float
    median: float
    start: float
    rollouts: float
    calls: float
    fixed: float
    ahead: float
    low: float
    high: float
    rewards: tuple[float, ...]


async def together(workers: int, domain: Domain, options: dict[str, Any]) -> Run:
    """One artifact, whatever the number of workers."""
    found = await async_evolve(domain.tasks, domain.reward, **options_for(domain, {**options, "n_workers": workers}))
    assert not found.error, found.error
    return Run(found.final_reward or 0.0, found.seed_reward or 0.0, found.rollouts, found.calls, fixed_calls(found))


async def apart(see: Literal["cluster", "all"], domain: Domain, options: dict[str, Any]) -> Run:
    """A copy for each worker, and the best of them."""
    found = await async_run_fork_baseline(domain, see=see, **{**options, "n_workers": WORKERS})
    assert not found.error, found.error
    fixed = sum(map(fixed_calls, found.forks))
    return Run(found.held_out_reward or 0.0, found.best.seed_reward or 0.0, found.rollouts, found.calls, fixed)


def fixed_calls(result: EvolutionResult) -> int:
    return result.seed.trials + result.final.trials


ARMS: dict[str, Callable[[Domain, dict[str, Any]], Awaitable[Run]]] = {
    MERGE: partial(together, WORKERS),
    "fork, own cluster": partial(apart, "cluster"),
    "fork, all clusters": partial(apart, "all"),
    "serial": partial(together, 1),
}


def rows(variant: str, schedule: Schedule, seeds: Sequence[int], calls: int) -> Iterator[Row]:
    """All arms on one variant in one schedule, merge first."""
    domains = [router_domain(seed=seed, contradictions=VARIANTS[variant]) for seed in seeds]
    common = {"schedule": schedule, "budget": Budget(calls=calls), "noise": "no"}
    merged: list[Run] = []
    for arm, run in ARMS.items():
        found = [anyio.run(run, domain, {**common, "seed": seed}) for seed, domain in zip(seeds, domains, strict=True)]
        merged = merged or found
        gains = [ours.reward - theirs.reward for ours, theirs in zip(merged, found, strict=True)]
        interval = paired_interval(gains)
        rewards = tuple(run.reward for run in found)
        yield Row(
            variant=variant,
            schedule=schedule,
            arm=arm,
            mean=fmean(rewards),
            median=median(rewards),
            start=fmean(run.start for run in found),
            rollouts=fmean(run.rollouts for run in found),
            calls=fmean(run.calls for run in found),
            fixed=fmean(run.fixed for run in found),
            ahead=fmean(gains),
            low=interval.low,
            high=interval.high,
            rewards=rewards,
        )


WIDTHS = (9, 8, 19, 7, 7, 7, 9, 7, 6, 24)
HEADINGS = ("variant", "schedule", "arm", "start", "mean", "median", "rollouts", "calls", "fixed", "merge is ahead by")


def line(cells: Sequence[str]) -> str:
    left = 3
    return "  ".join(
        cell.ljust(width) if column < left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )


def cells(row: Row) -> Sequence[str]:
    ahead = "" if row.arm == MERGE else f"{row.ahead:+.3f} [{row.low:+.3f}, {row.high:+.3f}]"
    figures = (f"{row.start:.3f}", f"{row.mean:.3f}", f"{row.median:.3f}")
    counts = (f"{row.rollouts:.0f}", f"{row.calls:.0f}", f"{row.fixed:.0f}")
    return (row.variant, row.schedule, row.arm, *figures, *counts, ahead)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=8000, help="what each arm may spend")
    parser.add_argument("--smoke", action="store_true", help="3 seeds and 2000 calls")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    seeds, calls = (range(3), 2000) if options.smoke else (range(options.seeds), options.calls)
    say = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    say(f"{len(seeds)} seeds, {calls} calls an arm, {WORKERS} workers or forks")
    say(line(HEADINGS))
    found = []
    for variant in VARIANTS:
        for schedule in SCHEDULES:
            for row in rows(variant, schedule, seeds, calls):
                found.append(row)
                say(line(cells(row)))
    if options.json:
        print(json.dumps({"seeds": len(seeds), "calls": calls, "rows": [asdict(row) for row in found]}))


if __name__ == "__main__":
    main()

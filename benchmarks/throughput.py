"""Inline, threads, processes: what each does for work that waits and for work that computes.

    python benchmarks/throughput.py              the table; figures and picture to docs/figures (about 12 minutes)
    python benchmarks/throughput.py --smoke      one quick pass, to see that it runs; no files
    python benchmarks/throughput.py --redraw     the picture again, from the figures that are there

Waiting work: 20 ms of sleep, as an async function inline and a plain one elsewhere. Computing work: about 5 ms of pure
Python. The floor: two bare processes that do their share of the same work and say nothing. Every figure is the median
of several runs, each in a process of its own, taken in turns; the clock starts when all workers are up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from _processes import HERE, adopt_orphans, fresh
from _throughput_figure import draw

ONE = HERE / "_throughput_one.py"
FIGURES = HERE.parent / "docs" / "figures"
WORKS = {"wait": "waiting, 20 ms", "compute": "computing, about 5 ms"}
EXECUTORS = ("inline", "thread", "process")
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
FLOOR_PROCESSES = 2
SECONDS = {"wait": 1.0, "compute": 1.5}
PER_SECOND = {"wait": 50, "compute": 200}
PAIRS: list[dict[str, Any]] = [
    {"work": "compute", "executor": "process", "workers": 2, "against": ["floor", 2], "tasks": 40},
    {"work": "compute", "executor": "process", "workers": 2, "against": ["inline", 1], "tasks": 20},
    {"work": "compute", "executor": "thread", "workers": 8, "against": ["inline", 1], "tasks": 24},
    {"work": "wait", "executor": "process", "workers": 8, "against": ["inline", 1], "tasks": 24},
]
"""Ratios that are to be right on a machine that does something else as well."""

Rates = dict[str, list[float]]


def variants(smoke: bool) -> list[dict[str, Any]]:
    """All that is measured."""
    found = []
    for work in WORKS:
        found.append({"work": work, "executor": "floor", "workers": FLOOR_PROCESSES})
        for name in EXECUTORS:
            found += [{"work": work, "executor": name, "workers": width} for width in (WIDTHS[:2] if smoke else WIDTHS)]
    for settings in found:
        settings["tasks"] = _tasks(settings, smoke)
    return found


def _tasks(settings: dict[str, Any], smoke: bool) -> int:
    """Whole waves of all workers, and enough of them."""
    at_once: int = settings["workers"]
    work = settings["work"]
    busy = at_once if work == "wait" else min(at_once, os.cpu_count() or 1)
    wanted = (0.2 if smoke else SECONDS[work]) * PER_SECOND[work] * busy
    return max(2, round(wanted / at_once)) * at_once


def measure(runs: int, smoke: bool, loop: str) -> dict[str, Any]:
    """Rates by work, executor and number of workers, and the ratios to the floor of the same turn."""
    rates: dict[str, dict[str, Rates]] = {work: {} for work in WORKS}
    for run in range(runs):
        order = variants(smoke)
        random.Random(run).shuffle(order)
        for settings in order:
            rate = one({**settings, "loop": loop})["rate"]
            of_executor = rates[settings["work"]].setdefault(settings["executor"], {})
            of_executor.setdefault(str(settings["workers"]), []).append(rate)
    ratios = []
    for pair in PAIRS:
        found = [ratio for _ in range(runs) for ratio in one({**pair, "loop": loop})["ratios"]]
        ratios.append({**pair, "ratios": found})
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "loop": loop,
        "runs": runs,
        "unit": "tasks/s",
        "rates": rates,
        "pairs": ratios,
    }


def one(settings: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a process of its own."""
    row: dict[str, Any] = fresh([sys.executable, ONE, json.dumps(settings)], 180)
    if "failed" in row:
        raise SystemExit(f"{settings}: {row['failed']}")
    return row


def medians(figures: dict[str, Any], work: str, name: str) -> dict[int, float]:
    """By the number of workers."""
    return {int(width): median(rates) for width, rates in figures["rates"][work][name].items()}


def show(figures: dict[str, Any]) -> None:
    """The table."""
    for work, title in WORKS.items():
        (floor,) = medians(figures, work, "floor").values()
        columns = {name: medians(figures, work, name) for name in EXECUTORS}
        print(f"\n{title}: tasks/s (times one worker inline); floor, {FLOOR_PROCESSES} bare processes: {floor:.0f}/s")
        print("  workers" + "".join(f"{name:>20}" for name in EXECUTORS))
        one = columns["inline"][1]
        for width in sorted(columns["inline"]):
            cells = [f"{column[width]:11,.0f} ({column[width] / one:5.2f})" for column in columns.values()]
            print(f"  {width:7}" + "".join(f"{cell:>20}" for cell in cells))
    print("\nin turns of a tenth of a second: medians of the ratios (quartiles)")
    for pair in figures["pairs"]:
        low, middle, high = quantiles(pair["ratios"], n=4)
        name, workers = pair["against"]
        print(
            f"  {WORKS[pair['work']]}: {pair['workers']} × {pair['executor']} = {middle:.2f} ({low:.2f} to {high:.2f}) "
            f"times {workers} × {name}"
        )


def main() -> None:
    """Measure, print, and write figures and picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--redraw", action="store_true")
    parser.add_argument("--loop", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--out", type=Path, default=FIGURES, help="the folder for throughput.json and throughput.svg")
    options = parser.parse_args()
    stored = options.out / "throughput.json"
    if options.redraw:
        figures = json.loads(stored.read_text())
    else:
        adopt_orphans()
        figures = measure(1 if options.smoke else options.runs, options.smoke, options.loop)
    show(figures)
    picture = draw({work: {name: medians(figures, work, name) for name in (*EXECUTORS, "floor")} for work in WORKS})
    if not options.smoke:
        options.out.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(figures, indent=1) + "\n")
        (options.out / "throughput.svg").write_text(picture)


if __name__ == "__main__":
    main()

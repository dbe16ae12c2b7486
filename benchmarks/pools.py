"""Process pools side by side: what a task costs, and what happens when a worker does not come back.

    python benchmarks/pools.py                       all tables (about 20 minutes)
    python benchmarks/pools.py rates faults orphans  some of them
    python benchmarks/pools.py --smoke               one quick pass, to see that it runs
    python benchmarks/pools.py --peers-python PYTHON --agentdescent-python PYTHON     interpreters that have the others

Two spawned workers each. Every figure is the median of several runs, each in a process of its own; within a run the
pools take turns, so that ratios compare what was measured on the same machine in the same minute. Peers are used as
their first page shows: a function, its argument, all tasks handed in at once (those that are awaited: one a worker).
The floor is a bare pipe to each of two interpreters: flat records, msgpack by cattrs, four tasks in flight in each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from _pool_peers import PEERS
from _processes import ENVIRONMENT, HERE, adopt_orphans, descendants, end_all, fresh, reap

SCENARIOS = HERE / "_pool_scenarios.py"
FLOOR = "bare pipe, in flight 4"
FLOORS = (FLOOR, "bare pipe, in flight 1", "bare pipe, loopless, in flight 4")
OURS = ("adescent", "adescent on trio")
LOADS = {
    "1 KiB": {"size": 2**10, "shared": False},
    "256 KiB": {"size": 2**18, "shared": False},
    "shared 256 KiB artifact": {"size": 2**18, "shared": True},
}
FAULTS = {
    "exit": "a task ends its worker by os._exit, once",
    "kill": "a task ends its worker by SIGKILL, once",
    "crash": "a task ends its worker by a bad pointer, once",
    "hang": "a task hangs, once",
    "idle": "SIGKILL of an idle worker",
    "all": "SIGKILL of every worker, half-way",
    "two hangs": "two tasks that always hang, on two workers",
}
HANGS = ("hang", "two hangs")
CANNOT_TELL = ("concurrent.futures", "loky", "dask")
"""Those that have no limit for the time of a task: they would wait for ever."""
COUNTS = {"fast": {"1 KiB": 4000, "256 KiB": 400}, "dask": {"1 KiB": 400, "256 KiB": 60}}

Row = dict[str, Any]


class Bench:
    """Runs measurements in turn and keeps what they said."""

    def __init__(self, options: argparse.Namespace, scratch: str) -> None:
        self.runs: int = 1 if options.smoke else options.runs
        self.smoke: bool = options.smoke
        self.scratch = scratch
        self.pythons = _interpreters(options)
        self.rows: list[Row] = []

    def names(self, *, floors: bool) -> list[str]:
        """All contenders that can be run here; ``floors`` too, where they make sense."""
        return [name for name in (*OURS, *(FLOORS if floors else ()), *PEERS) if name in self.pythons]

    def turn(self, run: int, names: list[str]) -> list[str]:
        """Each contender once, in another order in each run, since nobody knows what the one before has left."""
        return random.Random(run).sample(names, len(names))

    def turns(self, names: list[str]) -> Iterator[str]:
        """The contenders of all runs, one after the other."""
        for run in range(self.runs):
            yield from self.turn(run, names)

    def measure(self, name: str, scenario: str, timeout: float, **settings: Any) -> Row:
        """One measurement in a process of its own."""
        row: Row = fresh(self.command(name, scenario, **settings), timeout, self.environment())
        self.rows.append({"contender": name, "scenario": scenario, **settings, **row})
        return row

    def command(self, name: str, scenario: str, **settings: Any) -> list[str]:
        """What runs one measurement."""
        options = {"hang_timeout": None, **settings, "contender": name, "scenario": scenario}
        return [self.pythons[name], str(SCENARIOS), json.dumps(options)]

    def environment(self) -> dict[str, str]:
        """Where workers find what they need, and where the marks of first attempts go."""
        return {**ENVIRONMENT, "SCRATCH": self.scratch, "TMPDIR": self.scratch}


def _interpreters(options: argparse.Namespace) -> dict[str, str]:
    """By contender, the interpreter that has it; those that are nowhere installed are left out, and named."""
    found = dict.fromkeys((*OURS, *FLOORS), sys.executable)
    for name, (_, modules, _) in PEERS.items():
        python = options.agentdescent_python if name == "agentdescent" else options.peers_python
        statement = "import " + ", ".join(("importlib.util", *modules))
        tried = subprocess.run([python or sys.executable, "-c", statement], capture_output=True, timeout=60)
        if tried.returncode:
            print(f"{name} is not installed")
        else:
            found[name] = python or sys.executable
    return found


# Tables --------------------------------------------------------------------------------------------------------------


def rates(bench: Bench) -> None:
    """No-op tasks a second, and the cold start to the first result."""
    names = bench.names(floors=True)
    rows: dict[str, dict[str, list[Row]]] = {label: {name: [] for name in names} for label in LOADS}
    for run in range(bench.runs):
        for label, load in LOADS.items():
            for name in bench.turn(run, names):
                row = bench.measure(name, "rate", 90, load=label, count=_count(bench, name, label), **load)
                rows[label][name].append(row)
                if not _is_whole(row):
                    print(f"  {name}, {label}: {row.get('failed', row)}")
    found = {label: {name: [row.get("rate", 0.0) for row in rows[label][name]] for name in names} for label in LOADS}
    for label in LOADS:
        columns = "tasks/s (lowest to highest), share of the floor in the same turn, CPU a task in parent + workers"
        print(f"\nNo-op tasks, {label}: {columns}")
        for name in names:
            rate = found[label][name]
            line = f"  {name:34}{_spread(rate)}   {_ratio(rate, found[label][FLOOR]):5.2f} of the floor"
            if whole := [row for row in rows[label][name] if _is_whole(row)]:
                parent, workers = (median(row[key] for row in whole) for key in ("parent_cpu_us", "workers_cpu_us"))
                line += f"   {parent:4.0f} + {workers:3.0f} µs"
            if label.startswith("shared"):
                line += f"   {_ratio(rate, found['1 KiB'][name]):5.2f} of its own rate at 1 KiB"
            print(line)
    print("\nCold start: from making the pool, all imports done, to the first result, in ms")
    for name in names:
        if cold := [row["cold_s"] * 1e3 for row in rows["1 KiB"][name] if _is_whole(row)]:
            print(f"  {name:34}{_spread(cold)}")


def _is_whole(row: Row) -> bool:
    return "failed" not in row and bool(row["right"] == row["of"])


def _count(bench: Bench, name: str, label: str) -> int:
    counts = COUNTS["dask" if name == "dask" else "fast"]
    many = counts["1 KiB" if label == "1 KiB" or (name in OURS + FLOORS and label.startswith("shared")) else "256 KiB"]
    return max(20, many // 20) if bench.smoke else many


def faults(bench: Bench) -> None:
    """What is lost, and how much later the last of 200 tasks of 5 ms is done than in a batch without a fault."""
    limit = 5.0 if bench.smoke else 20.0
    hang_timeout = 0.5 if bench.smoke else 2.0
    for fault, meaning in FAULTS.items():
        hangs = fault in HANGS
        names = [name for name in bench.names(floors=False) if not (hangs and name in CANNOT_TELL)]
        found: dict[str, list[Row]] = {name: [] for name in names}
        for name in bench.turns(names):
            settings = {"hang_timeout": hang_timeout if hangs else None, "limit": limit}
            found[name].append(bench.measure(name, "fault", 60, fault=fault, **settings))
        told = f" (limit {hang_timeout:g} s)" if hangs else ""
        of = 62 if fault == "two hangs" else 200
        print(f"\n{meaning[0].upper()}{meaning[1:]}{told}: extra seconds, right answers of {of}")
        for name, rows in found.items():
            print(f"  {name:34}{_of_fault(rows)}")


def _of_fault(rows: list[Row]) -> str:
    failed = [row["failed"] for row in rows if "failed" in row]
    if failed:
        return f"failed: {failed[0].splitlines()[-1]}"
    ended = [row for row in rows if row["seconds"] is not None]
    extra = "never ended"
    if ended:
        # A pool that gives up is done early: that is no figure.
        broken = any(row["right"] + 5 < row["of"] for row in ended)
        extra = "broke" if broken else f"{median(row['seconds'] - row['base'] for row in ended):+.2f} s"
    right = sorted(row["right"] for row in rows)
    answers = f"{right[0]}" if right[0] == right[-1] else f"{right[0]} to {right[-1]}"
    errors = sorted({f"{name} ×{count}" for row in rows for name, count in row["errors"].items() if count})
    notes = [f"stuck in {len(rows) - len(ended)} of {len(rows)}"] if len(ended) < len(rows) else []
    notes += [f"not usable afterwards in {sum(not row['usable'] for row in ended)} of {len(rows)}"] * any(
        not row["usable"] for row in ended
    )
    return f"{extra:14}{answers:>12} right   {'; '.join(notes + errors)}"


def orphans(bench: Bench) -> None:
    """Processes that are left when the pool's own process is killed."""
    seconds = 1.0 if bench.smoke else 5.0
    names = bench.names(floors=False)
    for busy in (True, False):
        found: dict[str, list[Row]] = {name: [] for name in names}
        for name in bench.turns(names):
            found[name].append(_orphaned(bench, name, busy, seconds))
        kind = "busy" if busy else "idle"
        print(f"\nSIGKILL of the parent of {kind} workers: processes left after 1 s, the last gone after")
        for name, rows in found.items():
            failed = [row["failed"] for row in rows if "failed" in row]
            if failed:
                print(f"  {name:34}failed: {failed[0]}")
                continue
            left = max(row["left"] for row in rows)
            gone = [row["gone"] for row in rows]
            last = f"more than {seconds:g} s" if None in gone else f"{max(gone) * 1e3:.0f} ms"
            print(f"  {name:34}{left:3}   {last}")


def _orphaned(bench: Bench, name: str, busy: bool, seconds: float) -> Row:
    command = bench.command(name, "abrupt", busy=busy)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=bench.environment(),
        start_new_session=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        signal.alarm(60)  # a pool that never comes up must not hold us
        line = parent.stdout.readline()
        signal.alarm(0)
        time.sleep(0.3)
        parent.kill()
        killed = time.monotonic()
        parent.wait()
    row: Row = {"failed": "did not come up"} if not line else _watched(killed, seconds)
    end_all()
    bench.rows.append({"contender": name, "scenario": "orphans", "busy": busy, **row})
    return row


def _watched(killed: float, seconds: float) -> Row:
    left = None
    while (elapsed := time.monotonic() - killed) < seconds:
        reap()
        alive = len(descendants())
        if left is None and elapsed >= 1.0:
            left = alive
        if not alive:
            return {"left": left or 0, "gone": elapsed}
        time.sleep(0.005)
    return {"left": len(descendants()) if left is None else left, "gone": None}


def _spread(values: list[float]) -> str:
    return f"{median(values):9,.0f} ({min(values):,.0f} to {max(values):,.0f})".ljust(36)


def _ratio(mine: list[float], others: list[float]) -> float:
    """The median of the ratios within each turn."""
    return median(a / b if b else 0.0 for a, b in zip(mine, others, strict=True))


TABLES: dict[str, Callable[[Bench], None]] = {table.__name__: table for table in (rates, faults, orphans)}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], default=[])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--peers-python", default=os.environ.get("PEERS_PYTHON"))
    parser.add_argument("--agentdescent-python", default=os.environ.get("AGENTDESCENT_PYTHON"))
    parser.add_argument("--json", type=Path, help="write every measurement there")
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, scratch)
        for name in options.tables or TABLES:
            TABLES[name](bench)
    if options.json:
        options.json.write_text(json.dumps(bench.rows, indent=1))


if __name__ == "__main__":
    main()

"""How much of the machine the engine leaves to the actors.

    python benchmarks/engine.py                      all tables (about 15 minutes)
    python benchmarks/engine.py idle merging tail    some of them
    python benchmarks/engine.py --smoke              one quick pass, to see that it runs
    python benchmarks/engine.py --agentdescent-python PYTHON     the public system beside the figures

Every figure is the median of several runs, each in a process of its own, and stands beside a bare loop that does the
same waiting with nothing around it, measured in turn with it. Tasks: 400, of which 16 are held out; a rollout scores
with the number of rules, so that every new rule is worth committing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELD_OUT = 16
TASKS = 400


# One measurement, in a process of its own -----------------------------------------------------------------------------


class Stopwatch:
    """From the first to the last rollout of a worker, leaving out what a run measures before and after."""

    def __init__(self, watched: set[str]) -> None:
        self.watched = watched
        self.began = 0.0
        self.ended = 0.0
        self.rollouts = 0

    def start(self, task_id: str) -> None:
        """A rollout begins."""
        if not self.began and task_id in self.watched:
            self.began = time.perf_counter()

    def stop(self, task_id: str) -> None:
        """A rollout ends."""
        if task_id in self.watched:
            self.ended = time.perf_counter()
            self.rollouts += 1

    @property
    def seconds(self) -> float:
        """From the first beginning to the last end."""
        return self.ended - self.began


def delays(kind: str, milliseconds: float, seed: int) -> Callable[[], float]:
    """Seconds of the next rollout: always the same, or 90 % of 10 ms and 10 % of 200 ms."""
    if kind == "tail":
        import random

        rng = random.Random(seed)
        return lambda: 0.2 if rng.random() < 0.1 else 0.01
    seconds = milliseconds / 1e3
    return lambda: seconds


def domain(options: dict[str, Any], watch: Stopwatch) -> dict[str, Any]:
    """Actors that wait, and learn something from every rollout if they are asked to."""
    import itertools

    import anyio

    numbers = itertools.count(1)
    delay = delays(options["delays"], options["ms"], options["seed"])
    scale: float = 10.0 * options["rollouts"]

    async def wait_and_count(rendered: str, task: Any) -> str:
        watch.start(task.id)
        seconds = delay()
        if seconds:
            await anyio.sleep(seconds)
        watch.stop(task.id)
        return str(rendered.count("- "))

    def block_and_count(rendered: str, task: Any) -> str:
        watch.start(task.id)
        time.sleep(delay())
        watch.stop(task.id)
        return str(rendered.count("- "))

    async def score(task: Any, output: str) -> float:
        return min(0.99, int(output) / scale)

    async def one_more_rule(rendered: str, task: Any, output: str, found: Any) -> str | None:
        return f"rule {next(numbers):06d}" if options["learn"] else None

    run = block_and_count if options["actors"] == "sync" else wait_and_count
    return {"run": run, "reward": score, "propose": one_more_rule}


def measure(options: dict[str, Any]) -> dict[str, Any]:
    """One run of the engine, or of the bare loop."""
    import anyio

    import adescent

    tasks = [adescent.Task(f"t{i:04d}", f"q{i}") for i in range(TASKS)]
    held_out, train = tasks[:HELD_OUT], tasks[HELD_OUT:]
    watch = Stopwatch({task.id for task in train})
    actors = domain(options, watch)
    ticks = {"wanted": 0.0, "seen": 0}

    async def ticker() -> None:
        began = time.perf_counter()
        while True:
            await anyio.sleep(0.01)
            ticks["seen"] += 1
            ticks["wanted"] = (time.perf_counter() - began) / 0.01

    async def engine() -> Any:
        per_round = options["workers"]
        return await adescent.async_evolve(
            train,
            actors["reward"],
            run=actors["run"],
            propose=actors["propose"],
            held_out=held_out,
            schedule=options["schedule"],
            n_workers=per_round,
            rounds=max(1, options["rollouts"] // per_round),
            eval_concurrency=HELD_OUT,
            noise="no",
            run_dir=options["run_dir"],
            seed=1,
        )

    async def bare() -> None:
        async def loop(count: int) -> None:
            for number in range(count):
                task = train[number % len(train)]
                await actors["reward"](task, await actors["run"]("", task))

        async with anyio.create_task_group() as workers:
            for _ in range(options["workers"]):
                workers.start_soon(loop, max(1, options["rollouts"] // options["workers"]))

    async def main() -> Any:
        async with anyio.create_task_group() as beside:
            if options["ticker"]:
                beside.start_soon(ticker)
            result = await (bare() if options["schedule"] == "bare" else engine())
            beside.cancel_scope.cancel()
        return result

    before = time.process_time()
    result = anyio.run(main, backend=options["loop"])
    cpu = time.process_time() - before
    row = {
        "rate": watch.rollouts / watch.seconds if watch.seconds else 0.0,
        "seconds": watch.seconds,
        "rollouts": watch.rollouts,
        "cpu": cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ticks": ticks["seen"] / ticks["wanted"] if ticks["wanted"] else None,
    }
    if result is not None:
        if result.error:
            raise SystemExit(result.error)
        outcomes = result.outcomes()
        cards = sum(outcomes.values())
        row |= {
            "rate": result.rollouts / watch.seconds if watch.seconds else 0.0,
            "rollouts": result.rollouts,
            "merged_per_s": outcomes.get("committed", 0) / watch.seconds if watch.seconds else 0.0,
            "stale": outcomes.get("stale", 0) / cards if cards else 0.0,
            "commits": result.version - 1,
            "sweeps": len(result.history),
            "outcomes": outcomes,
        }
    return row


AGENTDESCENT = """
import itertools, json, random, sys, time, warnings
warnings.simplefilter("ignore")
from agentdescent import AppendRules, Task, async_evolve, evolve
from agentdescent.aggregator import AggregatorConfig
o = json.loads(sys.argv[1])
numbers = itertools.count(1)
rng = random.Random(o["seed"])
def delay():
    return (0.2 if rng.random() < 0.1 else 0.01) if o["delays"] == "tail" else o["ms"] / 1e3
def run(rendered, task):
    if delay():
        time.sleep(delay())
    return str(rendered.count("\\n- "))
def reward(task, output):
    return min(0.99, int(output) / (10.0 * o["rollouts"]))
def propose(rendered, task, output, score):
    return f"rule {next(numbers):06d}" if o["learn"] else None
tasks = [Task(id=f"t{i:04d}", prompt=f"q{i}") for i in range(400)]
common = dict(run=run, propose=propose, strategy=AppendRules(), n_workers=o["workers"], held_out_frac=16 / 400,
              self_verify=False, seed=1, max_seconds=50, eval_concurrency=16,
              agg_config=AggregatorConfig(anneal_half_life=10**9))
cpu = time.process_time()
if o["schedule"] == "rounds":
    r = evolve(tasks, reward, rounds=max(1, o["rollouts"] // o["workers"]), max_concurrency=o["workers"], **common)
else:
    r = async_evolve(tasks, reward, max_iters=o["rollouts"], **common)
print(json.dumps({"rate": r.rollouts / r.wallclock, "rollouts": r.rollouts, "cpu": time.process_time() - cpu,
                  "commits": sum(h.committed for h in r.history), "seconds": r.wallclock}))
"""


# Tables --------------------------------------------------------------------------------------------------------------


class Bench:
    """Runs measurements in turn and keeps their medians."""

    def __init__(self, runs: int, other: str | None) -> None:
        self.runs = runs
        self.other = other
        self.rows: list[dict[str, Any]] = []

    def compare(self, label: str, variants: Variants, **common: Any) -> dict[str, dict[str, Any]]:
        """Medians of each variant, measured in turn: A, B, C, A, B, C and so on."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
        for run in range(self.runs):
            for name, own in variants.items():
                row = _child({**DEFAULTS, "seed": run, **common, **own}, self.other)
                if row is not None:
                    found[name].append(row)
        medians = {name: _median(rows) for name, rows in found.items() if rows}
        for name, row in medians.items():
            self.rows.append({"table": label, "variant": name, **common, **variants[name], **row})
        return medians


Variants = dict[str, dict[str, Any]]


def plain(*schedules: str) -> Variants:
    """One variant a schedule, under its own name."""
    return {name: {"schedule": name} for name in schedules}


DEFAULTS: dict[str, Any] = {
    "delays": "fixed", "ms": 20.0, "learn": False, "actors": "async", "workers": 8, "rollouts": 800, "loop": "asyncio",
    "schedule": "stream", "ticker": False, "run_dir": None, "system": "adescent", "seed": 0,
}  # fmt: skip


def _child(options: dict[str, Any], other: str | None) -> dict[str, Any] | None:
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        if options["run_dir"]:
            options = {**options, "run_dir": f"{scratch}/run"}
        if options["system"] == "agentdescent":
            if other is None:
                return None
            command = [other, "-c", AGENTDESCENT, json.dumps(options)]
        else:
            command = [sys.executable, __file__, "--one", json.dumps(options)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, "TMPDIR": scratch}
        )
    if done.returncode:
        raise SystemExit(f"{options}: {done.stderr[-2000:]}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {key for key, value in rows[0].items() if isinstance(value, (int, float))}
    return {key: statistics.median(row[key] for row in rows) for key in sorted(numbers)}


def idle(bench: Bench, smoke: bool) -> None:
    """Nothing merges: what is left of a bare loop's rate."""
    print("\nNothing merges, 20 ms rollouts: rollouts/s, and the share of the bare loop")
    for loop in ("asyncio", "trio"):
        for workers in (8,) if smoke else (8, 64, 256):
            count = workers * (20 if smoke else 100)
            variants = plain("bare", "stream", "rounds")
            if loop == "asyncio":
                variants |= {
                    f"agentdescent {name}": {"schedule": name, "system": "agentdescent", "rollouts": workers * 20}
                    for name in ("stream", "rounds")
                }
            found = bench.compare("idle", variants, loop=loop, workers=workers, rollouts=count)
            _line(f"{loop:8}{workers:4} workers", found, lambda row: f"{row['rate']:8.0f}/s", floor="bare")


def merging(bench: Bench, smoke: bool) -> None:
    """Every rollout proposes."""
    print("\nEvery rollout proposes, 20 ms rollouts, 16 held-out tasks: rollouts/s, merged cards/s, stale share")
    for loop in ("asyncio", "trio"):
        for workers in (8,) if smoke else (8, 64):
            count = workers * (10 if smoke else 60)
            variants = plain("bare", "stream", "rounds")
            variants |= {f"{name} durable": {"schedule": name, "run_dir": True} for name in ("stream", "rounds")}
            if loop == "asyncio":
                variants |= {
                    f"agentdescent {name}": {
                        "schedule": name,
                        "system": "agentdescent",
                        "rollouts": max(24, workers * 2),
                    }
                    for name in ("stream", "rounds")
                }
            found = bench.compare("merging", variants, loop=loop, workers=workers, rollouts=count, learn=True)
            _line(f"{loop:8}{workers:4} workers", found, _merging_figures, floor="bare")


def tail(bench: Bench, smoke: bool) -> None:
    """A long tail: 90 % of rollouts take 10 ms, 10 % take 200 ms."""
    print("\nLong tail, 32 workers, every rollout proposes: rollouts/s, merged cards/s, stale share")
    variants = plain("bare", "stream", "rounds")
    found = bench.compare("tail", variants, delays="tail", learn=True, workers=32, rollouts=320 if smoke else 3200)
    _line("asyncio   32 workers", found, _merging_figures, floor="bare")
    ratio = found["stream"]["rate"] / found["rounds"]["rate"]
    merged = found["stream"]["merged_per_s"] / found["rounds"]["merged_per_s"]
    print(f"  stream / rounds: {ratio:.2f} x rollouts/s, {merged:.2f} x merged cards/s")


def overhead(bench: Bench, smoke: bool) -> None:
    """CPU of a rollout that does nothing, and the wall time a durable merge adds to its evaluations."""
    print("\nCPU per no-op rollout, async actors: difference between many and few rollouts, in microseconds")
    few, many = (1_000, 5_000) if smoke else (2_000, 42_000)
    for loop in ("asyncio", "trio"):
        for schedule in ("bare", "stream", "rounds"):
            sizes = {str(n): {"rollouts": n} for n in (few, many)}
            found = bench.compare("overhead", sizes, loop=loop, schedule=schedule, ms=0.0, workers=8)
            spent = (found[str(many)]["cpu"] - found[str(few)]["cpu"]) / (many - few)
            print(f"  {loop:8}{schedule:8}{spent * 1e6:8.1f} µs")
    print("\nA merge with a durable commit, rounds of one worker, 20 ms evaluations in one wave: wall per round")
    rounds = 20 if smoke else 60
    variants: Variants = {"idle": {}, "merging": {"learn": True, "run_dir": True}}
    found = bench.compare("merge", variants, schedule="rounds", workers=1, rollouts=rounds)
    added = (found["merging"]["seconds"] - found["idle"]["seconds"]) / (rounds - 1) - 0.020
    print(f"  {found['merging']['commits']:.0f} commits; beyond rollout and evaluations: {added * 1e3:.1f} ms a merge")


def threads(bench: Bench, smoke: bool) -> None:
    """Sync actors through threads."""
    print("\nSync actors in threads, 20 ms rollouts, nothing merges: rollouts/s (ideal 50 a worker)")
    for workers in (8,) if smoke else (8, 64):
        variants = {name: {"schedule": name, "actors": "sync"} for name in ("stream", "rounds")}
        found = bench.compare("threads", variants, workers=workers, rollouts=workers * 40)
        ideal = workers * 50
        told = "   ".join(f"{name} {row['rate']:6.0f}/s ({row['rate'] / ideal:.2f})" for name, row in found.items())
        print(f"  {workers:4} workers   {told}")


def scale(bench: Bench, smoke: bool) -> None:
    """Many workers beside a host, and very many rollouts at once."""
    print("\n1000 workers, 200 ms rollouts, beside a 10 ms ticker of the host; 10 000 rollouts at once")
    workers = 100 if smoke else 1000
    for loop in ("asyncio", "trio"):
        variants = plain("bare", "stream", "rounds")
        found = bench.compare(
            "host", variants, loop=loop, workers=workers, rollouts=workers * 10, ms=200.0, ticker=True
        )
        told = "   ".join(f"{n} {row['rate']:6.0f}/s, {row['ticks']:.0%} of ticks" for n, row in found.items())
        print(f"  {loop:8}{told}")
    many = 1_000 if smoke else 10_000
    variants = plain("bare", "stream", "rounds")
    found = bench.compare("many", variants, workers=many, rollouts=many * 3, ms=1000.0)
    told = "   ".join(f"{n} {row['rate']:6.0f}/s, {row['peak_mib']:.0f} MiB" for n, row in found.items())
    print(f"  {many} at once, 1 s each: {told}")


def imports(bench: Bench, smoke: bool) -> None:
    """What importing costs over a bare interpreter."""
    print("\nImport, over a bare interpreter")
    statements = {"import adescent": sys.executable, "from adescent import evolve": sys.executable}
    if bench.other:
        statements["import agentdescent"] = bench.other
    for statement, python in statements.items():
        extra = [_seconds(python, statement) - _seconds(python, "pass") for _ in range(3 if smoke else 11)]
        print(f"  {statement:32}{statistics.median(extra) * 1e3:6.0f} ms")


def _seconds(python: str, code: str) -> float:
    began = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, cwd=Path(__file__).parent.parent)
    return time.perf_counter() - began


def _merging_figures(row: dict[str, Any]) -> str:
    if "merged_per_s" not in row:
        return f"{row['rate']:7.0f}/s"
    return f"{row['rate']:7.0f}/s, {row['merged_per_s']:6.0f} merged/s, {row['stale']:4.0%} stale"


def _line(head: str, found: dict[str, dict[str, Any]], tell: Any, floor: str) -> None:
    print(f"  {head}")
    for name, row in found.items():
        print(f"      {name:22}{tell(row)}   {row['rate'] / found[floor]['rate']:5.2f} of {floor}")


TABLES = {table.__name__: table for table in (idle, merging, tail, overhead, threads, scale, imports)}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], default=[])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--agentdescent-python", default=os.environ.get("AGENTDESCENT_PYTHON"))
    parser.add_argument("--json", type=Path, help="write every row there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(json.loads(options.one))))
        return
    bench = Bench(1 if options.smoke else options.runs, options.agentdescent_python)
    for name in options.tables or TABLES:
        TABLES[name](bench, options.smoke)
    if options.json:
        options.json.write_text(json.dumps(bench.rows, indent=1))


if __name__ == "__main__":
    main()

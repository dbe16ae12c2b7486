"""Very many leases through a pool of two: memory, files and processes while it goes on.

    python benchmarks/pool_leases.py                 100 000 leases, then 20 000 of which 200 end their worker
    python benchmarks/pool_leases.py --smoke         one quick pass, to see that it runs

Every lease has a prompt of its own (1 KiB); every 500th comes with a new artifact (8 KiB); one in a hundred prints and
one in a hundred fails. What is held is looked at after 10 %, 50 % and 100 % of the leases; it should not grow.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
from _processes import adopt_orphans, descendants, end_all, open_files, resident_mib
from attrs import asdict, frozen

from adescent.executors import ProcessExecutor
from adescent.refs import Ref
from adescent.tasks import Task
from adescent.workspec import RolloutSpec

WORKERS = 2
LOOK_AT = (0.1, 0.5, 1.0)
RUN, REWARD = (Ref(f"_pool_tasks:{name}", call=False) for name in ("run_mixed", "reward"))


@frozen
class Holdings:
    """What parent and workers hold at one moment."""

    leases: int
    seconds: float
    parent_mib: float
    workers_mib: float
    parent_files: int
    worker_files: int
    processes: int
    threads: int

    @classmethod
    async def now(cls, leases: int, seconds: float) -> Holdings:
        """Take stock; of the workers, the one that holds most counts."""
        gc.collect()
        me, workers = os.getpid(), await _some_workers()
        return cls(
            leases,
            seconds,
            resident_mib(me),
            max(map(resident_mib, workers)),
            open_files(me),
            max(map(open_files, workers)),
            len(workers),
            threading.active_count(),
        )


async def _some_workers() -> list[int]:
    """Those there are. When both have died at once, there are none until the next have started."""
    with anyio.fail_after(10):
        while not (workers := descendants()):  # noqa: ASYNC110 - nobody tells of processes
            await anyio.sleep(0.01)
    return workers


def specs(count: int, deaths: int, scratch: str) -> Iterator[RolloutSpec]:
    """The leases, with ``deaths`` among them that end their worker at the first attempt."""
    every = count // deaths if deaths else 0
    artifact = ""
    for number in range(count):
        if number % 500 == 0:
            artifact = f"rule {number} ".ljust(8192, "r")
        kind = "noop"
        if every and number % every == every // 2:
            kind = "exit"
        elif number % 100 in (17, 53):
            kind = "print" if number % 100 == 17 else "raise"
        meta = {"kind": kind, "argument": str(Path(scratch) / f"{deaths}-{number}")}
        yield RolloutSpec(artifact, Task(f"t{number}", f"{number}".ljust(1024, "p"), meta), RUN, REWARD)


async def drive(count: int, deaths: int, scratch: str) -> tuple[list[Holdings], Counter[str], dict[str, int]]:
    """All leases through one pool; what was held at each look, how the leases ended, what happened to the workers."""
    looks = {round(count * part) for part in LOOK_AT}
    held: list[Holdings] = []
    ends: Counter[str] = Counter()
    began = time.perf_counter()
    async with ProcessExecutor(WORKERS, allow=("_pool_tasks:",)) as executor:
        async with executor.map_rollouts(specs(count, deaths, scratch)) as results:
            for number in itertools.count(1):
                result = await results.receive()
                ends[result.kind] += 1
                if number in looks:
                    held.append(await Holdings.now(number, time.perf_counter() - began))
                if number == count:
                    break
        return held, ends, dict(executor.counters())


def show(title: str, held: list[Holdings], ends: Counter[str], counters: dict[str, int]) -> None:
    """The table, and what grew between its first line and its last."""
    print(f"\n{title}")
    print("    leases   leases/s   parent MiB   worker MiB   parent files   worker files   processes   threads")
    for look in held:
        print(
            f"  {look.leases:8,}{look.leases / look.seconds:11,.0f}{look.parent_mib:13.1f}{look.workers_mib:13.1f}"
            f"{look.parent_files:15}{look.worker_files:15}{look.processes:12}{look.threads:10}"
        )
    first, last = held[0], held[-1]
    print(
        f"  grown: parent {last.parent_mib - first.parent_mib:+.1f} MiB, worker "
        f"{last.workers_mib - first.workers_mib:+.1f} MiB, files {last.parent_files - first.parent_files:+}, "
        f"processes {last.processes - first.processes:+}"
    )
    print(f"  ended: {dict(ends)}; {counters}")


def main() -> None:
    """Both runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leases", type=int, default=100_000)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--loop", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    many = 500 if options.smoke else options.leases
    adopt_orphans()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for count, deaths in ((many, 0), (many // 5, many // 500)):
            held, ends, counters = anyio.run(drive, count, deaths, scratch, backend=options.loop)
            show(f"{count:,} leases, {deaths} of which end their worker, {options.loop}", held, ends, counters)
            rows += [{"deaths": deaths, **asdict(look)} for look in held]
            print(f"  left when the pool is closed: {len(descendants())} processes, {open_files(os.getpid())} files")
            end_all()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

"""One measurement of one pool, in this process: settings as JSON in, a line of JSON out.

It needs nothing but the standard library and the pool that is measured, and is imported again by spawned workers.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from _pool_tasks import Task

WARM_UP_SECONDS = 1.0
"""Until the scheduler has found a place for new processes a pool may reach half its rate only, ours and the others."""
BATCHES = 5
BATCH = 200
NAP = 0.005
"""Seconds of a task in the batches in which something goes wrong."""


class Answers:
    """What came back of one batch, checked against what should."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        self.first: float | None = None
        self.values: dict[int, int] = {}
        self.errors: Counter[str] = Counter()

    def note(self, index: int, answer: int | BaseException) -> None:
        """Take one in."""
        if self.first is None:
            self.first = time.perf_counter()
        if isinstance(answer, BaseException):
            self.errors[name_of(answer)] += 1
            return
        kind, _, artifact, payload = self.tasks[index]
        if kind != "who" and answer != len(artifact) + len(payload):
            self.errors["wrong answer"] += 1
        else:
            self.values[index] = answer

    def told(self) -> dict[str, Any]:
        """How many were right, went wrong, never came."""
        wrong = self.errors.total()
        return {
            "of": len(self.tasks),
            "right": len(self.values),
            "wrong": wrong,
            "missing": len(self.tasks) - len(self.values) - wrong,
            "errors": dict(self.errors),
        }


def name_of(error: BaseException) -> str:
    """What to count it as: its type, and its words where these are a single one."""
    name, words = type(error).__name__, str(error)
    return f"{name} {words}" if words.isalpha() else name


async def run_batch(pool: Any, tasks: Sequence[Task]) -> tuple[float, Answers]:
    """Seconds from handing the tasks in to the last answer, and the answers."""
    answers = Answers(tasks)
    began = time.perf_counter()
    await pool.batch(tasks, answers.note)
    return time.perf_counter() - began, answers


@functools.cache
def shared_artifact(size: int) -> str:
    """One text object for all, as a head that is not moved gives its workers."""
    return "a" * size


def loads(count: int, size: int, shared: bool) -> list[Task]:
    """Tasks that do nothing; each has its own text object of ``size`` characters, or a small one and one for all."""
    artifact = shared_artifact(size) if shared else "rule"
    length = 1024 if shared else size
    return [("noop", None, artifact, f"{index:08d}".ljust(length, "x")) for index in range(count)]


def naps(count: int) -> list[Task]:
    return [("sleep", NAP, "rule", f"{index:08d}".ljust(1024, "x")) for index in range(count)]


def cpu_seconds() -> tuple[float, float]:
    """Of this process, and of its children that are alive."""
    nanoseconds = 0
    for mine in Path("/proc/self/task").iterdir():
        for child in (mine / "children").read_text().split():
            for thread in Path(f"/proc/{child}/task").iterdir():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return time.process_time(), nanoseconds / 1e9


async def rate(pool: Any, options: dict[str, Any], began: float) -> dict[str, Any]:
    """Cold start to the first result, then tasks a second when warm."""
    load = options["count"], options["size"], options["shared"]
    _, cold = await run_batch(pool, loads(2, *load[1:]))
    assert cold.first is not None
    warm_at = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < warm_at:
        await run_batch(pool, loads(options["count"], 1024, shared=False))
    seconds, right, cpu = 0.0, 0, (0.0, 0.0)
    for _ in range(BATCHES):
        tasks = loads(*load)
        before = cpu_seconds()
        spent, answers = await run_batch(pool, tasks)
        after = cpu_seconds()
        seconds, right = seconds + spent, right + len(answers.values)
        cpu = cpu[0] + after[0] - before[0], cpu[1] + after[1] - before[1]
    return {
        "cold_s": cold.first - began,
        "rate": right / seconds,
        "parent_cpu_us": cpu[0] / right * 1e6,
        "workers_cpu_us": cpu[1] / right * 1e6,
        "right": right,
        "of": options["count"] * BATCHES,
    }


async def workers_of(pool: Any) -> list[int]:
    """The process ids of the workers, once both have answered."""
    found: set[int] = set()
    for _ in range(50):
        _, answers = await run_batch(pool, [("who", NAP, "", "")] * 20)
        found |= set(answers.values.values())
        if len(found) == 2:
            break
    return sorted(found)


async def fault(pool: Any, options: dict[str, Any], began: float) -> dict[str, Any]:
    """A batch in which all goes well, the same with the fault, and whether the pool can be used afterwards."""
    workers = await workers_of(pool)
    tasks = with_fault(options["fault"])
    base, _ = await run_batch(pool, naps(len(tasks)))
    report: dict[str, Any] = {"base": base, "workers": len(workers)}
    answers = Answers(tasks)
    began = time.perf_counter()
    # A pool that never comes back is reported as it stands when the limit is over.
    after_limit(options["limit"], lambda: {**report, **answers.told(), "seconds": None, "usable": False})
    if options["fault"] == "idle":
        kill(workers[:1])
    elif options["fault"] == "all":
        threading.Timer(base / 2, kill, [workers]).start()
    try:
        await pool.batch(tasks, answers.note)
    except Exception as error:  # noqa: BLE001 - the pool's answer to the fault
        answers.errors[type(error).__name__] += 0
    report |= {"seconds": time.perf_counter() - began, **answers.told(), "usable": False}
    try:
        _, after = await run_batch(pool, naps(40))
        report["usable"] = len(after.values) == 40
    except Exception:  # noqa: BLE001 - not usable is what it says already
        pass
    return report


def with_fault(name: str) -> list[Task]:
    """The tasks among which one or two do damage."""
    marker = str(Path(tempfile.mkdtemp(dir=os.environ["SCRATCH"])) / "once")
    tasks = naps(BATCH)
    if name == "two hangs":
        return [("hang", "!", "rule", "")] * 2 + tasks[:60]
    if name in ("exit", "kill", "crash", "hang"):
        tasks[50] = (name, marker, "rule", "")
    return tasks


def kill(workers: list[int]) -> None:
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


async def abrupt(pool: Any, options: dict[str, Any], began: float) -> dict[str, Any]:
    """Say who the workers are, then be busy until this process is killed."""
    workers = await workers_of(pool)
    print(json.dumps({"workers": workers}), flush=True)
    if options["busy"]:
        await pool.batch([("sleep", 60.0, "rule", "")] * 2, lambda *_: None)
    time.sleep(60)  # noqa: ASYNC251 - until we are killed
    return {}


SCENARIOS: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "rate": rate,
    "fault": fault,
    "abrupt": abrupt,
}


def finish(report: dict[str, Any]) -> None:
    """Say it and end at once: whoever started us clears up what is left."""
    print(json.dumps(report), flush=True)
    os._exit(0)


def after_limit(seconds: float, report: Callable[[], dict[str, Any]]) -> None:
    """End this process with what is known when ``seconds`` are over."""
    timer = threading.Timer(seconds, lambda: finish(report()))
    timer.daemon = True
    timer.start()


def contender(name: str, limit: float | None) -> tuple[Callable[[], Any], str | None]:
    """How to make a pool of that name, all its imports done, and the event loop it is awaited on."""
    from _pool_peers import PEERS

    if name in PEERS:
        kind, modules, loop = PEERS[name]
        for module in modules:
            importlib.import_module(module)
        return lambda: kind(limit), loop
    if name.startswith("adescent"):
        from _pool_adescent import Adescent

        return lambda: Adescent(limit), "trio" if name.endswith("trio") else "asyncio"
    from _pool_floor import BareFloor, StreamFloor

    in_flight = int(name.rpartition(" ")[2])
    return lambda: (BareFloor if "loopless" in name else StreamFloor)(in_flight), "asyncio"


def drive(loop: str | None, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function on an event loop, or with none if it never waits for one."""
    if loop is not None:
        import anyio

        if loop == "trio":
            import trio  # noqa: F401 - not to be part of what is timed
        anyio.run(main, backend=loop)
        return
    try:
        main().send(None)
    except StopIteration:
        pass


def measure(options: dict[str, Any]) -> None:
    """Make the pool, run the scenario in it, and end."""
    make, loop = contender(options["contender"], options["hang_timeout"])

    async def main() -> None:
        began = time.perf_counter()
        async with make() as pool:
            finish(await SCENARIOS[options["scenario"]](pool, options, began))

    drive(loop, main)


if __name__ == "__main__":
    measure(json.loads(sys.argv[1]))

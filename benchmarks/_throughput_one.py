"""One measurement of `throughput.py`, in this process: settings as JSON in, a line of JSON with the rate out."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import _pool_tasks


def floor(settings: dict[str, Any]) -> float:
    """As many bare processes as there are workers, each with its share of the tasks and nothing to say."""
    command = [sys.executable, _pool_tasks.__file__, settings["work"]]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(settings["workers"])
    ]
    share: int = settings["tasks"] // settings["workers"]
    _tell(children, 2)
    began = time.perf_counter()
    _tell(children, share)
    seconds = time.perf_counter() - began
    for child in children:
        child.communicate(timeout=10)
    return share * len(children) / seconds


def _tell(children: list[subprocess.Popen[str]], count: int) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write(f"{count}\n")
        child.stdin.flush()
    for child in children:
        assert child.stdout is not None
        if not child.stdout.readline():
            raise SystemExit("a bare process has died")


def executor(settings: dict[str, Any]) -> float:
    """Rollouts through one of the executors, as many under way as there are workers."""
    import anyio

    rate: float = anyio.run(_measured, settings, backend=settings["loop"])
    return rate


async def _measured(settings: dict[str, Any]) -> float:
    import anyio

    workers = settings["workers"]
    plane, of_spec = _plane(settings["executor"], settings["work"], workers)
    async with plane:
        seen: set[Any] = set()
        with anyio.fail_after(120):
            while True:  # until every worker is up, where there are workers
                seen |= {result.output for result in await _collected(plane, of_spec, 2 * workers, workers)}
                if settings["executor"] != "process" or len(seen) == workers:
                    break
        began = time.perf_counter()
        results = await _collected(plane, of_spec, settings["tasks"], workers)
        seconds = time.perf_counter() - began
    wrong = [result.error for result in results if result.error]
    if wrong:
        raise SystemExit(str(wrong[0]))
    return len(results) / seconds


async def _collected(plane: Any, of_spec: Any, count: int, workers: int) -> list[Any]:
    from adescent.executors import collect_rollouts
    from adescent.tasks import Task
    from adescent.workspec import RolloutSpec

    specs = (RolloutSpec("rule", Task(str(number), "q"), *of_spec) for number in range(count))
    return await collect_rollouts(plane, specs, concurrency=workers)


def _plane(name: str, work: str, workers: int) -> tuple[Any, tuple[Any, ...]]:
    """The executor, and the actors that a spec names."""
    from adescent.executors import InlineExecutor, ProcessExecutor, ThreadExecutor
    from adescent.policies import Actors
    from adescent.refs import Ref

    if name == "process":
        refs = Ref(f"_pool_tasks:run_{work}", call=False), Ref("_pool_tasks:reward", call=False)
        return ProcessExecutor(workers, allow=("_pool_tasks:",)), refs
    if name == "thread":
        run = {"wait": _pool_tasks.run_wait, "compute": _pool_tasks.run_compute}[work]
        return ThreadExecutor(workers, actors=Actors(run, _score)), ()
    return InlineExecutor(Actors({"wait": _wait, "compute": _compute}[work], _score)), ()


async def _wait(rendered: str, task: Any) -> int:
    import anyio

    await anyio.sleep(_pool_tasks.WAIT_SECONDS)
    return 0


async def _compute(rendered: str, task: Any) -> int:
    return _pool_tasks.compute()


async def _score(task: Any, output: Any) -> float:
    return 1.0


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps({"rate": (floor if given["executor"] == "floor" else executor)(given)}))

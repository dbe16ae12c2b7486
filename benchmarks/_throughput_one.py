"""One measurement of `throughput.py`, in this process: settings as JSON in, a line of JSON out.

With ``against`` two contenders take turns in short windows, so that what else the machine does hits both alike, and
the ratios of each pair of windows come out; without it, the rate of one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import _pool_tasks
import anyio

from adescent.executors import InlineExecutor, ProcessExecutor, ThreadExecutor, collect_rollouts
from adescent.policies import Actors
from adescent.refs import Ref
from adescent.tasks import Task
from adescent.workspec import RolloutSpec

WINDOWS = 15
Work = Callable[[int], Awaitable[None]]
"""Does so many tasks."""


class Bare:
    """Processes that each do their share of the work, with nothing around it and nothing to say."""

    def __init__(self, work: str, workers: int) -> None:
        command = [sys.executable, _pool_tasks.__file__, work]
        # In sessions of their own, as the workers of a pool are: a busy machine is shared out by session.
        self._children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
            for _ in range(workers)
        ]

    async def do(self, count: int) -> None:
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(f"{count // len(self._children)}\n")
            child.stdin.flush()
        for child in self._children:
            assert child.stdout is not None
            if not child.stdout.readline():
                raise SystemExit("a bare process has died")

    def close(self) -> None:
        """End them."""
        for child in self._children:
            child.communicate(timeout=10)


async def contender(name: str, work: str, workers: int, stack: AsyncExitStack) -> Work:
    """Open one of the executors or the floor, wait until all of its workers are up, and say how it is set to work."""
    if name == "floor":
        bare = Bare(work, workers)
        stack.callback(bare.close)
        await bare.do(2 * workers)
        return bare.do
    plane, (run, reward) = _plane(name, work, workers)
    await stack.enter_async_context(plane)

    async def do(count: int) -> None:
        seen.clear()
        specs = (RolloutSpec("rule", Task(str(number), "q"), run, reward) for number in range(count))
        for result in await collect_rollouts(plane, specs, concurrency=workers):
            if result.error:
                raise SystemExit(str(result.error))
            seen.add(result.output)

    seen: set[Any] = set()
    up: set[Any] = set()
    with anyio.fail_after(120):
        while len(up) < (workers if name == "process" else 1):
            await do(2 * workers)
            up |= seen
    return do


def _plane(name: str, work: str, workers: int) -> tuple[Any, tuple[Ref | None, Ref | None]]:
    """The executor, and the actors that a spec names."""
    if name == "process":
        refs = Ref(f"_pool_tasks:run_{work}", call=False), Ref("_pool_tasks:reward", call=False)
        return ProcessExecutor(workers, allow=("_pool_tasks:",)), refs
    if name == "thread":
        run = {"wait": _pool_tasks.run_wait, "compute": _pool_tasks.run_compute}[work]
        return ThreadExecutor(workers, actors=Actors(run, _score)), (None, None)
    return InlineExecutor(Actors({"wait": _wait, "compute": _compute}[work], _score)), (None, None)


async def _wait(rendered: str, task: Any) -> int:
    await anyio.sleep(_pool_tasks.WAIT_SECONDS)
    return 0


async def _compute(rendered: str, task: Any) -> int:
    return _pool_tasks.compute()


async def _score(task: Any, output: Any) -> float:
    return 1.0


async def _rate(do: Work, tasks: int) -> float:
    began = time.perf_counter()
    await do(tasks)
    return tasks / (time.perf_counter() - began)


async def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """The rate of one contender, or how it compares with another."""
    async with AsyncExitStack() as stack:
        do = await contender(settings["executor"], settings["work"], settings["workers"], stack)
        if "against" not in settings:
            return {"rate": await _rate(do, settings["tasks"])}
        name, workers = settings["against"]
        other = await contender(name, settings["work"], workers, stack)
        ratios = []
        for window in range(WINDOWS):
            first, second = (do, other) if window % 2 else (other, do)
            rates = {first: await _rate(first, settings["tasks"]), second: await _rate(second, settings["tasks"])}
            ratios.append(rates[do] / rates[other])
        return {"ratios": ratios}
    raise AssertionError  # mypy: an exit stack may swallow what is raised


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps(anyio.run(measure, given, backend=given["loop"])))

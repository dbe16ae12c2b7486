"""The parent that hostile candidates may hurt: a process of its own that does rollouts as it is told.

    python -m _hostile.host LEVEL FOLDER

A line of JSON on standard input is a command: ``open`` an executor, ``run`` a rollout in it, ``close`` it. A line on
standard output says that it is open or closed, or what came of a rollout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

import anyio
from anyio.to_thread import run_sync

from _hostile.victims import BEAT, beats
from adescent.executors import ProcessExecutor
from adescent.policies import Actors
from adescent.refs import Ref
from adescent.sandbox import Level, Workspaces
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

MEMORY_MB = 256
ACTORS = Actors(Ref("_hostile.actors:attack", call=False), Ref("hostile_scorer:reward", call=False))
OPEN_TO = ("_hostile.actors:", "hostile_scorer:")
BEATS_EVERY = 0.05


def say(**words: Any) -> None:
    """Tell the witness."""
    os.write(1, (json.dumps(words) + "\n").encode())


def told(result: Result) -> dict[str, Any]:
    """What the witness looks at."""
    return {
        "output": result.output,
        "score": None if result.score is None else result.score.value,
        "error": "" if result.error is None else f"{result.error.kind}: {result.error}",
        "deaths": result.deaths,
        "log": result.log,
        "level": result.level,
    }


async def rollout(executor: ProcessExecutor, sandbox: SandboxSpec, order: dict[str, Any]) -> None:
    """One rollout, and what came of it."""
    task = Task(order["role"], json.dumps(order["given"]), {"gold": order["gold"]})
    say(role=order["role"], **told(await executor.rollout(RolloutSpec("artifact", task, sandbox=sandbox))))


async def beat(folder: Path) -> NoReturn:
    """Note every now and then that the event loop has turns to give."""
    with beats(folder / "beat") as noted:
        while True:
            BEAT.pack_into(noted, 0, time.monotonic())
            await anyio.sleep(BEATS_EVERY)


async def session(level: Level, folder: Path, workers: int) -> None:
    """One executor, from ``open`` to ``close``."""
    limits = partial(SandboxSpec, level=level, require=True, memory_mb=MEMORY_MB)
    places = Workspaces(folder / "workspaces")
    async with anyio.create_task_group() as beside:
        beside.start_soon(beat, folder)
        async with (
            ProcessExecutor(workers, sandbox=limits(), actors=ACTORS, allow=OPEN_TO, provider=places) as executor,
            anyio.create_task_group() as rollouts,
        ):
            say(role="opened")
            while (order := json.loads(await run_sync(sys.stdin.readline)))["do"] == "run":
                rollouts.start_soon(rollout, executor, limits(timeout_s=order["seconds"]), order)
        beside.cancel_scope.cancel()
    say(role="closed")


def main() -> None:
    """Sessions, one after the other."""
    level, folder = cast("Level", sys.argv[1]), Path(sys.argv[2])
    # A file that is open here is none of a worker's business, and a careless host lets programs inherit it.
    os.set_inheritable(os.open(folder / "open here", os.O_RDONLY), True)
    while line := sys.stdin.readline():
        anyio.run(session, level, folder, json.loads(line)["workers"])


if __name__ == "__main__":
    main()

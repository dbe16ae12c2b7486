"""The parent that hostile candidates may hurt: a process of its own that does rollouts as it is told.

    python _hostile_host.py LEVEL SCENE

A line of JSON on standard input is a command: ``open`` an executor, ``run`` a rollout in it, ``close`` it. A line on
standard output says that it is open or closed, or what came of a rollout.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.to_thread import run_sync

from adescent.executors import ProcessExecutor
from adescent.policies import Actors
from adescent.refs import Ref
from adescent.sandbox import Level, Workspaces
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

MEMORY_MB = 256
SECRET = "HOSTILE_SECRET"  # noqa: S105 - a variable's name
ACTORS = Actors(Ref("_hostile_actors:attack", call=False), Ref("hostile_scorer:reward", call=False))
OPEN_TO = ("_hostile_actors:", "hostile_scorer:")


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


async def session(level: Level, scene: Path, workers: int) -> None:
    """One executor, from ``open`` to ``close``."""
    limits = partial(SandboxSpec, level=level, require=True, memory_mb=MEMORY_MB)
    async with (
        ProcessExecutor(
            workers, sandbox=limits(), actors=ACTORS, allow=OPEN_TO, provider=Workspaces(scene / "workspaces")
        ) as executor,
        anyio.create_task_group() as rollouts,
    ):
        say(opened=True)
        while (order := json.loads(await run_sync(sys.stdin.readline)))["do"] == "run":
            rollouts.start_soon(rollout, executor, limits(timeout_s=order["seconds"]), order)
    say(closed=True)


def main() -> None:
    """Sessions, one after the other."""
    level, scene = cast("Level", sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(1, str(scene / "code"))
    # A file that is open here is none of a worker's business, and a careless host lets programs inherit it.
    os.set_inheritable(os.open(scene / "open here", os.O_RDONLY), True)
    while line := sys.stdin.readline():
        anyio.run(session, level, scene, json.loads(line)["workers"])


if __name__ == "__main__":
    main()

"""What a rollout does to an interpreter that serves it alone: the same comes of it where code is isolated."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.executors import ProcessExecutor
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.sandbox import reach
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.usefixtures("importable")]

BOUND = 60.0
MODULE = "faulty_actors"
ACTORS = Actors(
    Ref(f"{MODULE}:strike", call=False), Ref(f"{MODULE}:full", call=False), resolver=Resolver((f"{MODULE}:",))
)
WEDGED = "not a word within 1 s"
FATAL = {
    "exit 0": "exited with code 0",
    "exit 42": "exited with code 42",
    "SIGKILL": "killed by SIGKILL",
    "SIGSTOP": WEDGED,
    "segfault": "killed by SIGSEGV",
    "stack overflow": "killed by SIGSEGV",
    "never ready": WEDGED,
    "garbage frame": "received what is no message: ExtraData: unpack(b) received extra data.",
    "oversized frame": "a frame announces 4294967295 bytes: the limit is 67108864.",
    "closes its pipe": "exited with code 1",
    "ignores SIGTERM": WEDGED,
}
HARMLESS = ["stdout flood", "stderr flood", "forks a sleeping grandchild"]


async def rolled_out(level: Any, fault: str) -> tuple[Result, ProcessExecutor]:
    """What comes of a rollout with a fault, when six others, all of them beside or behind it, have been fine."""
    sandbox = SandboxSpec(level=level, memory_mb=256)
    if reach(sandbox) != level:
        pytest.skip(f"{level} cannot be had on this machine")
    executor = ProcessExecutor(2, sandbox=sandbox, hang_timeout=1.0)
    results: dict[int, Result] = {}
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(ACTORS) as view, anyio.create_task_group() as rollouts:

            async def roll_out(number: int) -> None:
                results[number] = await view.rollout(RolloutSpec("", Task("t", "" if number else fault)))

            for number in range(7):
                rollouts.start_soon(roll_out, number)
    struck = results.pop(0)
    assert [(result.kind, result.deaths, result.level) for result in results.values()] == [("ok", (), level)] * 6
    return struck, executor


@pytest.mark.parametrize("level", ["limits", "landlock", "bubblewrap"])
@pytest.mark.parametrize("fault", FATAL)
async def test_what_ends_it_every_time(level: Any, fault: str, anyio_backend: Any) -> None:
    struck, executor = await rolled_out(level, fault)
    assert (struck.kind, struck.deaths) == ("infrastructure", (FATAL[fault],) * 3)
    assert struck.died_every_time
    assert executor.counters()["workers_lost"] == 3
    assert executor.counters()["redispatched"] == 2


@pytest.mark.parametrize("level", ["limits", "landlock", "bubblewrap"])
@pytest.mark.parametrize("fault", [*HARMLESS, "memory hog"])
async def test_what_does_not(level: Any, fault: str, anyio_backend: Any) -> None:
    struck, executor = await rolled_out(level, fault)
    assert struck.kind == ("model" if fault == "memory hog" else "ok")
    assert len(struck.log) < 32_768
    # In a worker that has had another one before, whose memory that is nobody knows: it is tried once more.
    tries = 1 if fault == "memory hog" and level == "limits" else 0
    assert executor.counters()["redispatched"] == len(struck.deaths) <= tries

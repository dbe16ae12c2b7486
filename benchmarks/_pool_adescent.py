"""This library's process executor behind the face of `_pool_peers`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from _pool_peers import WORKERS, Note
from _pool_tasks import Task

from adescent.executors import ProcessExecutor
from adescent.refs import Ref
from adescent.tasks import Task as Row
from adescent.workspec import RolloutSpec

RUN = Ref("_pool_tasks:run", call=False)
REWARD = Ref("_pool_tasks:reward", call=False)
HANG_TIMEOUT = 600.0


class NoScore(Exception):
    """A rollout that ended with a failure of this type."""


class Adescent:
    """Two workers, everything else as it comes by default."""

    def __init__(self, limit: float | None = None) -> None:
        self.executor = ProcessExecutor(WORKERS, allow=("_pool_tasks:",), hang_timeout=limit or HANG_TIMEOUT)

    async def __aenter__(self) -> Self:
        await self.executor.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.executor.__aexit__(None, None, None)

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        async with self.executor.map_rollouts(specs(tasks)) as results:
            async for result in results:
                note(int(result.task_id), NoScore(result.error.type) if result.error else result.output)


def specs(tasks: Sequence[Task]) -> Iterator[RolloutSpec]:
    """The tasks as rollouts."""
    for index, (kind, argument, artifact, payload) in enumerate(tasks):
        yield RolloutSpec(artifact, Row(str(index), payload, {"kind": kind, "argument": argument}), RUN, REWARD)

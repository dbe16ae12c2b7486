"""Many rollouts under way in one task, where the executor needs none for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, runtime_checkable

from anyio import create_task_group
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from attrs import frozen

from adescent.cancellation import own_task
from adescent.executors.wakeup import one_shots
from adescent.sidebyside import FirstError
from adescent.workspec import Result, RolloutSpec

__all__ = ["Begun", "Deliver", "Unattended", "deliver_unattended"]

BEGUN_AT_ONCE = 64
"""Those that are begun before anything else has its turn: they take half a millisecond."""

Deliver = Callable[[Sequence[tuple[int, Result]]], Awaitable[None]]
"""Takes results, each with the number of its spec."""


class Begun(Protocol):
    """A rollout that is under way, or has ended."""

    def result(self) -> Result:
        """What came of it, once it has ended."""
        ...

    def withdraw(self) -> None:
        """It is not wanted any more."""
        ...


@runtime_checkable
class Unattended(Protocol):
    """An executor that can have rollouts under way of which no task waits for the end."""

    def begin_rollout(self, spec: RolloutSpec, ended: Callable[[], None]) -> Begun | None:
        """Have it under way; ``ended`` is called, in the thread of the loop, when it has ended.

        None where it takes more than that: `rollout` is to do it.
        """
        ...

    async def rollout(self, spec: RolloutSpec) -> Result:
        """As every executor's."""
        ...


@frozen
class _Ended:
    """One that a task has attended to."""

    of: Result

    def result(self) -> Result:
        return self.of

    def withdraw(self) -> None:
        """Too late."""


async def deliver_unattended(executor: Unattended, specs: Iterable[RolloutSpec], width: int, deliver: Deliver) -> None:
    """Run all specs, ``width`` at a time, and hand over each result.

    To wake a task for every result costs as much as all the rest that a rollout takes here; this one is woken for those
    that have ended in one turn of the loop.
    """
    numbered = enumerate(specs)
    first = FirstError()
    async with create_task_group() as group:
        crowd = _Crowd(executor, group, first)
        with first.ending(group.cancel_scope):
            try:
                while True:
                    for count, (index, spec) in enumerate(islice(numbered, width - crowd.under_way), 1):
                        crowd.begin(index, spec)
                        if count % BEGUN_AT_ONCE == 0:
                            await checkpoint()
                    if not crowd.under_way:
                        break
                    await deliver(await crowd.ended())
            finally:
                crowd.withdraw()
    first.raise_bare()


class _Crowd:
    """Those that are under way, by number."""

    def __init__(self, executor: Unattended, group: TaskGroup, first: FirstError) -> None:
        self._executor = executor
        self._group = group
        self._first = first
        self._rollouts: dict[int, Begun | None] = {}
        self._ended: list[int] = []
        self._one_shot = one_shots()
        self._bell = self._one_shot()

    @property
    def under_way(self) -> int:
        """How many there are whose results have not been given."""
        return len(self._rollouts)

    def begin(self, index: int, spec: RolloutSpec) -> None:
        """One more, with a task of its own if it needs one."""
        self._rollouts[index] = begun = self._executor.begin_rollout(spec, partial(self._end, index))
        if begun is None:
            self._group.start_soon(self._attend, index, spec, name=f"rollouts · {index}")

    async def ended(self) -> list[tuple[int, Result]]:
        """Wait until some have ended; what came of them, by number."""
        await self._bell.wait()
        self._bell = self._one_shot()
        ended, self._ended = self._ended, []
        return [(index, self._take(index)) for index in ended]

    def withdraw(self) -> None:
        """None that is left is wanted any more."""
        for begun in self._rollouts.values():
            if begun is not None:
                begun.withdraw()

    def _take(self, index: int) -> Result:
        begun = self._rollouts.pop(index)
        assert begun is not None  # whoever attends to one puts down what came of it
        return begun.result()

    def _end(self, index: int) -> None:
        self._ended.append(index)
        self._bell.set()

    async def _attend(self, index: int, spec: RolloutSpec) -> None:
        with self._first.ending(self._group.cancel_scope), own_task():
            self._rollouts[index] = _Ended(await self._executor.rollout(spec))
            self._end(index)

"""Rollouts that no task waits for, told by an executor whose rollouts end when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import anyio
import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from adescent.executors.unattended import Begun, deliver_unattended
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("anyio_backend")]

BOUND = 10.0
ALONE = "alone"
"""Rendered, of a rollout that needs a task of its own."""
AT_ONCE = "at once"
"""Of one that has ended before anybody could wait for it."""


def specs(*rendered: str) -> list[RolloutSpec]:
    return [RolloutSpec(each, Task(str(number), "?")) for number, each in enumerate(rendered)]


class Scripted:
    """Begins what it is asked to, and ends it when it is told to."""

    def __init__(self) -> None:
        self.under_way: dict[str, Callable[[], None]] = {}
        self.alone: dict[str, anyio.Event] = {}
        self.withdrawn: list[str] = []
        self.most = 0

    def begin_rollout(self, spec: RolloutSpec, ended: Callable[[], None]) -> Begun | None:
        if spec.rendered == ALONE:
            return None
        if spec.rendered == AT_ONCE:
            ended()
        else:
            self.under_way[spec.task.id] = ended
            self.most = max(self.most, len(self.under_way) + len(self.alone))
        return Handed(self, spec)

    async def rollout(self, spec: RolloutSpec) -> Result:
        self.alone[spec.task.id] = anyio.Event()
        try:
            await self.alone[spec.task.id].wait()
        except BaseException:
            self.withdrawn.append(spec.task.id)
            raise
        del self.alone[spec.task.id]
        return Result("", spec.task.id, "attended to")

    def end(self, *ids: str) -> None:
        for each in ids:
            if each in self.alone:
                self.alone[each].set()
            else:
                self.under_way.pop(each)()


class Handed:
    def __init__(self, executor: Scripted, spec: RolloutSpec) -> None:
        self.executor = executor
        self.spec = spec

    def result(self) -> Result:
        return Result("", self.spec.task.id, "handed over")

    def withdraw(self) -> None:
        self.executor.withdrawn.append(self.spec.task.id)


class Delivered:
    """Takes results, or refuses to."""

    def __init__(self) -> None:
        self.came: list[tuple[int, str]] = []
        self.refuses: int | None = None
        self.room = anyio.Event()
        self.room.set()

    async def __call__(self, ended: Sequence[tuple[int, Result]]) -> None:
        await self.room.wait()
        for index, result in ended:
            if index == self.refuses:
                raise LookupError("not wanted")
            assert result.task_id == str(index)
            self.came.append((index, result.output))


async def test_results_are_handed_over_as_rollouts_end() -> None:
    executor, delivered = Scripted(), Delivered()
    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(deliver_unattended, executor, specs("a", "b", "c", "d"), 3, delivered)
            await wait_all_tasks_blocked()
            assert set(executor.under_way) == {"0", "1", "2"}
            executor.end("2", "0")
            await wait_all_tasks_blocked()
            assert delivered.came == [(2, "handed over"), (0, "handed over")]
            assert set(executor.under_way) == {"1", "3"}
            executor.end("1", "3")
    assert [index for index, _ in delivered.came] == [2, 0, 1, 3]
    assert executor.most == 3
    assert not executor.withdrawn


async def test_one_that_needs_a_task_gets_it_and_holds_up_no_other() -> None:
    executor, delivered = Scripted(), Delivered()
    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(deliver_unattended, executor, specs(ALONE, "b", ALONE, "d"), 2, delivered)
            await wait_all_tasks_blocked()
            executor.end("1")
            await wait_all_tasks_blocked()
            assert set(executor.alone) == {"0", "2"}
            executor.end("2", "0")
            await wait_all_tasks_blocked()
            executor.end("3")
    assert sorted(delivered.came) == [(0, "attended to"), (1, "handed over"), (2, "attended to"), (3, "handed over")]


async def test_no_more_begin_while_results_are_not_taken() -> None:
    executor, delivered = Scripted(), Delivered()
    delivered.room = anyio.Event()
    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(deliver_unattended, executor, specs(*"abcdef"), 2, delivered)
            await wait_all_tasks_blocked()
            executor.end("0", "1")
            await wait_all_tasks_blocked()
            assert not executor.under_way
            delivered.room.set()
            for pair in (("2", "3"), ("4", "5")):
                await wait_all_tasks_blocked()
                executor.end(*pair)
    assert len(delivered.came) == 6


@pytest.mark.parametrize("width", [1, 4])
async def test_what_ends_at_once_for_ever_leaves_the_loop_to_others(width: int) -> None:
    executor, delivered = Scripted(), Delivered()

    def endless() -> Iterator[RolloutSpec]:
        number = 0
        while True:
            yield RolloutSpec(AT_ONCE, Task(str(number), "?"))
            number += 1

    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(deliver_unattended, executor, endless(), width, delivered)
            while len(delivered.came) < 100:
                await checkpoint()
            group.cancel_scope.cancel()


async def test_very_many_begin_in_turns_with_others() -> None:
    executor, delivered = Scripted(), Delivered()
    many = 20_000
    turns_of_others = 0

    async def others() -> None:
        nonlocal turns_of_others
        while len(executor.under_way) < many:
            turns_of_others += 1
            await checkpoint()

    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(deliver_unattended, executor, specs(*["a"] * many), many, delivered)
            await checkpoint()
            await others()
            group.cancel_scope.cancel()
    assert turns_of_others >= 2
    assert len(executor.withdrawn) == many


def broken() -> Iterator[RolloutSpec]:
    yield from specs("a", ALONE)
    raise LookupError("row 2 is unreadable")


@pytest.mark.parametrize(
    ("given", "refuses", "words"), [(broken, None, "row 2"), (partial(specs, "a", ALONE, AT_ONCE), 2, "not wanted")]
)
async def test_an_error_around_them_withdraws_all_and_comes_out_bare(
    given: Callable[[], Iterable[RolloutSpec]], refuses: int | None, words: str
) -> None:
    executor, delivered = Scripted(), Delivered()
    delivered.refuses = refuses
    with fail_after(BOUND), pytest.raises(LookupError, match=words):
        await deliver_unattended(executor, given(), 8, delivered)
    assert "0" in executor.withdrawn
    assert not executor.alone or executor.withdrawn.count("1") == 1


async def test_an_error_of_one_with_a_task_withdraws_the_others_and_comes_out_bare() -> None:
    executor, delivered = Scripted(), Delivered()

    async def fails(spec: RolloutSpec) -> Result:
        raise ArithmeticError(spec.task.id)

    executor.rollout = fails  # type: ignore[method-assign]
    with fail_after(BOUND), pytest.raises(ArithmeticError, match="1"):
        await deliver_unattended(executor, specs("a", ALONE), 8, delivered)
    assert executor.withdrawn == ["0"]


async def test_cancelling_withdraws_all() -> None:
    executor, delivered = Scripted(), Delivered()
    with fail_after(BOUND):
        async with create_task_group() as group:
            group.start_soon(deliver_unattended, executor, specs("a", ALONE, "c"), 8, delivered)
            await wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert sorted(executor.withdrawn) == ["0", "1", "2"]
    assert not delivered.came

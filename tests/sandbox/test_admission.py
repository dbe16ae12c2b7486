"""A ceiling within one process: at most so many at once, in order, and no place is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError, OptionError, WrongThread
from adescent.policies import AdmissionControl
from adescent.sandbox.admission import Admission
from adescent.sandbox.lockpipe import is_held

BOUND = 20.0

Make = Callable[[int], Admission]
both_loops = pytest.mark.anyio


@pytest.fixture(params=["alone", "shared"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes an admission of each kind."""
    return lambda n: Admission(n, None if request.param == "alone" else tmp_path / "ceiling")


async def all_free(admission: Admission) -> None:
    """As many can be inside as there are places."""
    with anyio.fail_after(BOUND):
        async with AsyncExitStack() as inside:
            for _ in range(admission.n):
                await inside.enter_async_context(admission.admitted())


async def not_let_in(admission: Admission) -> None:
    """Whoever comes now has to wait."""

    async def wait() -> None:
        async with admission.admitted():
            pytest.fail("let in though all places are taken")

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


def in_line(directory: Path) -> int:
    return len(list((directory / "line").iterdir()))


@both_loops
async def test_at_most_so_many_at_once(make: Make, anyio_backend: Any) -> None:
    admission = make(3)
    inside: list[int] = []
    counts = []

    async def work(number: int) -> None:
        async with admission.admitted():
            inside.append(number)
            counts.append(len(inside))
            for _ in range(number % 4):
                await checkpoint()
            inside.remove(number)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(work, number)
    assert len(counts) == 60
    assert max(counts) == 3
    await all_free(admission)


@both_loops
async def test_tasks_are_let_in_in_the_order_they_came(make: Make, anyio_backend: Any) -> None:
    admission = make(1)
    order = []

    async def work(number: int) -> None:
        async with admission.admitted():
            order.append(number)
            await checkpoint()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group, admission.admitted():
            for number in range(10):
                group.start_soon(work, number)
                await anyio.wait_all_tasks_blocked()
    assert order == list(range(10))


@both_loops
async def test_an_error_in_the_block_gives_the_place_back(make: Make, anyio_backend: Any) -> None:
    admission = make(1)
    with anyio.fail_after(BOUND):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with admission.admitted():
                    raise ZeroDivisionError
    await all_free(admission)


@both_loops
@pytest.mark.parametrize("steps", range(12))
async def test_a_wait_that_is_cancelled_takes_no_place(steps: int, make: Make, anyio_backend: Any) -> None:
    """Cancelled at every step of a wait whose end comes at any step too."""
    admission = make(2)

    async def wait(scope: anyio.CancelScope) -> None:
        with scope:
            async with admission.admitted():
                await checkpoint()

    async def after(steps: int, then: Callable[[], object]) -> None:
        for _ in range(steps):
            await checkpoint()
        then()

    with anyio.fail_after(BOUND):
        for until_free in range(6):
            async with anyio.create_task_group() as group, AsyncExitStack() as inside:
                for _ in range(admission.n):
                    await inside.enter_async_context(admission.admitted())
                scopes = [anyio.CancelScope() for _ in range(4)]
                for scope in scopes:
                    group.start_soon(wait, scope)
                group.start_soon(after, steps, scopes[0].cancel)
                group.start_soon(after, steps + 1, scopes[2].cancel)
                for _ in range(until_free):
                    await checkpoint()
    await all_free(admission)


@both_loops
async def test_in_a_cancelled_scope_nothing_is_kept(make: Make, anyio_backend: Any) -> None:
    admission = make(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with admission.admitted():
            await checkpoint()
    await all_free(admission)


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "4", None])
def test_a_number_that_is_none_is_refused(n: Any, make: Make) -> None:
    with pytest.raises(OptionError, match=r"Admission\(n="):
        make(n)


def test_one_object_serves_one_loop_after_the_other(make: Make) -> None:
    admission = make(1)

    async def use() -> None:
        await all_free(admission)
        async with admission.admitted():
            await not_let_in(admission)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(use, backend=backend)


@both_loops
async def test_another_loop_meanwhile_is_refused(make: Make, anyio_backend: Any) -> None:
    admission = make(2)
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            anyio.run(all_free, admission)
        except WrongThread as error:
            raised.append(error)

    with anyio.fail_after(BOUND):
        async with admission.admitted():
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
    assert len(raised) == 1
    await all_free(admission)


# Several objects and one directory -----------------------------------------------------------------------------------


@both_loops
async def test_objects_share_a_directorys_places(anyio_backend: Any, tmp_path: Path) -> None:
    one, other = Admission(2, tmp_path), Admission(2, str(tmp_path))
    control: AdmissionControl = other
    with anyio.fail_after(BOUND):
        async with one.admitted(), control.admitted():
            await not_let_in(one)
            await not_let_in(other)
        async with other.admitted(), other.admitted():
            pass
    assert in_line(tmp_path) == 0


@both_loops
async def test_objects_take_turns(anyio_backend: Any, tmp_path: Path) -> None:
    many, few = Admission(1, tmp_path), Admission(1, tmp_path)
    order = []

    async def work(admission: Admission, name: str) -> None:
        async with admission.admitted():
            order.append(name)
            await checkpoint()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group, many.admitted():
            for _ in range(5):
                group.start_soon(work, many, "many")
                await anyio.wait_all_tasks_blocked()
            for _ in range(2):
                group.start_soon(work, few, "few")
                await anyio.wait_all_tasks_blocked()
    assert order == ["many", "few", "many", "few", "many", "many", "many"]


@both_loops
async def test_who_comes_later_does_not_overtake_the_line(anyio_backend: Any, tmp_path: Path) -> None:
    first, late = Admission(1, tmp_path), Admission(1, tmp_path)
    order = []

    async def work(admission: Admission, name: str) -> None:
        async with admission.admitted():
            order.append(name)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            async with late.admitted():
                group.start_soon(work, first, "first")
                await anyio.wait_all_tasks_blocked()
            await work(late, "late")  # there is a place now, and it is not theirs
    assert order == ["first", "late"]


@both_loops
async def test_whose_wait_is_cancelled_leaves_the_line(anyio_backend: Any, tmp_path: Path) -> None:
    holder, front, behind = (Admission(1, tmp_path) for _ in range(3))
    got_in = anyio.Event()

    async def wait_in_front(scope: anyio.CancelScope) -> None:
        with scope:
            async with front.admitted():
                pytest.fail("let in though cancelled")

    async def wait_behind() -> None:
        async with behind.admitted():
            got_in.set()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()
            async with holder.admitted():
                group.start_soon(wait_in_front, scope)
                await anyio.wait_all_tasks_blocked()
                group.start_soon(wait_behind)
                await anyio.wait_all_tasks_blocked()
                assert in_line(tmp_path) == 2
                scope.cancel()
            await got_in.wait()
    assert in_line(tmp_path) == 0


@both_loops
async def test_what_happens_while_one_looks_is_not_missed(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is let go after it was found held, and before the wait for that begins."""
    holder, waiter = Admission(1, tmp_path), Admission(1, tmp_path)
    letting_go: list[int | None] = []

    def and_then_let_go(pipe: int) -> bool:
        held = is_held(pipe)
        if held:
            holder._leave(letting_go.pop())
        return held

    with anyio.fail_after(BOUND):
        letting_go.append(await holder._enter())
        monkeypatch.setattr("adescent.sandbox.places.is_held", and_then_let_go)
        async with waiter.admitted():
            assert letting_go == []


def test_another_number_for_the_same_directory_is_refused(tmp_path: Path) -> None:
    Admission(4, tmp_path / "ceiling")
    Admission(4, tmp_path / "ceiling")
    with pytest.raises(ContractError, match=r"ceiling admits 4 at once, and n=8 was asked for: give the same n"):
        Admission(8, tmp_path / "ceiling")


def test_a_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ContractError, match=r"Admission\(directory='.*file'\) cannot be used"):
        Admission(4, tmp_path / "file")

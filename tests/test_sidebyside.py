from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import anyio
import pytest

from adescent.sidebyside import FirstError, side_by_side

pytestmark = pytest.mark.anyio


class Broken(Exception):
    """An error of the caller's."""


async def fails(error: Exception) -> None:
    raise error


async def test_results_come_in_the_order_of_the_calls_whichever_ends_first(anyio_backend: Any) -> None:
    second_ended = anyio.Event()

    async def first() -> int:
        await second_ended.wait()
        return 1

    async def second() -> int:
        second_ended.set()
        return 2

    with anyio.fail_after(5):
        assert await side_by_side(first, second) == [1, 2]
    assert await side_by_side() == []


async def test_the_first_error_cancels_the_others_and_comes_bare(anyio_backend: Any) -> None:
    cancelled = []

    async def waits() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise

    with anyio.fail_after(5), pytest.raises(Broken):
        await side_by_side(waits, partial(fails, Broken()), waits)
    assert cancelled == [True, True]


async def test_what_fails_because_it_was_cancelled_is_not_what_is_raised(anyio_backend: Any) -> None:
    async def falls_over() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ZeroDivisionError

    with anyio.fail_after(5), pytest.raises(Broken):
        await side_by_side(falls_over, partial(fails, Broken()))


async def test_cancelled_from_outside_it_is_cancelled(anyio_backend: Any) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await side_by_side(anyio.sleep_forever, anyio.sleep_forever)
    assert scope.cancelled_caught


async def test_tasks_have_the_name_they_were_given(anyio_backend: Any) -> None:
    async def called() -> str | None:
        return anyio.get_current_task().name

    assert await side_by_side(called, called, name="fork") == ["fork · 0", "fork · 1"]


async def test_an_error_is_gone_with_who_caught_it(anyio_backend: Any) -> None:
    first = FirstError()
    gc.disable()
    try:
        scope = anyio.CancelScope()
        with first.ending(scope):
            raise Broken
        assert scope.cancel_called
        with pytest.raises(Broken) as caught:
            first.raise_bare()
        first.raise_bare()
        kept = weakref.ref(caught.value)
        del caught
        assert kept() is None
    finally:
        gc.enable()

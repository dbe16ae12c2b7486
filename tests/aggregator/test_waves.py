from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from adescent.aggregator.waves import in_one_wave

pytestmark = pytest.mark.anyio


async def test_results_come_in_the_order_of_the_calls_whichever_ends_first(anyio_backend: Any) -> None:
    second_ended = anyio.Event()

    async def first() -> int:
        await second_ended.wait()
        return 1

    async def second() -> int:
        second_ended.set()
        return 2

    with anyio.fail_after(5):
        assert await in_one_wave(first, second) == [1, 2]
    assert await in_one_wave() == []


async def test_the_first_error_cancels_the_others_and_comes_bare(anyio_backend: Any) -> None:
    cancelled = []

    async def waits() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise

    async def fails(error: Exception) -> None:
        raise error

    with anyio.fail_after(5), pytest.raises(ZeroDivisionError):
        await in_one_wave(waits, partial(fails, ZeroDivisionError()), waits)
    assert cancelled == [True, True]


async def test_cancelled_from_outside_it_is_cancelled(anyio_backend: Any) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await in_one_wave(anyio.sleep_forever, anyio.sleep_forever)
    assert scope.cancelled_caught

"""The blocking doors: who may use them where."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest
import trio

from adescent.errors import LoopRunning
from adescent.executors.blocking import run_blocking

whose: ContextVar[str] = ContextVar("whose", default="nobody's")


async def answer() -> str:
    await anyio.lowlevel.checkpoint()
    return whose.get()


def door() -> str:
    return run_blocking(answer, name="door()", instead="knock()")


def test_a_script_goes_in_and_keeps_its_context() -> None:
    context = copy_context()
    context.run(whose.set, "mine")
    assert context.run(door) == "mine"


def test_what_is_raised_inside_comes_out_bare() -> None:
    async def fail() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        run_blocking(fail, name="door()", instead="knock()")


@pytest.mark.anyio
async def test_inside_a_loop_it_says_what_to_await(anyio_backend: Any) -> None:
    with pytest.raises(LoopRunning, match=r"door\(\) blocks .*await knock\(\)"):
        door()


def test_in_a_callback_of_a_loop_too() -> None:
    raised: list[BaseException] = []

    def call() -> None:
        try:
            door()
        except LoopRunning as error:
            raised.append(error)

    async def host() -> None:
        asyncio.get_running_loop().call_soon(call)
        await anyio.lowlevel.checkpoint()

    asyncio.run(host())
    assert len(raised) == 1


async def in_a_context_of_ones_own(function: Callable[[], str]) -> str:
    """A thread that takes the context of the loop's task with it, as many frameworks' threads do."""
    answers: list[str] = []
    inherited = copy_context()
    thread = threading.Thread(target=lambda: answers.append(inherited.run(function)))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    return answers[0]


@pytest.mark.anyio
@pytest.mark.parametrize("way", [anyio.to_thread.run_sync, in_a_context_of_ones_own])
async def test_a_hosts_threads_are_no_loop(way: Callable[..., Any], anyio_backend: Any) -> None:
    whose.set("the host's")
    with anyio.fail_after(10):
        assert await way(door) == "the host's"


def test_threads_of_asyncio_under_anyio_are_no_loop() -> None:
    async def host() -> str:
        return await asyncio.to_thread(door)

    assert anyio.run(host) == "nobody's"


def test_threads_of_trio_are_no_loop() -> None:
    async def host() -> str:
        return await trio.to_thread.run_sync(door)

    assert trio.run(host) == "nobody's"

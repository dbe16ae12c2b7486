"""What every test gets: both event loops, and a look at what it left behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import select
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import sniffio
from attrs import frozen
from hypothesis import HealthCheck, settings

SETTLING_SECONDS = 2.0
"""How long what a test has told to end may take to be gone."""

# No wall time is asserted anywhere, so hypothesis does not do it either: the machine may be busy. A change is judged by
# the same examples each time; new ones are looked for by whoever asks (`--hypothesis-profile=explore`, as nox does).
settings.register_profile("adescent", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("adescent"), derandomize=False)
settings.load_profile("adescent")


# Module scope, so that module-scoped async fixtures work and hypothesis accepts it; every test still has a new loop.
@pytest.fixture(
    scope="module",
    params=[pytest.param(("asyncio", {"debug": False}), id="asyncio"), pytest.param(("trio", {}), id="trio")],
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run a test that is marked ``anyio`` on one loop after the other."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what is marked ``mainly`` for one loop to the slow tests on the other one."""
    for item in items:
        mark = item.get_closest_marker("mainly")
        if mark is not None and isinstance(item, pytest.Function):
            backend: Any = item.callspec.params["anyio_backend"]
            if backend[0] not in mark.args:
                item.add_marker(pytest.mark.slow)


@frozen
class Holdings:
    """What this process holds at one moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    files: frozenset[tuple[int, str]]

    @classmethod
    def now(cls) -> Holdings:
        """Take stock."""
        return cls(frozenset(_busy_threads()), frozenset(_children()), frozenset(_open_files()))

    def beyond(self, earlier: Holdings) -> Holdings:
        """Return what is held now and was not held earlier."""
        return Holdings(self.threads - earlier.threads, self.children - earlier.children, self.files - earlier.files)

    def __bool__(self) -> bool:
        return bool(self.threads or self.children or self.files)

    def __str__(self) -> str:
        threads = [f"thread {thread.name!r}" for thread in self.threads]
        children = [f"child process {pid}" for pid in self.children]
        files = [f"file descriptor {number} ({target})" for number, target in self.files]
        return ", ".join(sorted(threads + children + files))


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail the test that leaves a thread, a child process or an open file."""
    before = Holdings.now()
    yield
    left = Holdings.now().beyond(before)
    if left:
        _let_settle(left)
        left = Holdings.now().beyond(before)
    if left:
        pytest.fail(f"the test left behind: {left}", pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Look for tasks from inside the loop: once it is closed, what it cancelled cannot be seen any more."""
    if pyfuncitem.get_closest_marker("anyio") is not None:
        examples = getattr(pyfuncitem.obj, "hypothesis", None)
        if examples is None and iscoroutinefunction(pyfuncitem.obj):
            pyfuncitem.obj = _leaving_no_task(pyfuncitem.obj)
        elif examples is not None and iscoroutinefunction(examples.inner_test):
            examples.inner_test = _leaving_no_task(examples.inner_test)
    return (yield)


def _leaving_no_task(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def watched(*args: Any, **kwargs: Any) -> None:
        before = _tasks()
        await test(*args, **kwargs)
        if left := _tasks() - before:
            pytest.fail(f"the test left tasks behind: {sorted(map(repr, left))}", pytrace=False)

    return watched


def _tasks() -> set[Any]:
    if sniffio.current_async_library() == "trio":
        from trio.lowlevel import current_root_task

        return set(_below(current_root_task()))
    return set(asyncio.all_tasks())


def _below(task: Any) -> Iterator[Any]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _below(child)


def _busy_threads() -> Iterator[threading.Thread]:
    for thread in threading.enumerate():
        # trio keeps idle threads for a while and gives them this name; one at work is called after its work. What
        # anyio keeps for asyncio ends with its loop, which that of a fixture of a whole module has not done yet.
        if not thread.name.startswith("Trio thread") and thread not in getattr(thread, "idle_workers", ()):
            yield thread


def _children() -> Iterator[int]:
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            yield from map(int, listing.read_text().split())
        except OSError:  # the thread ended meanwhile
            continue


def _open_files() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # it was the descriptor of this very listing
            continue
        yield int(entry.name), target


def _let_settle(left: Holdings) -> None:
    """Wait, within bounds, for threads and children to end, and drop what only a cycle still holds."""
    deadline = time.monotonic() + SETTLING_SECONDS
    for thread in left.threads:
        _await_end(thread, deadline)
    for pid in left.children:
        _await_exit(pid, max(0.0, deadline - time.monotonic()))
    gc.collect()


def _await_end(thread: threading.Thread, deadline: float) -> None:
    # In slices, because one of trio's threads does not end with its work: it only becomes idle.
    while time.monotonic() < deadline and thread in _busy_threads():
        thread.join(0.02)


def _await_exit(pid: int, seconds: float) -> None:
    try:
        exited = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([exited], [], [], seconds)
    finally:
        os.close(exited)

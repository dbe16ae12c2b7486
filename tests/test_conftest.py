"""The watch over what tests leave behind, shown to catch each kind on a test that leaks it; and a mark of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CLEAN = """
import anyio, anyio.to_thread, pytest, subprocess, sys, threading
from hypothesis import given, strategies as st

@pytest.mark.anyio
async def test_ends_what_it_starts(anyio_backend):
    async with anyio.create_task_group() as tg:
        tg.start_soon(anyio.lowlevel.checkpoint)
    await anyio.to_thread.run_sync(int)

@pytest.mark.anyio
@given(number=st.integers())
async def test_property(anyio_backend, number):
    await anyio.lowlevel.checkpoint()

def test_late_but_ending():
    threading.Timer(0.1, int).start()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
"""

LEAKING = """
import asyncio, os, pytest, sniffio, sys, threading, trio

kept = []

def test_thread():
    threading.Thread(target=threading.Event().wait, daemon=True, name="forgotten").start()

def test_child():
    os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})

def test_file():
    os.open("/proc/self/status", os.O_RDONLY)

async def forgotten():
    await (asyncio if sniffio.current_async_library() == "asyncio" else trio).sleep(60)

@pytest.mark.anyio
async def test_task(anyio_backend):
    if sniffio.current_async_library() == "asyncio":
        kept.append(asyncio.get_running_loop().create_task(forgotten()))
    else:
        trio.lowlevel.spawn_system_task(forgotten)
"""

SHARED_OUT = """
import pytest

pytestmark = pytest.mark.anyio

@pytest.mark.mainly("trio")
async def test_here(anyio_backend):
    pass

@pytest.mark.parametrize("case", [pytest.param(1, marks=pytest.mark.mainly("asyncio")), 2])
async def test_there(case, anyio_backend):
    pass
"""


@pytest.fixture
def watch() -> str:
    """Return the source of the watch, to be laid over a scratch project."""
    return Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")


def test_what_ends_in_time_is_no_leak(pytester: pytest.Pytester, watch: str) -> None:
    pytester.makeconftest(watch)
    pytester.makepyfile(CLEAN)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=5)


def test_every_kind_of_leak_is_laid_to_its_test(pytester: pytest.Pytester, watch: str) -> None:
    pytester.makeconftest(watch + "\nSETTLING_SECONDS = 0.1\n")  # nothing here settles, so nothing is worth waiting for
    pytester.makepyfile(LEAKING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3, errors=3, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*left behind: thread 'forgotten'*",
            "*left behind: child process *",
            "*left behind: file descriptor * (/proc/*/status)*",
            "*left tasks behind: *Task pending*forgotten*",
            "*left tasks behind: *Task *forgotten*",
        ]
    )


def test_what_is_mainly_for_one_loop_is_slow_on_the_other(pytester: pytest.Pytester, watch: str) -> None:
    pytester.makeconftest(watch)
    pytester.makeini("[pytest]\nmarkers = slow\n  mainly(loop)\n")
    pytester.makepyfile(SHARED_OUT)
    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-m", "not slow", "-v")
    ran.assert_outcomes(passed=4, deselected=2)
    ran.stdout.fnmatch_lines_random(
        ["*test_here?trio? PASSED*", *(f"*test_there?{case}? PASSED*" for case in ("asyncio-1", "asyncio-2", "trio-2"))]
    )

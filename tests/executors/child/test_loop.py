"""Async actors in a worker: side by side on one loop, stopped when not wanted; plain ones in the main thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from adescent.executors.wire import Bye, Cancel, Done, Failed, Log

Start = Callable[..., Any]

WAIT = "import anyio; print('waits'); await anyio.sleep_forever()"


def test_the_loop_is_the_parents_kind(looping: Any, loop: str) -> None:
    code = "import sniffio, sys; return [sniffio.current_async_library(), 'trio' in sys.modules]"
    assert looping.output(1, code, 2) == [loop, loop == "trio"]


def test_they_run_side_by_side_on_one_loop(looping: Any) -> None:
    looping.begin(1, "import anyio; shared['e'] = anyio.Event(); print('here'); await shared['e'].wait(); return 1", 2)
    looping.expect(Log)
    looping.begin(2, "shared['e'].set(); return 2", 2)
    assert {looping.expect(Done).output, looping.expect(Done).output} == {1, 2}


def test_a_scorer_may_wait(looping: Any) -> None:
    judge = "async def verdict():\n  import anyio; await anyio.lowlevel.checkpoint(); return 0.25\nscore = verdict()"
    answer, _ = looping.answer(1, "return 1", 2, meta={"judge": judge})
    assert (answer.output, answer.score) == (1, 0.25)


def test_one_under_way_is_stopped_and_the_others_go_on(looping: Any) -> None:
    looping.begin(1, WAIT, 2)
    looping.expect(Log)
    looping.begin(2, "import anyio; await anyio.lowlevel.checkpoint(); return 2", 2)
    looping.send(Cancel(1))
    said = [looping.next() for _ in range(2)]
    (failed,) = (message for message in said if isinstance(message, Failed))
    (done,) = (message for message in said if isinstance(message, Done))
    assert (failed.lease, failed.kind, failed.stage, failed.type) == (1, "infrastructure", "worker", "Cancelled")
    assert (done.lease, done.output) == (2, 2)


@pytest.mark.parametrize(
    "code",
    [
        "try: await anyio.sleep_forever()\nfinally: raise ValueError('instead')",
        "try: await anyio.sleep_forever()\nexcept BaseException: return 'instead'",
        "async with anyio.create_task_group() as group:\n  group.start_soon(anyio.sleep_forever)",
        "async def fail():\n  try: await anyio.sleep_forever()\n  finally: raise ValueError\n"
        "async with anyio.create_task_group() as group:\n  group.start_soon(fail)",
        "try: await anyio.sleep_forever()\n"
        "finally:\n  with anyio.CancelScope(shield=True): await anyio.lowlevel.checkpoint()",
    ],
)
def test_whatever_it_makes_of_being_stopped_it_is_stopped(looping: Any, code: str) -> None:
    looping.begin(1, f"import anyio\nprint('waits')\n{code}", 2)
    looping.expect(Log)
    looping.send(Cancel(1))
    answer = looping.next()
    assert (answer.lease, answer.type) == (1, "Cancelled")
    assert looping.output(2, "return 2", 2) == 2


def test_one_that_waits_to_be_begun_is_forgotten(start: Start, loop: str) -> None:
    worker = start(loop=loop)
    worker.begin(1, WAIT, 2)
    worker.expect(Log)
    worker.begin(2, "return 2", 2)
    worker.send(Cancel(1), Cancel(1), Cancel(99))
    assert {worker.next().lease for _ in range(2)} == {1, 2}
    worker.stop_talking()
    assert worker.next() == Bye()


def test_no_more_have_begun_than_may_be_in_flight(start: Start, loop: str) -> None:
    worker = start(loop=loop, in_flight=2)
    for lease in (1, 2, 3, 4):
        worker.begin(lease, WAIT if lease != 3 else "print('here')", 2)
    assert {worker.expect(Log).lease for _ in range(2)} == {1, 2}
    worker.send(Cancel(4), Cancel(1))
    assert worker.expect(Failed).lease == 1
    assert [worker.expect(Log).lease, worker.expect(Done).lease] == [3, 3]  # it has waited for its turn


STRAY = {
    "asyncio": [
        "import asyncio; raise asyncio.CancelledError",
        "import asyncio; asyncio.current_task().cancel()",
        "import asyncio; asyncio.current_task().cancel(); await asyncio.sleep(0)",
        "import asyncio; asyncio.current_task().cancel(); raise ValueError",
    ],
    "trio": ["import trio\nwith trio.CancelScope() as s:\n  s.cancel(); await trio.lowlevel.checkpoint()"],
}


def test_a_cancellation_it_has_made_up_is_its_own_affair(looping: Any, loop: str) -> None:
    looping.begin(1, WAIT, 2)
    looping.expect(Log)
    for lease, code in enumerate(STRAY[loop], start=2):
        answer, _ = looping.answer(lease, code, 2)
        assert answer.lease == lease
    looping.send(Cancel(1))
    assert looping.next().lease == 1
    assert looping.output(9, "return 9", 2) == 9


def test_those_under_way_are_stopped_when_nothing_more_will_come(start: Start, loop: str) -> None:
    worker = start(loop=loop)
    worker.begin(
        1, "import atexit, anyio; atexit.register(print, 'left')\nprint('waits'); await anyio.sleep_forever()", 2
    )
    worker.expect(Log)
    worker.stop_talking()
    assert worker.next() == Bye()
    assert worker.exit_code() == 0
    assert worker.rest() == "left\n"


def test_plain_functions_run_in_the_main_thread_with_no_loop_around_them(start: Start, loop: str) -> None:
    worker = start(loop=loop)
    code = f"""
        import anyio, signal, threading
        async def inner(): return 'inner'
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        output = [threading.current_thread() is threading.main_thread(), anyio.run(inner, backend={loop!r})]
    """
    assert worker.output(1, code) == [True, "inner"]
    assert worker.output(2, "return 2", 2) == 2
    assert worker.output(3, code) == [True, "inner"]


def test_a_plain_function_leaves_those_that_wait_waiting(looping: Any) -> None:
    looping.begin(1, "import anyio; shared['e'] = anyio.Event(); print('here'); await shared['e'].wait(); return 1", 2)
    looping.expect(Log)
    assert looping.output(2, "output = 2") == 2
    looping.begin(3, "shared['e'].set()", 2)
    assert {looping.expect(Done).lease, looping.expect(Done).lease} == {1, 3}


@pytest.mark.parametrize("before", [False, True], ids=["first of all", "on the loop"])
def test_what_a_plain_function_returns_is_awaited(start: Start, loop: str, before: bool) -> None:
    worker = start(loop=loop)
    if before:
        worker.output(1, "", 2)
    later = worker.has("later")
    answer, log = worker.answer(2, "import sniffio; print('log'); return sniffio.current_async_library()", later)
    assert (answer.output, log) == (loop, "log\n")
    failure = worker.failure(3, "raise SystemExit(3)", later)
    assert (failure.type, failure.message) == ("SystemExit", "3")


def test_what_an_async_function_forgot_to_await_is_awaited(looping: Any) -> None:
    job = looping.has("arun")
    assert looping.output(1, "async def forgotten(): return 1\nreturn forgotten()", job) == 1


def test_its_directory_is_emptied_when_nobody_is_in_it_any_more(start: Start, loop: str) -> None:
    worker = start(loop=loop, level="limits")
    job = worker.has("arun")
    worker.begin(1, "import anyio; shared['e'] = anyio.Event(); open('mine', 'w').close(); print('here')\n"
                    "await shared['e'].wait(); import os; return os.listdir()", job)  # fmt: skip
    worker.expect(Log)
    assert worker.output(2, "import os; return os.listdir()", job) == ["mine"]
    worker.begin(3, "shared['e'].set()", job)
    assert ["mine"] in [worker.expect(Done).output for _ in range(2)]
    assert worker.output(4, "import os; return os.listdir()", job) == []


def test_a_loop_that_is_stopped_ends_the_worker_and_is_no_fault_of_its_neighbours(start: Start) -> None:
    worker = start(loop="asyncio")
    worker.begin(1, WAIT, 2)
    worker.expect(Log)
    worker.begin(2, "import anyio, asyncio; asyncio.get_running_loop().stop(); await anyio.sleep_forever()", 2)
    assert "stopped the event loop" in worker.expect(Bye).reason
    assert worker.exit_code() == 1


@pytest.mark.parametrize(
    "comes_back",
    [
        "return 'copy'",
        "raise ValueError",
        "raise SystemExit",
        "await anyio.sleep(0.01); open('copy was here', 'w')",
        "await turn.wait(); open('copy was here', 'w')",
        "ctx.checkpoint(1)",
    ],
)
def test_a_forked_copy_does_not_go_on(start: Start, loop: str, comes_back: str) -> None:
    worker = start(loop=loop)
    code = f"""
    import anyio, os
    turn = shared['turn'] = anyio.Event()
    print('here')
    await anyio.lowlevel.checkpoint()
    if not (pid := os.fork()):
        {comes_back}
    await turn.wait()
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.listdir()]"""
    worker.begin(1, code.replace("\n    ", "\n"), 2)
    worker.expect(Log)
    worker.begin(2, "shared['turn'].set(); return 2", 2)
    assert {worker.expect(Done).lease, (ended := worker.expect(Done)).lease} == {1, 2}
    assert ended.output == [1, []]


def test_a_forked_copy_takes_nothing_from_the_loop_it_was_copied_with(start: Start, loop: str) -> None:
    worker = start(loop=loop)
    code = """
    import anyio, os, time
    turn = shared['turn'] = anyio.Event()
    print('here')
    while not os.path.exists('said'): time.sleep(0.001)
    if not (pid := os.fork()):
        await turn.wait()
    os.waitpid(pid, 0)
    await turn.wait()"""
    worker.begin(1, code.replace("\n    ", "\n"), 2)
    worker.expect(Log)
    worker.begin(2, "shared['turn'].set()", 2)
    (worker.workspace / "said").touch()
    assert {worker.expect(Done).lease, worker.expect(Done).lease} == {1, 2}


def test_the_copy_runs_no_other_rollout(start: Start) -> None:
    worker = start(loop="trio")  # asyncio runs all whose turn it is already
    code = """
    import anyio, os
    print('here')
    await (shared.setdefault('go', anyio.Event())).wait()
    with open('who', 'a') as file: file.write(f'{os.getpid()} ')
    if not shared.setdefault('pid', 0):
        shared['pid'] = os.fork()
        if not shared['pid']: await anyio.lowlevel.checkpoint()
        os.waitpid(shared['pid'], 0)"""
    for lease in (1, 2):
        worker.begin(lease, code.replace("\n    ", "\n"), 2)
        worker.expect(Log)
    worker.begin(3, "shared['go'].set()", 2)
    assert {worker.expect(Done).lease for _ in range(3)} == {1, 2, 3}
    assert len(set((worker.workspace / "who").read_text().split())) == 1


def test_a_copy_that_a_plain_function_has_forked_does_not_go_on_either(start: Start, loop: str) -> None:
    worker = start(loop=loop)
    assert worker.output(1, "return 1", 2) == 1
    code = "import os; pid = os.fork(); output = os.waitpid(pid, 0)[1] if pid else 'copy'"
    assert os.waitstatus_to_exitcode(worker.output(2, code)) == 1


def test_what_multiprocessing_forks_does_its_work(start: Start, loop: str) -> None:
    code = """
    import multiprocessing
    process = multiprocessing.get_context('fork').Process(target=open, args=('copy was here', 'w'))
    process.start()
    process.join()
    import os; return [process.exitcode, os.listdir()]"""
    worker = start(loop=loop)
    assert worker.output(1, code.replace("\n    ", "\n"), 2) == [0, ["copy was here"]]

"""Where a worker's prints go: those of a rollout into its log, all others to the standard descriptors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adescent.executors.child import log as child_log
from adescent.executors.wire import Done, Failed, Log
from adescent.sandbox.redaction import Redactor

Start = Callable[..., Any]
HEAD = TAIL = 8 * 1024


def logged(worker: Any, *args: Any, **kwargs: Any) -> str:
    answer, log = worker.answer(*args, **kwargs)
    assert isinstance(answer, Done), answer
    return str(log)


@pytest.mark.parametrize(
    ("code", "log"),
    [
        ("print('a', 1)", "a 1\n"),
        ("print('no end', end='')", "no end"),
        ("import sys; print('a', file=sys.stderr); print('b')", "a\nb\n"),
        ("import sys; sys.stdout.write('a'); sys.stdout.buffer.write(b'\\xc3\\xa9\\xff'); print()", "aé\ufffd\n"),
        ("import sys; print('é\\ud800'); print(sys.stdout.encoding)", "é\\ud800\nutf-8\n"),
        ("import sys; sys.__stdout__.write('a'); sys.__stderr__.write('b')", "ab"),
        ("import warnings; warnings.warn('careful', stacklevel=1)", "<the task>:1: UserWarning: careful\n"),
        ("import logging; logging.warning('logged')", "WARNING:root:logged\n"),
        ("import sys; sys.stdout.flush(); sys.stdout.close(); print('goes on')", "goes on\n"),
        ("import sys; print(sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.isatty())", "1 2 False\n"),
        (
            "import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'utf-8'); print('held back')",
            "held back\n",
        ),
        ("import io, sys; sys.stderr = io.TextIOWrapper(sys.stderr.detach()); print('a', file=sys.stderr)", "a\n"),
        ("import sys; sys.stdout.reconfigure(write_through=False); print('held')", "held\n"),
        ("", ""),
    ],
)
def test_what_a_rollout_prints_is_its_log(patient: Any, code: str, log: str) -> None:
    assert logged(patient, 1, code) == log


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.detach(); sys.stderr.detach()",
        "import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'ascii')",
        "import sys; sys.stdout.reconfigure(encoding='ascii', errors='strict', newline='\\r\\n', write_through=False)",
        "import os, sys; sys.stdout = os.fdopen(1, 'w'); sys.stderr = os.fdopen(2, 'w')",
        "try: exit()\nexcept SystemExit: pass",
        "import io, sys; sys.stdin = io.StringIO('left'); sys.__stdin__.detach()",
        "import sys\nclass Mute:\n def flush(self): raise SystemExit\nsys.stdout = sys.stderr = Mute()",
    ],
)
def test_streams_are_what_they_were_whatever_a_rollout_made_of_them(patient: Any, code: str) -> None:
    state = "import os, sys; output = [sys.stdin.read(), *(os.fstat(number).st_ino for number in range(3))]"
    before = patient.output(1, state)
    assert logged(patient, 2, code) == ""
    assert logged(patient, 3, "import sys; print('é'); print('b', file=sys.stderr)") == "é\nb\n"
    assert patient.output(4, state) == before
    patient.output(5, code)
    assert patient.output(6, state) == before


def test_it_is_sent_line_by_line(patient: Any) -> None:
    patient.begin(1, "print('a', 'b'); print('c\\nd', end='')\nprint('x' * 1500, end=''); print('y', end='')")
    assert [patient.expect(Log).text for _ in range(4)] == ["a b\n", "c\n", "d" + "x" * 1500, "y"]
    patient.expect(Done)


def test_the_scorer_and_the_import_of_actors_print_to_the_log_too(patient: Any, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text("print('import')\ndef run(rendered, task): print('run')\n", encoding="utf-8")
    assert logged(patient, 1, f"import sys; sys.path.insert(0, {str(tmp_path)!r})") == ""
    job = patient.has("chatty:run", "judge", allow=["chatty:", "scripted_actors:"])
    assert logged(patient, 2, "", job, meta={"judge": "print('judge')"}) == "import\nrun\njudge\n"
    assert logged(patient, 3, "", job, meta={"judge": "print('judge')"}) == "run\njudge\n"


def test_what_was_printed_before_a_death_is_had(worker: Any) -> None:
    worker.begin(1, "import os; print('last words'); os.kill(os.getpid(), 9)")
    assert worker.expect(Log).text == "last words\n"
    with pytest.raises(EOFError):
        worker.next()
    assert worker.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import os; os.write(1, b'one '); os.write(2, b'two')", "one two"),
        ("import os; os.system('echo shell')", "shell\n"),
        ("import subprocess, sys; subprocess.run(['echo', 'a'], stdout=sys.stderr)", "a\n"),
        ("import threading; t = threading.Thread(target=print, args=['thread']); t.start(); t.join()", "thread\n"),
        ("import atexit; atexit.register(print, 'exit')", "exit\n"),
    ],
)
def test_what_nothing_tells_from_other_rollouts_prints_is_in_no_log(worker: Any, code: str, printed: str) -> None:
    assert logged(worker, 1, code) == ""
    worker.stop_talking()
    worker.exit_code()
    assert worker.rest() == printed


def test_a_thread_with_a_rollouts_context_prints_to_its_log(patient: Any) -> None:
    code = """
        import contextvars, threading
        context = contextvars.copy_context()
        import sys
        def write(n): context.copy().run(sys.stdout.write, str(n) + ' ' + 'x' * 99 + chr(10))
        threads = [threading.Thread(target=write, args=[n]) for n in range(20)]
        for t in threads: t.start()
        for t in threads: t.join()
        shared['late'] = context
    """
    log = logged(patient, 1, code)
    assert sorted(log.splitlines()) == sorted(f"{n} {'x' * 99}" for n in range(20))
    assert logged(patient, 2, "shared['late'].run(print, 'late')") == ""


def test_of_much_the_beginning_and_the_end_are_kept(patient: Any) -> None:
    log = logged(patient, 1, "for n in range(1, 200_001): print(f'{n:>9}')")
    assert len(log) < HEAD + TAIL + 100
    beginning, _, end = log.partition("\n[… ")
    count, _, end = end.partition(" characters left out …]\n")
    assert int(count) == 200_000 * 10 - HEAD - TAIL
    assert beginning.startswith("        1\n        2\n")
    assert len(beginning) == HEAD
    assert end.endswith("   199999\n   200000\n")
    assert len(end) == TAIL


@pytest.mark.parametrize("size", [HEAD - 1, HEAD, HEAD + 1, HEAD + TAIL - 1, HEAD + TAIL])
def test_what_fits_is_kept_whole(patient: Any, size: int) -> None:
    assert logged(patient, 1, f"print('x' * {size - 1})") == "x" * (size - 1) + "\n"
    assert logged(patient, 2, f"for _ in range({size}): print('x', end='')") == "x" * size


def test_a_flood_takes_no_memory(patient: Any) -> None:
    flood = "for _ in range(2000): print('x' * 2**15)"
    code = "import resource as r\ndef most(): return r.getrusage(r.RUSAGE_SELF).ru_maxrss\nbefore = most()\n"
    answer, log = patient.answer(1, f"{code}{flood}\noutput = most() - before")
    assert answer.output < 4 * 1024
    assert len(log) < HEAD + TAIL + 100


def test_a_flood_past_python_is_no_ones_log(patient: Any) -> None:
    assert logged(patient, 1, "import os\nfor _ in range(100): os.write(1, b'x' * 2**15)") == ""


def test_a_secret_across_the_cut_is_whole_when_it_is_looked_for(start: Start) -> None:
    worker = start({"TOKEN": "0123456789" * 20}, secrets=["TOKEN"])
    for shift in range(0, 200, 40):
        code = f"import os; print('x' * 50_000 + os.environ['TOKEN'] + 'y' * ({TAIL} - {shift}))"
        log = logged(worker, shift, code)
        assert not set("0123456789") & set(log.partition("left out …]\n")[2])


SECRET = "0123456789" * 3
SECRETIVE = Redactor(((SECRET, "«TOKEN»"),))


def shown(writes: list[str], redactor: Redactor = SECRETIVE, *, closes: bool = True) -> str:
    """What a parent makes of the pieces that it is sent."""
    sent: list[str] = []
    log = child_log.RolloutLog(sent.append, redactor)
    for text in writes:
        log.write(text)
    if closes:
        log.close()
    return redactor.text("".join(sent))


@pytest.mark.parametrize("shift", [1, 15, 29, 30])
@pytest.mark.parametrize("after", [0, 1, 28, 20_000])
@pytest.mark.parametrize("split", [0, 1, 20])
def test_no_part_of_a_secret_across_the_end_of_the_beginning_is_sent(shift: int, after: int, split: int) -> None:
    text = "x" * (HEAD - shift) + SECRET + "y" * after
    at = HEAD - shift + split
    log = shown([text[:at], text[at:]])
    assert not set("0123456789") & set(log.partition("\n[…")[0] + log.partition("…]")[2])
    assert log.count("«TOKEN»") == 1
    assert log.startswith("x" * (HEAD - shift))


@pytest.mark.parametrize("after", [0, 5, 20_000])
def test_nor_when_the_worker_dies_upon_it_and_the_rest_is_had(after: int) -> None:
    log = shown(["x" * (HEAD - 20) + SECRET + "y" * after], closes=False)
    assert log == "x" * (HEAD - 20) + "«TOKEN»"


def test_what_is_left_of_a_secret_at_the_start_of_the_kept_end_is_left_out() -> None:
    log = shown(["z" * HEAD, *[SECRET * 100 + "0"] * 40])
    assert set(log.partition("…]\n")[2]) <= set("«TOKEN»0")


def test_a_secret_longer_than_what_is_kept_is_found() -> None:
    secret = "s" + "0123456789" * 4_000
    log = shown(["z" * 30_000 + secret + "z" * 30_000, secret, "z" * 50], Redactor(((secret, "«LONG»"),)))
    assert not set("0123456789") & set(log.partition("\n[…")[0] + log.partition("…]\n")[2])
    assert log.endswith("z" * 50)


def test_what_is_said_of_a_failure_is_redacted_before_it_is_cut(start: Start) -> None:
    worker = start({"TOKEN": SECRET}, secrets=["TOKEN"])
    for lease, raised in enumerate(
        (
            "ValueError('m' * 1980 + token)",
            f"ValueError(token + 'm' * ({TAIL} - 20))",
            "type(token, (Exception,), {})()",
        )
    ):
        answer, _ = worker.answer(lease, f"import os; token = os.environ['TOKEN']; raise {raised}")
        assert isinstance(answer, Failed)
        assert not set("0123456789") & set(answer.type + answer.message)
        assert "0123" not in answer.traceback
        assert "6789" not in answer.traceback


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_rollouts_side_by_side_have_a_log_each(start: Start, loop: str) -> None:
    worker = start(loop=loop)
    job = worker.has("arun")
    meet = """
        import anyio
        shared.setdefault('here', []).append(anyio.Event())
        print('one of', task.id)
        async def printing(): print('two of', task.id)
        async with anyio.create_task_group() as group:
            group.start_soon(printing)
            if len(shared['here']) == 2: [event.set() for event in shared['here']]
            await shared['here'][-1].wait()
        await anyio.to_thread.run_sync(print, 'three of', task.id)
    """
    worker.begin(1, meet, job)
    worker.begin(2, meet, job)
    logs = {1: "", 2: ""}
    answers: list[Any] = []
    while len(answers) < 2:
        message = worker.next()
        if isinstance(message, Log):
            logs[message.lease] += message.text
        else:
            answers.append(message)
    assert all(isinstance(answer, Done) for answer in answers)
    assert logs == {n: f"one of task {n}\ntwo of task {n}\nthree of task {n}\n" for n in (1, 2)}


def test_a_closed_descriptor_loses_prints_and_nothing_else(worker: Any) -> None:
    assert logged(worker, 1, "import os; print('a'); os.close(1); os.close(2); print('b')") == "a\nb\n"
    assert (
        logged(worker, 2, "import threading as t; x = t.Thread(target=print, args=['lost']); x.start(); x.join()") == ""
    )
    assert os.waitpid(worker.process.pid, os.WNOHANG) == (0, 0)


def test_a_rollout_that_goes_on_printing_is_heard_of_when_its_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    now = 100.0
    monkeypatch.setattr(child_log, "monotonic", lambda: now)
    log = child_log.RolloutLog(sent.append, Redactor())
    log.write("x" * HEAD)
    sent.clear()
    for now in (101.0, 101.5, 101.9, 102.0, 109.0):  # noqa: B007 - the clock looks at it
        log.write("y")
    assert sent == ["", ""]
    log.close()
    assert sent[-1] == "yyyyy"

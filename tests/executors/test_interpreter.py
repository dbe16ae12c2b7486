"""One child process and its pipes: what it says is heard in order and in full, whatever it says, and it always ends."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import WireError
from adescent.executors import interpreter as interpreter_module
from adescent.executors.interpreter import MESSAGES_AT_ONCE, Interpreter

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("anyio_backend")]

BOUND = 20.0
PRELUDE = """
import os, signal, sys, time
reads, writes = map(int, sys.argv[1:])
def say(text):
    data = text.encode()
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[os.write(writes, data):]
def hear():
    return os.read(reads, 1 << 20)
"""


class Ear:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.broken: list[str] = []
        self._more = anyio.Event()

    def hear(self, messages: list[memoryview]) -> None:
        self.calls.append([bytes(message).decode() for message in messages])
        self._more.set()

    async def more(self) -> None:
        """Wait until something more is heard."""
        self._more = anyio.Event()
        await self._more.wait()

    @property
    def heard(self) -> list[str]:
        return [message for call in self.calls for message in call]


def started(script: str, tmp_path: Path) -> Interpreter:
    return Interpreter([sys.executable, "-S", "-c", PRELUDE + script], os.environ, str(tmp_path))


async def test_what_it_says_is_heard_though_it_ends_at_once(tmp_path: Path) -> None:
    ear, interpreter = Ear(), started("for n in range(1000): say(str(n))\nsys.exit(7)", tmp_path)
    with anyio.fail_after(BOUND):
        await interpreter.attend(ear.hear, ear.broken.append)
    assert ear.heard == [str(number) for number in range(1000)]
    assert (ear.broken, interpreter.exit_words) == ([], "exited with code 7")


async def test_it_is_heard_a_little_at_a_time_and_others_have_their_turn_meanwhile(tmp_path: Path) -> None:
    ear, interpreter = Ear(), started("for n in range(20_000): say(str(n))", tmp_path)
    turns, turn = list[int](), 0

    def hear(messages: list[memoryview]) -> None:
        turns.append(turn)
        ear.hear(messages)

    async with anyio.create_task_group() as tasks:

        async def attend() -> None:
            with anyio.fail_after(BOUND):
                await interpreter.attend(hear, ear.broken.append)
            tasks.cancel_scope.cancel()

        tasks.start_soon(attend)
        while True:
            turn += 1
            await checkpoint()
    assert len(ear.heard) == 20_000
    assert max(map(len, ear.calls)) <= MESSAGES_AT_ONCE
    assert max(Counter(turns).values()) <= 2  # one turn of a loop may end and the next begin with it


async def test_who_attends_may_be_cancelled_at_any_time_and_another_goes_on(tmp_path: Path) -> None:
    ear, interpreter = Ear(), started("for n in range(5000): say(str(n))", tmp_path)
    with anyio.fail_after(BOUND):
        while len(ear.heard) < 5000:
            with anyio.CancelScope() as scope:

                def hear(messages: list[memoryview], scope: anyio.CancelScope = scope) -> None:
                    ear.hear(messages)
                    scope.cancel()

                await interpreter.attend(hear, ear.broken.append)
        await interpreter.attend(ear.hear, ear.broken.append)
    assert ear.heard == [str(number) for number in range(5000)]
    assert interpreter.exit_words == "exited with code 0"


NONSENSE = {
    "too large": 'say("one"); os.write(writes, bytes([255] * 4)); say("two")',
    "no message": 'say("one"); say("nonsense"); say("two")',
}


@pytest.mark.parametrize("script", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("end", ["", "; hear()"], ids=["ends", "waits"])
async def test_nothing_is_heard_after_what_makes_no_sense(tmp_path: Path, script: str, end: str) -> None:
    ear, interpreter = Ear(), started(script + end, tmp_path)

    def hear(messages: list[memoryview]) -> None:
        for message in messages:
            if bytes(message) == b"nonsense":
                raise WireError("no message")
            ear.hear([message])

    def broke(why: str) -> None:
        ear.broken.append(why)
        interpreter.kill()

    with anyio.fail_after(BOUND):
        await interpreter.attend(hear, broke)
    assert ear.heard == ["one"]
    assert len(ear.broken) == 1 or not end  # who has ended needs no telling off


async def test_what_it_has_said_can_be_had_without_a_turn(tmp_path: Path) -> None:
    ear, interpreter = Ear(), started("say('one'); say('two'); hear(); say('three'); hear(); say('four')", tmp_path)
    with anyio.fail_after(BOUND):
        for said in (["one", "two"], ["one", "two", "three"]):
            while ear.heard != said:
                await anyio.wait_readable(interpreter._out)
                assert interpreter.catch_up(ear.hear) == ""
            os.write(interpreter._in, b"go on")  # nothing it is sent goes out before somebody attends
        assert interpreter.catch_up(ear.hear) == ""
        await interpreter.attend(ear.hear, ear.broken.append)
        assert interpreter.catch_up(ear.hear) == ""
    assert ear.heard == ["one", "two", "three", "four"]


async def test_nonsense_is_told_without_a_turn_too(tmp_path: Path) -> None:
    ear, interpreter = Ear(), started("say('one'); os.write(writes, bytes([255] * 4)); hear()", tmp_path)
    with anyio.fail_after(BOUND):
        while not (nonsense := interpreter.catch_up(ear.hear)):
            await anyio.wait_readable(interpreter._out)
        interpreter.kill()
        await interpreter.attend(ear.hear, ear.broken.append)
    assert nonsense.startswith("a frame announces 4294967295 bytes")
    assert ear.heard == ["one"]


async def test_what_it_writes_elsewhere_does_not_hold_it_up_and_the_end_is_kept(tmp_path: Path) -> None:
    script = 'for _ in range(64): os.write(1, bytes(1 << 16))\nos.write(2, b"last words")\nsay("done")'
    ear, interpreter = Ear(), started(script, tmp_path)
    with anyio.fail_after(BOUND):
        await interpreter.attend(ear.hear, ear.broken.append)
    assert ear.heard == ["done"]
    assert interpreter.errors.endswith("last words")
    assert len(interpreter.errors) <= 8192


async def test_what_is_said_to_it_arrives_however_little_it_reads_at_a_time(tmp_path: Path) -> None:
    said = [os.urandom(3 << 20), b"a little more", os.urandom(2 << 20)]
    script = f"""
import hashlib
digest, left = hashlib.sha256(), {sum(map(len, said))}
while left:
    data = os.read(reads, 50_000)
    left -= len(data)
    digest.update(data)
say(digest.hexdigest())
"""
    ear, interpreter = Ear(), started(script, tmp_path)
    with anyio.fail_after(BOUND):
        for piece in said:
            interpreter.send(piece)
        await interpreter.attend(ear.hear, ear.broken.append)
    assert ear.heard == [hashlib.sha256(b"".join(said)).hexdigest()]


async def test_an_answer_to_what_it_says_is_written_before_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, interpreter = Ear(), started("say('?')\nsay(hear().decode())", tmp_path)
    events: list[str] = []
    write = os.writev

    def writev(descriptor: int, pieces: list[bytes]) -> int:
        events.append("written")
        return write(descriptor, pieces)

    def hear(messages: list[memoryview]) -> None:
        if not ear.heard:
            events.append("heard")
            interpreter.send(b"!")
        ear.hear(messages)

    async def other() -> None:
        await ear.more()
        events.append("other")

    monkeypatch.setattr(os, "writev", writev)
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await interpreter.attend(hear, ear.broken.append)
    assert ear.heard == ["?", "!"]
    assert events == ["heard", "written", "other"]


async def test_what_has_not_been_written_when_who_attends_is_cancelled_is_written_by_the_next(tmp_path: Path) -> None:
    said = os.urandom(3 << 20)
    script = f"""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
say("here")
signal.sigwait([signal.SIGUSR1])
left = {len(said)}
while left:
    left -= len(hear())
say("all")
"""
    ear, interpreter = Ear(), started(script, tmp_path)
    interpreter.send(said)
    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:

            def hear(messages: list[memoryview]) -> None:
                ear.hear(messages)
                scope.cancel()

            await interpreter.attend(hear, ear.broken.append)
        os.kill(interpreter.pid, signal.SIGUSR1)
        await interpreter.attend(ear.hear, ear.broken.append)
    assert (ear.heard, ear.broken) == (["here", "all"], [])


DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('deaf'); time.sleep(60)"
STOPPED = "say('deaf'); os.kill(os.getpid(), signal.SIGSTOP)"
ENDINGS = [
    pytest.param("while hear(): pass", "exited with code 0", id="asked"),
    pytest.param("signal.pause()", "killed by SIGTERM", id="told", marks=pytest.mark.mainly("asyncio")),
    pytest.param(DEAF, "killed by SIGKILL", id="made", marks=pytest.mark.mainly("trio")),
    pytest.param(STOPPED, "killed by SIGKILL", id="stopped", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("script", "words"), ENDINGS)
async def test_it_ends_when_it_is_asked_or_told_or_made_to(tmp_path: Path, script: str, words: str) -> None:
    ear, interpreter = Ear(), started(f"say('here')\n{script}", tmp_path)
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interpreter.attend, ear.hear, ear.broken.append)
            while "deaf" not in ear.heard if "deaf" in script else not ear.heard:
                await ear.more()
            interpreter.ask_to_end()
    assert (interpreter.exit_words, ear.broken) == (words, [])


async def test_who_is_killed_at_the_moment_at_which_it_is_to_be_told_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter_module, "SECONDS_TO_LEAVE", 0.0)
    ear, interpreter = Ear(), started(f"say('here')\n{DEAF}", tmp_path)
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(interpreter.attend, ear.hear, ear.broken.append)
            while "deaf" not in ear.heard:
                await ear.more()
            interpreter.ask_to_end()
            interpreter.kill()
    assert (interpreter.exit_words, ear.broken) == ("killed by SIGKILL", [])


async def test_a_host_that_ignores_its_children_is_told_no_exit_code(tmp_path: Path) -> None:
    ear = Ear()
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        interpreter = started("hear(); os._exit(7)", tmp_path)
        interpreter.send(b"go")
        with anyio.fail_after(BOUND):
            await interpreter.attend(ear.hear, ear.broken.append)
    finally:
        signal.signal(signal.SIGCHLD, usual)
    assert "nobody knows how" in interpreter.exit_words


def refused(pid: int) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_what_cannot_be_watched_is_not_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pidfd_open", refused)
    with pytest.raises(OSError, match="open files"):
        started("time.sleep(60)", tmp_path)
    monkeypatch.undo()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222 - it does not block


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").exists()


async def test_what_could_not_be_started_closes_nothing_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(OSError, match="open files"):
        patch.setattr(os, "pidfd_open", refused)
        started("time.sleep(60)", tmp_path)
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]  # with the numbers that have become free
    copy = os.fork()
    if copy == 0:
        os._exit(not all(map(is_open, others)))
    _, status = os.waitpid(copy, 0)  # noqa: ASYNC222 - it ends at once
    for other in others:
        os.close(other)
    assert status == 0

"""One process and the parent's ends of its pipes: what is said, what is heard, and how it ends."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from adescent.executors import interpreter as module
from adescent.executors.framing import MAX_FRAME, frame
from adescent.executors.interpreter import Interpreter

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("anyio_backend")]

BOUND = 20.0
ENV = {"PATH": os.environ["PATH"]}

# What the processes do; `take` and `give` are the pipes, and `say` makes a frame.
BEFORE = """
import os, resource, signal, subprocess, sys, time
take, give = map(int, sys.argv[1:])
def say(text):
    data = text if isinstance(text, bytes) else str(text).encode()
    os.write(give, len(data).to_bytes(4, "big") + data)
"""
ECHO = """
while data := os.read(take, 2**20):
    while data:
        data = data[os.write(give, data):]
"""


class Heard:
    """What a process has said, to be waited for."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.broke: list[str] = []
        self._news = anyio.Event()

    def hear(self, messages: list[memoryview]) -> None:
        self.messages += map(bytes, messages)
        self._tell()

    def break_off(self, reason: str) -> None:
        self.broke.append(reason)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[Heard], object]) -> None:
        while not condition(self):
            await self._news.wait()


def started(script: str) -> Interpreter:
    return Interpreter([sys.executable, "-S", "-E", "-c", BEFORE + script], ENV, None)


@asynccontextmanager
async def attended(script: str) -> AsyncIterator[tuple[Interpreter, Heard]]:
    """A process that is heard until it is gone; the block ends it."""
    process, heard = started(script), Heard()
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            group.start_soon(process.attend, heard.hear, heard.break_off)
            try:
                yield process, heard
            finally:
                process.kill()


async def lived(script: str) -> tuple[Interpreter, Heard]:
    """A process that has ended by itself."""
    process, heard = started(script), Heard()
    try:
        with anyio.fail_after(BOUND):
            await process.attend(heard.hear, heard.break_off)
    finally:
        process.kill()
    return process, heard


async def has_ended(pid: int) -> None:
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(ended)
    finally:
        os.close(ended)


# What is said ---------------------------------------------------------------------------------------------------------


async def test_frames_go_there_and_back_in_order() -> None:
    said = [str(number).encode() for number in range(2000)]
    async with attended(ECHO) as (process, heard):
        for each in said:
            process.send(*frame(each))
        await heard.until(lambda heard: len(heard.messages) == len(said))
    assert heard.messages == said


async def test_what_no_pipe_holds_arrives_whole() -> None:
    said = [bytes([number]) * (3 * 2**20 + number) for number in range(4)]
    async with attended(ECHO) as (process, heard):
        for each in said:
            process.send(*frame(each))
        await heard.until(lambda heard: len(heard.messages) == len(said))
    assert heard.messages == said


async def test_whoever_hears_may_be_cancelled_and_another_goes_on() -> None:
    said = [bytes([number]) * 2**21 for number in range(3)]
    process, heard = started(ECHO), Heard()
    with anyio.fail_after(BOUND):
        process.send(*[part for each in said for part in frame(each)])
        for _ in range(3):
            with anyio.move_on_after(0):
                await process.attend(heard.hear, heard.break_off)
        async with anyio.create_task_group() as group:
            group.start_soon(process.attend, heard.hear, heard.break_off)
            await heard.until(lambda heard: len(heard.messages) == len(said))
            process.ask_to_end()
        await process.attend(heard.hear, heard.break_off)  # of one that is gone there is nothing to hear
    assert heard.messages == said
    assert process.exit_words == "exited with code 0"


async def test_what_is_said_to_one_that_has_ended_is_lost_without_a_word() -> None:
    async with attended("os._exit(0)") as (process, heard):
        await has_ended(process.pid)
        for _ in range(10):
            process.send(*frame(b"x" * 2**20))
    assert (heard.messages, heard.broke) == ([], [])


async def test_the_last_words_are_heard_and_half_a_message_is_none() -> None:
    _, heard = await lived("for n in range(500): say(n)\nos.write(give, b'\\0\\0\\0\\x09half')")
    assert heard.messages == [str(number).encode() for number in range(500)]
    assert heard.broke == []


@pytest.mark.parametrize(
    ("script", "word"),
    [
        (f"os.write(give, ({MAX_FRAME} + 1).to_bytes(4, 'big'))", "limit"),
        ("os.close(give)", "closed its pipe and went on"),
    ],
    ids=["too large", "closed"],
)
async def test_one_that_makes_no_sense_any_more_is_told_of_once(script: str, word: str) -> None:
    async with attended(f"say('sense')\n{script}\ntime.sleep(60)") as (process, heard):
        await heard.until(lambda heard: heard.broke)
        assert heard.messages == [b"sense"]
        (reason,) = heard.broke
        assert word in reason
    assert process.exit_words == "killed by SIGKILL"


# What it writes past the messages -------------------------------------------------------------------------------------


async def test_the_end_of_what_it_writes_is_kept() -> None:
    process, _ = await lived(
        "for n in range(4): os.write(1 + n % 2, b'x' * 10**6 + b'!' * 10)\nos.write(2, b'\\xffend')"
    )
    assert process.errors.endswith("x" * 100 + "!" * 10 + "\N{REPLACEMENT CHARACTER}end")
    assert len(process.errors) == module.ERRORS_KEPT


async def test_what_it_wrote_before_can_be_forgotten() -> None:
    async with attended("os.write(2, b'before')\nsay(1)\nos.read(take, 1)\nos.write(2, b'after')") as (process, heard):
        await heard.until(lambda heard: heard.messages)
        await anyio.wait_all_tasks_blocked()
        process.forget_errors()
        process.send(b"!")
        await has_ended(process.pid)
    assert process.errors == "after"


# How it ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("pass", "exited with code 0"),
        ("sys.exit(3)", "exited with code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", "killed by signal 37"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "killed by SIGXCPU"),
    ],
)
async def test_how_it_ended_is_told_in_words(script: str, words: str) -> None:
    process, heard = await lived(f"resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n{script}")
    assert process.exit_words == words
    assert process.ran_out_of_cpu_time is words.endswith("SIGXCPU")
    assert heard.broke == []


async def test_one_that_is_asked_to_end_ends_by_itself() -> None:
    async with attended(f"say('up')\n{ECHO}\nsys.exit(5)") as (process, heard):
        await heard.until(lambda heard: heard.messages)
        process.ask_to_end()
        process.ask_to_end()
        process.send(*frame(b"too late"))
        await has_ended(process.pid)
    assert process.exit_words == "exited with code 5"
    assert heard.messages == [b"up"]


@pytest.mark.parametrize("obeys", [True, False], ids=["SIGTERM", "nothing"])
async def test_one_that_does_not_end_when_asked_is_made_to(obeys: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_TO_LEAVE", 0.05)
    monkeypatch.setattr(module, "SECONDS_TO_TERMINATE", 0.05)
    ignoring = "" if obeys else "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    async with attended(f"{ignoring}say('up')\nwhile True: time.sleep(60)") as (process, heard):
        await heard.until(lambda heard: heard.messages)
        process.ask_to_end()
        await has_ended(process.pid)
    assert process.exit_words == f"killed by {'SIGTERM' if obeys else 'SIGKILL'}"


FAMILY = """
family = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
child = os.fork()
if not child:
    time.sleep(600)
say(" ".join(str(each) for each in (child, *(other.pid for other in family))))
"""


@pytest.mark.parametrize("then", ["os.read(take, 1)", "os._exit(0)"], ids=["killed", "left them"])
async def test_nothing_of_its_group_outlives_it(then: str) -> None:
    async with attended(FAMILY + then) as (process, heard):
        await heard.until(lambda heard: heard.messages)
        process.kill()
        process.kill()
    for pid in heard.messages[0].split():
        await has_ended(int(pid))


async def test_a_process_has_a_session_of_its_own_and_no_descriptors_but_its_pipes() -> None:
    script = """
say(os.getsid(0) == os.getpgid(0) == os.getpid())
listed = os.listdir('/proc/self/fd')
say(sorted(int(each) for each in listed if os.path.exists('/proc/self/fd/' + each)))
say(sorted([0, 1, 2, take, give]))
"""
    kept = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(kept, True)
    try:
        _, heard = await lived(script)
    finally:
        os.close(kept)
    own, open_here, expected = heard.messages
    assert own == b"True"
    assert open_here == expected


async def test_its_standard_input_ends_with_its_parent_and_not_before() -> None:
    """Closing the messages' pipe does not close it."""
    script = "say('up')\nos.read(take, 1)\nimport select\nsay(select.select([0], [], [], 0)[0])"
    async with attended(script) as (process, heard):
        await heard.until(lambda heard: heard.messages)
        process.ask_to_end()
        await has_ended(process.pid)
    assert heard.messages == [b"up", b"[]"]


async def test_a_program_that_cannot_be_started_leaves_nothing_open(tmp_path: Path) -> None:
    for command, directory in ((["/nonexistent/python"], None), ([sys.executable], str(tmp_path / "nowhere"))):
        with pytest.raises(FileNotFoundError):
            Interpreter(command, ENV, directory)


async def test_without_descriptors_it_is_not_started() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 5, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            started("pass")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

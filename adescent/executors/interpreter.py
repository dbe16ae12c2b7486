"""One worker process: its pipes, what it writes, how it is ended. What it is for, it does not know."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice

import anyio
from anyio import (
    ClosedResourceError,
    create_task_group,
    move_on_after,
    notify_closing,
    sleep,
    wait_readable,
    wait_writable,
)
from anyio.lowlevel import checkpoint

from adescent.errors import WireError
from adescent.executors.framing import FrameDecoder
from adescent.executors.pipes import PIPE_BYTES, close_all, pipe_from, pipe_to, tie
from adescent.executors.wakeup import one_shots

__all__ = ["Interpreter"]

SMALL_READ = 2**16
MESSAGES_AT_ONCE = 64
"""Those that are handed over before anything else has its turn: they take half a millisecond."""
WRITES_AT_ONCE = 512
READS_AFTER_EXIT = 64
SIGNALLED = 128
"""What a shell adds to the number of the signal that its command died of."""

ERRORS_KEPT = 8_192
"""Bytes kept of what a worker wrote past the messages: the last ones."""

SECONDS_FROM_PIPE_TO_EXIT = 0.5
"""How long after the end of its messages a process that is ending may still be seen alive."""
SECONDS_TO_LEAVE = 1.0
SECONDS_TO_TERMINATE = 0.5
SECONDS_TO_DIE = 5.0
"""How long a worker may take over each step: to end when asked to, after SIGTERM, after SIGKILL."""

Hear = Callable[[list[memoryview]], None]


class _Ending(IntEnum):
    NOT = 0
    ASKED = 1
    TERMINATED = 2
    KILLED = 3
    LEFT = 4  # not even killed: the kernel is busy with it


class Interpreter:
    """A process in a session and process group of its own, and the parent's ends of its pipes.

    Making one starts it; nothing is awaited before it can be killed. Then `attend` must run, until it returns, in one
    task after the other if need be. ``command`` gets the numbers of the two message pipes as its last arguments.
    ``wrapped``: it starts the worker within itself, and tells of its death by a signal as a shell does.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | None, *, wrapped: bool = False
    ) -> None:
        mine: list[int] = []
        theirs: list[int] = []
        try:
            self._lifeline = pipe_to(theirs, mine)
            self._in = pipe_to(theirs, mine)
            self._out = pipe_from(theirs, mine)
            self._err = pipe_from(theirs, mine)
            lifeline, reads, writes, errors = theirs
            self._process = subprocess.Popen(
                [*command, str(reads), str(writes)],
                stdin=lifeline,
                stdout=errors,
                stderr=errors,
                pass_fds=(reads, writes),
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
            )
            self._exit = self._hold(lifeline)
        except BaseException:
            close_all(mine)
            raise
        finally:
            close_all(theirs)
        self.pid = self._process.pid
        self._wrapped = wrapped
        self._unsent: deque[memoryview | bytes] = deque()
        self._one_shot = one_shots()
        self._to_write = self._one_shot()
        self._ending = _Ending.NOT
        self._deadline = float("inf")
        self._waiting: anyio.CancelScope | None = None
        self._errors = bytearray()
        self._decoder = FrameDecoder()
        self._arriving: Iterator[memoryview] = iter(())
        self._nonsense = ""
        self._hearing = False
        self._asked = False
        self._closed = False
        self._reaped_elsewhere = False

    def _hold(self, lifeline: int) -> int:
        """A descriptor of its process, which from now on ends with this one."""
        try:
            tie(self._lifeline, lifeline, self._process.pid)
            return os.pidfd_open(self._process.pid)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    # What is said to it -----------------------------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> None:
        """Put pieces of frames on their way, in order. `attend` writes them, those of one turn of the loop at once.

        What is sent in answer to what is heard goes before anything else has its turn: it may be waited for.
        """
        if self._asked:
            return
        self._unsent.extend(pieces)
        if not self._hearing:
            self._to_write.set()

    def _write(self) -> bool:
        """Write until the pipe is full or all is written. Whether anything is left."""
        unsent = self._unsent
        try:
            while unsent:
                taken = os.writev(self._in, list(islice(unsent, WRITES_AT_ONCE)))
                while unsent and taken >= len(unsent[0]):
                    taken -= len(unsent.popleft())
                if taken:
                    unsent[0] = memoryview(unsent[0])[taken:]
        except BlockingIOError:
            pass
        except OSError:  # it reads no more: that it has ended, or closed its pipe, is seen elsewhere
            unsent.clear()
        return bool(unsent)

    async def _write_out(self) -> None:
        while True:
            await self._to_write.wait()
            try:
                while self._write():
                    await wait_writable(self._in)
            except ClosedResourceError:  # it has been asked to end
                return
            self._to_write = self._one_shot()  # not before all is written: whoever attends next is to go on

    # What it says -----------------------------------------------------------------------------------------------------

    async def attend(self, hear: Hear, broke: Callable[[str], None]) -> None:
        """Hand over what it says, as many messages at once as arrived, until its process is gone and all is read.

        ``hear`` raises WireError for what makes no sense. ``broke`` is told of that, or that it has closed its pipe;
        from then on nobody listens. May be cancelled and run again.
        """
        if not self._closed:
            async with create_task_group() as tasks:
                tasks.start_soon(self._write_out)
                tasks.start_soon(self._keep_errors)
                tasks.start_soon(self._listen, hear, broke)
                await self._until_exit()
                tasks.cancel_scope.cancel()
            self._signal(signal.SIGKILL)  # before it is reaped: until then nobody else can have its number
            await self._hear_rest(hear)
            self._bury()

    async def _listen(self, hear: Hear, broke: Callable[[str], None]) -> None:
        size = SMALL_READ
        while True:
            await self._hear_all(hear)
            if self._nonsense:
                broke(self._nonsense)
                return
            data = await self._read(size)
            if not data:
                await sleep(SECONDS_FROM_PIPE_TO_EXIT)  # cut short when it is seen to exit
                broke("closed its pipe and went on")
                return
            size = PIPE_BYTES if len(data) == size else SMALL_READ
            self._arriving = self._decoder.feed(data)

    async def _read(self, size: int) -> bytes:
        while True:
            try:
                return os.read(self._out, size)
            except BlockingIOError:
                await wait_readable(self._out)

    async def _hear_all(self, hear: Hear) -> None:
        """Hand over what has been read, a few messages at a time: it may be very many that it says in a second."""
        while self._hear_some(hear):
            await checkpoint()
        await checkpoint()

    def _hear_some(self, hear: Hear) -> bool:
        """Hand over the next messages of what has been read. Whether there may be more; none come after nonsense."""
        if self._nonsense:
            return False
        messages: list[memoryview] = []
        try:
            messages.extend(islice(self._arriving, MESSAGES_AT_ONCE))
        except WireError as error:
            self._nonsense = str(error)
        self._hearing = True
        try:
            if messages:
                hear(messages)
        except WireError as error:  # it came before the other
            self._nonsense = str(error)
        finally:
            self._hearing = False
        if self._unsent and self._write():
            self._to_write.set()
        return len(messages) == MESSAGES_AT_ONCE and not self._nonsense

    def catch_up(self, hear: Hear) -> str:
        """Hand over what it has said by now, without waiting for a turn. What makes no sense in it, or ``""``."""
        self._hear_now(hear)
        if self._read_now():  # all that the pipe holds
            self._hear_now(hear)
        return self._nonsense

    def _hear_now(self, hear: Hear) -> None:
        while self._hear_some(hear):
            pass

    def _read_now(self) -> bool:
        """Whether something could be read without waiting, and would make sense."""
        if self._closed or self._nonsense:
            return False
        try:
            data = os.read(self._out, PIPE_BYTES)
        except BlockingIOError:
            return False
        self._arriving = self._decoder.feed(data)
        return bool(data)

    async def _keep_errors(self) -> None:
        while True:
            await wait_readable(self._err)
            if self._read_errors() == b"":
                return

    def _read_errors(self) -> bytes | None:
        """Read once: nothing when there will be no more, None when there is none now."""
        try:
            data = os.read(self._err, SMALL_READ)
        except BlockingIOError:
            return None
        self._errors += data
        del self._errors[:-ERRORS_KEPT]
        return data

    @property
    def errors(self) -> str:
        """The end of what it, or a process it started, wrote to its standard streams past Python."""
        return self._errors.decode(errors="replace")

    def forget_errors(self) -> None:
        """What it has written so far has nothing to do with what it does next."""
        self._errors.clear()

    # How it ends ------------------------------------------------------------------------------------------------------

    def ask_to_end(self) -> None:
        """Close its pipe. If it does not end then, it is told to, then made to."""
        if self._ending is _Ending.NOT:
            notify_closing(self._in)
            close_all([self._in])
            self._asked = True
            self._unsent.clear()
            self._step(_Ending.ASKED, SECONDS_TO_LEAVE)

    def kill(self) -> None:
        """End it and all of its process group."""
        if self._ending < _Ending.KILLED:
            self._signal(signal.SIGKILL)
            self._step(_Ending.KILLED, SECONDS_TO_DIE)

    def _step(self, ending: _Ending, seconds: float) -> None:
        self._ending = ending
        self._deadline = time.monotonic() + seconds
        if self._waiting is not None:
            self._waiting.deadline = anyio.current_time() + seconds

    def _escalate(self) -> None:
        if self._ending is _Ending.ASKED:
            self._signal(signal.SIGTERM)
            self._step(_Ending.TERMINATED, SECONDS_TO_TERMINATE)
        elif self._ending is _Ending.TERMINATED:
            self.kill()
        else:
            self._ending = _Ending.LEFT

    async def _until_exit(self) -> None:
        while self._ending is not _Ending.LEFT:
            with move_on_after(self._deadline - time.monotonic()) as self._waiting:
                await wait_readable(self._exit)
                return
            if time.monotonic() >= self._deadline:  # or it has been put off before this task had its turn
                self._escalate()

    async def _hear_rest(self, hear: Hear) -> None:
        """What it wrote before it ended; a message cut off by its end is none."""
        await self._hear_all(hear)
        for _ in range(READS_AFTER_EXIT):  # something that has left its group may still be writing
            if not self._read_now():
                return
            await self._hear_all(hear)

    def _bury(self) -> None:
        """Keep its last words, reap it, close everything."""
        for _ in range(READS_AFTER_EXIT):
            if not self._read_errors():
                break
        if self._ending is not _Ending.LEFT:
            self._reap()
        self._closed = True
        close_all([self._lifeline, self._out, self._err, self._exit])
        if not self._asked:
            close_all([self._in])

    def _reap(self) -> None:
        try:
            os.waitid(os.P_PIDFD, self._exit, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # the host ignores SIGCHLD, or waits for every child: Popen would say 0
            self._reaped_elsewhere = True
        self._process.wait()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # nothing of it is left, or only what has become somebody else
            pass

    @property
    def exit_words(self) -> str:
        """How the process ended: ``"killed by SIGSEGV"``, ``"exited with code 3"``."""
        code = self._exit_code
        if self._reaped_elsewhere:
            return "exited, nobody knows how (this program ignores SIGCHLD, or waits for every child)"
        if code is None:
            return "could not be killed"
        return f"killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"

    @property
    def ran_out_of_cpu_time(self) -> bool:
        """Whether it ended since it had used up the processor time it was allowed."""
        return self._exit_code == -signal.SIGXCPU

    @property
    def _exit_code(self) -> int | None:
        """Below 0 for a signal; None while it is not known to have ended."""
        code = self._process.returncode
        if self._wrapped and code is not None and code > SIGNALLED:
            return SIGNALLED - code
        return code


def signal_name(number: int) -> str:
    """``"SIGSEGV"``, or the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"

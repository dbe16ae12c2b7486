"""The daemon threads in which blocking functions run, so that the event loop does not."""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
from anyio import get_cancelled_exc_class
from attrs import frozen
from sniffio import current_async_library_cvar

from adescent.checks import is_number, need_whole, shown
from adescent.errors import ContractError, OptionError, WrongThread
from adescent.executors.wakeup import LoopBell

__all__ = ["ThreadPool", "ThreadStatistics"]

Returned = TypeVar("Returned")

JOIN_SECONDS = 0.2
"""How long leaving may hold the loop for threads that have already said goodbye."""


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    FINISHED = auto()
    GIVEN_UP = auto()


class _Call:
    """One call on its way through a thread. The pool's lock guards ``state``; whoever changes it first decides."""

    __slots__ = ("args", "context", "error", "finished", "function", "returned", "state", "thread")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.context = contextvars.copy_context()
        self.context.run(current_async_library_cvar.set, None)  # a thread of the pool runs no event loop
        self.state = _State.QUEUED
        self.thread: threading.Thread | None = None
        self.finished = anyio.Event()
        self.returned: Any = None
        self.error: BaseException | None = None

    def perform(self) -> None:
        try:
            self.returned = self.context.run(self.function, *self.args)
        except BaseException as error:  # noqa: BLE001 - whoever called gets it
            self.error = error

    def outcome(self) -> Any:
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            return self.returned
        finally:
            del error  # its traceback holds this frame and this call: no cycles

    def drop(self) -> None:
        """Nobody wants the outcome any more."""
        self.error = None
        if inspect.iscoroutine(self.returned):
            self.returned.close()  # or Python warns that it was never awaited


@frozen
class ThreadStatistics:
    """What the threads of a pool are doing: ``size`` is how many there may be, ``queued`` counts calls without one.

    ``abandoned`` counts, since the pool was made, the threads that were left behind in a call that did not end.
    """

    size: int
    busy: int
    idle: int
    queued: int
    abandoned: int


class ThreadPool:
    """At most ``size`` daemon threads, started on demand, in which functions run on behalf of one event loop.

    An async context manager; entering it again while it is open only counts, so runs may share a pool, and the last
    to leave ends the threads. A call that is cancelled before a thread took it is withdrawn. One under way is waited
    for ``grace`` seconds (shielded; may be ``math.inf``); then its thread is left to itself and replaced, and what the
    function returns is dropped.
    """

    def __init__(self, size: int, grace: float = 5.0) -> None:
        need_whole("size", size, 1, OptionError, of="ThreadPool")
        if not is_number(grace) or not grace >= 0:  # false for NaN too
            raise OptionError(f"thread_grace={shown(grace)} must be a number of seconds from 0 up.")
        self.size = size
        self.grace = grace
        self._lock = threading.Lock()
        self._entries = 0
        self._owner = 0
        self._started = 0
        self._queued = 0
        self._running = 0
        self._abandoned = 0
        self._threads: dict[threading.Thread, anyio.Event] = {}

    def check_open(self) -> None:
        """Raise ContractError when nobody has entered the pool, and WrongThread outside the thread of its loop."""
        if self._entries == 0:
            raise ContractError("the threads are not running: enter the executor (or pool) with `async with` first.")
        if threading.get_ident() != self._owner:
            raise WrongThread("an open executor (or thread pool)")

    async def __aenter__(self) -> Self:
        if self._entries:
            self.check_open()
        else:
            self._owner = threading.get_ident()
            self._bell = LoopBell()
            # Of this opening alone: an abandoned thread of an earlier one must not take anything out of it.
            self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._entries += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entries -= 1
        if self._entries == 0:
            await self._end_threads()

    async def run(self, function: Callable[..., Returned], *args: Any) -> Returned:
        """Call ``function(*args)`` in a thread, with a copy of the caller's context variables.

        Returns what it returns and raises what it raises, and what `check_open` does.
        """
        self.check_open()
        call = _Call(function, args)
        with self._lock:
            self._queued += 1
        try:
            self._staff()
            self._queue.put(call)
            await call.finished.wait()
        except GeneratorExit:  # the coroutine is being closed, perhaps with no loop left: there is no waiting
            raise
        except get_cancelled_exc_class():
            await self._outlast(call)
            raise
        finally:
            self._abandon(call)
        return cast("Returned", call.outcome())

    def statistics(self) -> ThreadStatistics:
        """Take stock."""
        with self._lock:
            idle = len(self._threads) - self._running
            return ThreadStatistics(self.size, self._running, idle, self._queued, self._abandoned)

    # On the loop ------------------------------------------------------------------------------------------------------

    def _staff(self) -> None:
        """Start a thread if a queued call finds none idle."""
        with self._lock:
            short = self._queued > len(self._threads) - self._running
        if not short or len(self._threads) >= self.size:
            return
        self._started += 1
        ended = anyio.Event()
        arguments = (self._queue, self._bell, ended)
        thread = threading.Thread(
            target=self._work, args=arguments, name=f"adescent thread {self._started}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system gives us no more: go on with those there are
            if not self._threads:
                raise
        else:
            self._threads[thread] = ended

    async def _outlast(self, call: _Call) -> None:
        """Withdraw a cancelled call, or wait for it, within the grace, when a thread has already begun it."""
        if self._withdraw(call):
            return
        with anyio.move_on_after(self.grace, shield=True):
            await call.finished.wait()
            call.drop()

    def _withdraw(self, call: _Call) -> bool:
        with self._lock:
            if call.state is not _State.QUEUED:
                return False
            call.state = _State.GIVEN_UP
            self._queued -= 1
            return True

    def _abandon(self, call: _Call) -> None:
        """Give up what has not finished. In good times there is nothing to do."""
        if self._withdraw(call):
            return
        with self._lock:
            if call.state is not _State.RUNNING:
                return
            call.state = _State.GIVEN_UP
            self._running -= 1
            self._abandoned += 1
            self._threads.pop(cast("threading.Thread", call.thread), None)
        if self._entries:
            self._staff()

    async def _end_threads(self) -> None:
        leaving, self._threads = self._threads, {}
        for _ in leaving:
            self._queue.put(None)
        with anyio.move_on_after(self.grace, shield=True):
            for ended in leaving.values():
                await ended.wait()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread, ended in leaving.items():
            if ended.is_set():
                thread.join(max(0.0, deadline - time.monotonic()))

    # In a thread ------------------------------------------------------------------------------------------------------

    def _work(self, queue: SimpleQueue[_Call | None], bell: LoopBell, ended: anyio.Event) -> None:
        while (call := queue.get()) is not None:
            if self._begin(call):
                call.perform()
                if not self._finish(call):
                    return
                bell.ring(call.finished)
            del call  # an idle thread keeps nothing alive
        bell.ring(ended)

    def _begin(self, call: _Call) -> bool:
        with self._lock:
            if call.state is not _State.QUEUED:
                return False
            call.state = _State.RUNNING
            call.thread = threading.current_thread()
            self._queued -= 1
            self._running += 1
            return True

    def _finish(self, call: _Call) -> bool:
        with self._lock:
            abandoned = call.state is _State.GIVEN_UP
            if not abandoned:
                call.state = _State.FINISHED
                self._running -= 1
        if abandoned:
            call.drop()
        return not abandoned

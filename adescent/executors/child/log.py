"""What a rollout prints: the beginning is sent as it comes, of the rest the end is kept, and nothing grows."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from threading import RLock
from time import monotonic
from typing import Any

from adescent.executors.child.descriptors import StandardDescriptors
from adescent.executors.results import contained
from adescent.sandbox.redaction import Redactor

__all__ = ["PRINTS", "RolloutLog", "StandardStreams", "printing_to"]

PIECE = 1024
"""Characters after which a line that has not ended is sent in part."""
HEAD = 8 * 1024
TAIL = 8 * 1024
"""Characters of what is sent at once, and of what is kept of the rest."""
SIGN_OF_LIFE_SECONDS = 1.0
"""How often a rollout that goes on printing is heard of when there is no room for what it says: it does not hang."""
KEPT = 2 * TAIL
"""Characters that are kept until the end is known, so that a secret is not cut in two before it is found."""

PRINTS: ContextVar[RolloutLog | None] = ContextVar("prints", default=None)
"""The log of the rollout on whose behalf code runs; the tasks it starts inherit it."""


class printing_to:  # noqa: N801 - read as a word of a `with` statement; a generator there takes three times as long
    """Within, what is printed is of that rollout, also what a stream of the rollout's own holds back until the end."""

    __slots__ = ("_before", "_log")

    def __init__(self, log: RolloutLog) -> None:
        self._log = log

    def __enter__(self) -> None:
        self._before = PRINTS.set(self._log)

    def __exit__(self, *_: object) -> None:
        try:
            for name in ("stdout", "stderr"):
                stream = vars(sys).get(name)
                if type(stream) is not _Text or stream.is_changed:  # else nothing is held back
                    with suppress(Exception):
                        contained(_flush, stream)
        finally:
            PRINTS.reset(self._before)


def _flush(stream: Any) -> None:
    stream.flush()


class RolloutLog:
    """The log of one rollout. ``send`` is given its pieces as they are due, redacted; none ends within a secret."""

    # Here, since most rollouts print nothing: what is not set costs nothing.
    _head = ""
    _sent = 0
    _tail = ""
    _cut = 0
    _silent_from = 0.0
    closed = False

    def __init__(self, send: Callable[[str], None], redactor: Redactor) -> None:
        self._send = send
        self._redactor = redactor
        self._margin = max(0, redactor.longest - 1)  # of a secret that is cut in two, at most so much is on one side
        self._lock = RLock()  # its threads print too, and handlers of signals in the middle of that
        self._room = HEAD + self._margin

    def write(self, text: str) -> None:
        """Take what was printed."""
        with self._lock:
            if self._room > 0:
                text = self._write_head(text)
            if text:
                self._write_tail(text)

    def close(self) -> None:
        """Send what has not been sent. What is printed from now on is not of this rollout any more."""
        self.closed = True
        if self._sent == len(self._head) and not self._tail:
            return
        with self._lock:
            text, rest = self._end_of_head()
            self._tail = rest + self._tail
            if self._cut:  # it may begin with the rest of a secret
                start = self._redactor.boundary(self._tail, self._margin)
                self._cut, self._tail = self._cut + start, self._tail[start:]
            tail = self._redactor.text(self._tail)
            cut = self._cut + max(0, len(tail) - TAIL)
            text += f"\n[… {cut} characters left out …]\n{tail[-TAIL:]}" if cut else tail
            self._tail = ""
            self._send(text)

    def _write_head(self, text: str) -> str:
        """Send what is due of it. What there is no room for."""
        self._head += text[: self._room]
        rest = text[self._room :]
        self._room -= len(text) - len(rest)
        if not self._room:
            piece, beyond = self._end_of_head()
            self._send(piece)
            return beyond + rest
        end = self._head.rfind("\n", self._sent, HEAD) + 1
        if min(len(self._head), HEAD) - max(end, self._sent) >= PIECE:
            end = min(len(self._head), HEAD)
        end = self._redactor.boundary(self._head, end)
        if end > self._sent:
            piece, self._sent = self._head[self._sent : end], end
            self._send(self._redactor.text(piece))
        return rest

    def _end_of_head(self) -> tuple[str, str]:
        """What is still to be sent of it, redacted, and what came after it: so far that no secret lies across."""
        end = max(self._sent, self._redactor.boundary(self._head, HEAD))
        piece, beyond = self._head[self._sent : end], self._head[end:]
        self._head, self._sent = "", 0
        return self._redactor.text(piece), beyond

    def _write_tail(self, text: str) -> None:
        now = monotonic()
        if now - (self._silent_from or now) >= SIGN_OF_LIFE_SECONDS:
            self._send("")
            self._silent_from = now
        self._silent_from = self._silent_from or now
        self._tail += text
        kept = KEPT + self._margin
        if len(self._tail) > 2 * kept:
            self._cut += len(self._tail) - kept
            self._tail = self._tail[-kept:]


class _Routed(io.RawIOBase):
    """The bytes below a standard stream: to the log of the rollout that prints, else to the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_copy = False
        os.register_at_fork(after_in_child=self._become_copy)

    def _become_copy(self) -> None:
        self._is_copy = True  # of a process whose log it cannot reach

    def write(self, data: Any) -> int:
        log = PRINTS.get()
        if log is None or log.closed or self._is_copy:
            self._write_outside(data)
        else:
            log.write(str(data, "utf-8", "replace"))
        return len(data)

    def _write_outside(self, data: Any) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:  # user code has closed it, and there is nobody to tell
            pass

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Stay open: the next rollout prints here too."""


class StandardStreams:
    """What the standard streams are in a worker, and the descriptors below them."""

    def __init__(self) -> None:
        self._descriptors = StandardDescriptors()
        self._in = _reading_nothing()
        self._out, self._err = _Text(1), _Text(2)
        self.restore()

    def restore(self) -> None:
        """Put them in place, in case user code left something else there."""
        if _is_gone(self._in):  # ``exit()`` closes it
            self._in = _reading_nothing()
        for stream in (self._out, self._err):
            stream.restore()
        sys.stdin = sys.__stdin__ = self._in  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = self._out  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._err  # type: ignore[misc]
        self._descriptors.restore()  # last: what stood in their place may close a descriptor when nobody holds it


def _reading_nothing() -> io.TextIOWrapper:
    return open(0, encoding="utf-8", closefd=False)


def _is_gone(stream: io.TextIOWrapper) -> bool:
    try:
        return stream.closed
    except ValueError:  # it has been detached from what was below
        return True


class _Text(io.TextIOWrapper):
    """A standard stream. What user code makes of it is undone by `restore`."""

    def __init__(self, descriptor: int) -> None:
        # Lone surrogates are spelled out: a log crosses to the parent as UTF-8.
        super().__init__(_Routed(descriptor), "utf-8", "backslashreplace", write_through=True)  # type: ignore[arg-type]
        self.is_changed = False

    def reconfigure(self, **changes: Any) -> None:
        self.is_changed = True
        super().reconfigure(**changes)

    def detach(self) -> Any:
        """What is below, for another stream over it; this one stays as well: the next rollout prints here too."""
        return self.buffer

    def restore(self) -> None:
        """Write as at first."""
        if self.is_changed:
            super().reconfigure(
                encoding="utf-8", errors="backslashreplace", newline=None, line_buffering=False, write_through=True
            )
            self.is_changed = False

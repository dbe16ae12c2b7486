"""What goes wrong in an actor: kept from ending more than its rollout, and put into a record.

The record says whose fault it is, whether trying again may help, and where it happened. Needs no event loop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from adescent.checks import is_number
from adescent.errors import AdescentError, Transient
from adescent.workspec import Failure, FailureKind

__all__ = ["ActorAborted", "cause_of", "contained", "failure_from", "traceback_of", "type_name"]

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_192
"""Characters kept of a traceback: the last ones, since what was raised stands at the end."""

MAX_REDACTED, MARGIN = 2**20, 2**18
"""Characters of a longer text that are redacted before it is cut to size, and how many of those, next to where they
were cut off, are then left out: a secret that was cut in two there was not found."""

_HERE = str(Path(__file__).parent)
_NAME = type.__dict__["__name__"]
_PASSING = (Transient, ConnectionError, TimeoutError)


class ActorAborted(AdescentError):
    """An actor raised what would have ended more than its own rollout, such as SystemExit; ``error`` is that."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return f"the actor raised {type(self.error).__name__}: {self.error}"


def contained(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain function so that it raises Exceptions only: whatever else it raises comes as `ActorAborted`.

    That is done where it runs: on a loop a CancelledError of the function's would look like one of the task's. And so
    does a StopIteration, of which a coroutine would make something else.
    """
    try:
        return function(*args)
    except StopIteration as error:
        raise ActorAborted(error) from error
    except Exception:
        raise
    except BaseException as error:
        raise ActorAborted(error) from error


def cause_of(error: BaseException) -> BaseException:
    """What the actor itself raised: `ActorAborted` is seen through."""
    return error.error if type(error) is ActorAborted else error


def type_name(error: BaseException) -> str:
    """The name of its type, whatever a metaclass says instead."""
    name: str = _NAME.__get__(type(error))
    return name


def failure_from(
    error: BaseException,
    kind: FailureKind,
    stage: Literal["run", "reward", "propose", "worker"],
    redact: Callable[[str], str] | None = None,
) -> Failure:
    """The record of what an actor raised; `ActorAborted` is seen through. Its message is redacted, then cut."""
    cause = cause_of(error)
    return Failure(
        kind, stage, type_name(cause), _words(cause, redact), _is_passing(cause), _retry_after(cause), cause=cause
    )


def traceback_of(error: BaseException, redact: Callable[[str], str] | None = None) -> str:
    """The text of its traceback from the actor's first frame on, redacted; at most the last 8192 characters of that."""
    cause = cause_of(error)
    frames = _beyond_us(cause.__traceback__)
    try:
        text = "".join(traceback.format_exception(type(cause), cause, frames))
    except Exception:  # noqa: BLE001 - a class that exec() has made in a bare scope has no module to be named by
        text = f"{''.join(traceback.format_tb(frames))}{type_name(cause)}: {_words(cause, redact)}\n"
    if redact is not None:
        text = redact(text) if len(text) <= MAX_REDACTED else redact(text[-MAX_REDACTED:])[MARGIN:]
    return text[-MAX_TRACEBACK:]


def _words(error: BaseException, redact: Callable[[str], str] | None) -> str:
    try:
        text = str(error)
        if redact is not None:
            text = redact(text) if len(text) <= MAX_REDACTED else redact(text[:MAX_REDACTED])[:-MARGIN]
        return text[:MAX_MESSAGE]
    except Exception as broken:  # noqa: BLE001 - an exception whose words fail is still a failure to report
        return f"(no message: its __str__ raised {type(broken).__name__})"


def _is_passing(error: BaseException) -> bool:
    """Whether it may pass. A group (of a task group inside the actor) may when everything in it may."""
    return all(isinstance(leaf, _PASSING) for leaf in _leaves(error))


def _retry_after(error: BaseException) -> float | None:
    """The seconds to wait that were asked for; of a group's, the most."""
    waits = [leaf.retry_after for leaf in _leaves(error) if isinstance(leaf, Transient)]
    return max(filter(is_number, waits), default=None)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What is no group, of groups in groups, however deep."""
    left = [error]
    while left:
        found = left.pop()
        if isinstance(found, BaseExceptionGroup):
            left += found.exceptions
        else:
            yield found


def _beyond_us(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames of this room that lead to the actor; all of them are ours when the actor never got a frame."""
    first = trace
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace or first

"""Copies of a worker, which code makes that forks: what they do there is theirs, but they do not go on as workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["Original", "end_copies"]


class Original:
    """The process in which this was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def end_copy(self) -> None:
        """End this process at once if it is another one: it has come back from what it was made for."""
        if os.getpid() != self._pid:
            os._exit(1)


def end_copies(original: Original) -> None:
    """Have the loop that runs here end the process, before it does much else, where a task has forked and awaits."""
    from anyio.lowlevel import current_token

    loop: Any = current_token().native_token
    here = threading.get_ident()
    end_soon = (
        partial(loop.call_soon, original.end_copy) if hasattr(loop, "call_soon") else _before_trio_goes_on(original)
    )

    def end_here() -> None:
        if threading.get_ident() == here:  # in a copy that another thread has made, no loop runs
            end_soon()

    os.register_at_fork(after_in_child=end_here)


def _before_trio_goes_on(original: Original) -> Callable[[], None]:
    """Have trio end the copy before it looks for events: those of its epoll are shared, and lost to the original."""
    from trio.abc import Instrument
    from trio.lowlevel import add_instrument

    class EndOfCopy(Instrument):
        def before_task_step(self, task: object) -> None:
            original.end_copy()

        def before_io_wait(self, timeout: float) -> None:
            original.end_copy()

    return partial(add_instrument, EndOfCopy())

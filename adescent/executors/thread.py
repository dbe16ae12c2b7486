"""Rollouts in daemon threads."""

from __future__ import annotations

from adescent.checks import need_whole
from adescent.errors import OptionError
from adescent.executors.local import LocalExecutor
from adescent.executors.threads import ThreadPool
from adescent.policies import Actors

__all__ = ["ThreadExecutor"]


class ThreadExecutor(LocalExecutor):
    """Runs plain functions, ones that wait for a network or a disk, in up to ``n`` daemon threads of its own.

    Async actors and this package's scorers run on the loop all the same. A call that is cancelled is waited for
    ``thread_grace`` seconds, then its thread is left behind and counted (`counters`). Raises OptionError for ``n``
    below 1 and a negative grace.
    """

    def __init__(self, n: int, thread_grace: float = 5.0, *, actors: Actors | None = None) -> None:
        need_whole("n", n, 1, OptionError, of="ThreadExecutor")
        super().__init__(ThreadPool(n, thread_grace), n, actors)

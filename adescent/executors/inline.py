"""Rollouts on the host's event loop."""

from __future__ import annotations

from adescent.executors.local import LocalExecutor
from adescent.executors.threads import ThreadPool
from adescent.policies import Actors

__all__ = ["InlineExecutor"]

DEFAULT_THREADS = 32


class InlineExecutor(LocalExecutor):
    """Awaits async actors on the host's loop, any number of rollouts at once: as many as the caller starts.

    Plain functions that may block go to ``threads``, a pool that is entered with the executor and may be shared; left
    out, it has one of its own (32 threads at most, started when first needed).
    """

    def __init__(self, actors: Actors | None = None, *, threads: ThreadPool | None = None) -> None:
        super().__init__(ThreadPool(DEFAULT_THREADS) if threads is None else threads, None, actors)

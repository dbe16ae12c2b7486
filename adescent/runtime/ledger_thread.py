"""The ledger as the run uses it: from one thread of its own, whole operations at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from anyio import CancelScope

from adescent.evolvable import Evolvable
from adescent.executors.threads import ThreadPool
from adescent.policies import Commit, Ledger

__all__ = ["LedgerThread"]

T = TypeVar("T")


class LedgerThread:
    """Calls a synchronous ledger without holding the event loop.

    An operation that has begun is finished before a cancellation is let through, since half of one is worth nothing.
    ``published`` is called with every new head, on the loop.
    """

    def __init__(self, ledger: Ledger, thread: ThreadPool, published: Callable[[Evolvable], None]) -> None:
        self._ledger = ledger
        self._thread = thread
        self._published = published

    async def call(self, method: Callable[..., T], *args: Any) -> T:
        """``method(*args)`` in the ledger's thread, or right here when it never waits for a disk."""
        if not self._ledger.blocking:
            return method(*args)
        return await self._thread.run(method, *args)

    @property
    def location(self) -> str:
        """Where the repository is, or ``""`` when it is in memory."""
        return self._ledger.location

    async def register(self, artifact: Evolvable) -> Evolvable:
        """Take in an artifact as version 1."""
        return await self.call(self._ledger.register, artifact)

    async def log(self) -> tuple[Commit, ...]:
        """The commits on dev, newest first."""
        return tuple(await self.call(self._ledger.log))

    async def head(self, artifact_id: str, branch: str = "dev") -> Evolvable:
        """The newest version on a branch."""
        return await self.call(self._ledger.head, artifact_id, branch)

    async def commit(
        self, artifact: Evolvable, base_version: int, *, message: str = "", decision: Mapping[str, str] | None = None
    ) -> Evolvable:
        """Compare-and-swap on dev; the new head is published before this returns.

        It does return once the ledger has been asked: else a run that is cut off would not know of its own last commit.
        """

        def commit() -> Evolvable:
            return self._ledger.commit(artifact, base_version, message=message, decision=decision)

        committed = await self._to_the_end(commit)
        self._published(committed)
        return committed

    async def promote(self, artifact_id: str, version: int) -> Evolvable:
        """Make this version the one on stable, and return, as `commit` does."""
        return await self._to_the_end(self._ledger.promote, artifact_id, version)

    async def _to_the_end(self, method: Callable[..., T], *args: Any) -> T:
        done: list[T] = []
        with CancelScope(shield=True):  # no deadline: the thread waits for the disk whether we do or not
            done.append(await self.call(method, *args))
        return done[0]

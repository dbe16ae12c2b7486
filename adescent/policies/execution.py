"""Where a rollout runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from attrs import frozen

from adescent.refs import Resolver
from adescent.workspec import Result, RolloutSpec, Workspace

__all__ = [
    "Actors",
    "AdmissionControl",
    "Executor",
    "SandboxProvider",
]


@frozen(eq=False)
class Actors:
    """The functions of a run, or Refs to them, and what is needed to call them.

    ``run(rendered, task[, ctx])``, ``reward(task, output)``; ``hide`` are keys of ``task.meta`` that run does not see.
    """

    run: Any
    reward: Any
    hide: tuple[str, ...] = ("gold",)
    resolver: Resolver | None = None


class Executor(Protocol):
    """Where rollouts run: one at a time in, one result out, any number in flight.

    Some optional extras are used where an executor has them. ``confines`` (False unless said otherwise) tells whether
    it does what the sandbox of a spec asks for; ``sandbox`` is then the `SandboxSpec` of specs that bring none, or
    None. ``counters()`` gives what it has counted since it was made, by name. ``queue_depth`` is how many rollouts to
    hand it at once so that none of its slots ever waits for the next one. ``begin_rollout(spec, ended)`` has a rollout
    under way without a task that waits for it, for callers with very many.
    """

    takes_callables: bool
    """Whether plain callables may be attached; if not, actors must be Refs."""

    slots: int | None
    """How many rollouts can be under way at once; None where nothing but the caller limits it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...

    def attach_actors(self, actors: Actors) -> Executor:
        """A view of this executor for one run, with that run's actors."""
        ...

    async def rollout(self, spec: RolloutSpec) -> Result:
        """Run and score; whatever goes wrong is in the result."""
        ...


class SandboxProvider(Protocol):
    """Where worker processes live: a directory for each, on a lease that must be renewed and ends with its holder."""

    @property
    def ttl(self) -> float:
        """Seconds that a lease lasts without being renewed; whoever holds any renews every third of that."""
        ...

    async def acquire(self, owner: str) -> Workspace:
        """An empty directory of its own; ``owner`` is a note for people who look.

        Raises ContractError where there cannot be any, and OSError when the disk refuses.
        """
        ...

    async def release(self, workspace: Workspace) -> None:
        """Remove the directory, whatever was left in it; again is harmless.

        What a cancellation keeps it from, and what cannot be removed, is left to a later `reap`.
        """
        ...

    async def renew(self) -> None:
        """Renew every lease that this object holds."""
        ...

    async def reap(self) -> int:
        """Remove what was leased by holders that are gone and has expired; returns how many."""
        ...


class AdmissionControl(Protocol):
    """A ceiling on rollouts under way at once, shared with whoever else is handed the same."""

    def admitted(self) -> AbstractAsyncContextManager[None]:
        """A block that is entered when there is a place, and gives it back when left; a cancelled wait takes none."""
        ...

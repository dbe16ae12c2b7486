"""What ``run(rendered, task, ctx)`` gets besides its task: where to go on from, and a way to say how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from adescent.canonical import check_json
from adescent.errors import ContractError

__all__ = ["LastCheckpoint", "RolloutContext", "Saved"]


class Saved:
    """What ``ctx.checkpoint(…)`` returns: the state is kept already; awaiting it lets the loop do other things."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        from anyio.lowlevel import checkpoint  # only where there is a loop: a worker of plain functions loads none

        return checkpoint().__await__()


_SAVED = Saved()


class RolloutContext:
    """One attempt at a rollout, as its actor sees it.

    ``resume_state`` is the last state an earlier attempt kept, or None for the first. ``keep`` is called with each new
    one, in whatever thread the actor is. Raises ContractError for a ``resume_state`` that is not JSON.
    """

    __slots__ = ("_keep", "resume_state")

    def __init__(self, resume_state: Any, keep: Callable[[Any], None]) -> None:
        # A copy, since it is the actor's to change: what another attempt starts with must not change with it.
        self.resume_state = None if resume_state is None else _copied(resume_state, "resume_state")
        self._keep = keep

    def checkpoint(self, state: Any) -> Saved:
        """Keep ``state`` (JSON): should this attempt be lost, the next one starts with it as its ``resume_state``.

        Works from plain functions as well as with ``await``, and from any thread. The state is copied. Raises
        ContractError for what is not JSON, naming the field, and for None, which is how a first attempt is told.
        """
        if state is None:
            raise ContractError("checkpoint(None): None says that there is no state; keep {} to begin anew.")
        self._keep(_copied(state, "checkpoint"))
        return _SAVED


class LastCheckpoint:
    """Remembers the newest state of one attempt, beginning with the one it went on from. Threads may share it."""

    __slots__ = ("state",)

    def __init__(self, state: Any) -> None:
        self.state = state

    def keep(self, state: Any) -> None:
        """Take the place of what was kept before."""
        self.state = state


def _copied(state: Any, where: str) -> Any:
    check_json(state, where)
    return json.loads(json.dumps(state, default=dict))  # what is no dict here is a mapping of another kind

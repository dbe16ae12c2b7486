"""What ``run(rendered, task, ctx)`` gets besides its task: where to go on from, and a way to say how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from adescent.canonical import canonical_json, check_json

__all__ = ["RolloutContext", "Saved"]


class Saved:
    """What ``ctx.checkpoint(…)`` returns: the state is kept already; awaiting it lets the loop do other things."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        from anyio.lowlevel import checkpoint  # only where there is a loop: a worker of plain functions loads none

        return checkpoint().__await__()


class RolloutContext:
    """One attempt at a rollout, as its actor sees it.

    ``resume_state`` is the last state an earlier attempt kept, or None for the first.
    """

    __slots__ = ("_keep", "resume_state")

    def __init__(self, resume_state: Any, keep: Callable[[Any], None]) -> None:
        self.resume_state = resume_state
        self._keep = keep

    def checkpoint(self, state: Any) -> Saved:
        """Keep ``state`` (JSON): should this attempt be lost, the next one starts with it as its ``resume_state``.

        Works from plain functions as well as with ``await``. The state is copied. Raises ContractError for what is not
        JSON, naming the field.
        """
        check_json(state, "checkpoint")
        self._keep(json.loads(canonical_json(state)))
        return Saved()

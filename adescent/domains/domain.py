"""What a domain is: all that a run needs to know about the work, and nothing about the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field, frozen

from adescent.policies import Strategy
from adescent.tasks import Task

__all__ = ["Domain"]


def _as_tuple(tasks: Iterable[Task]) -> tuple[Task, ...]:
    return tuple(tasks)


@frozen(eq=False)
class Domain:
    """Work to evolve for: the tasks, how good an output is, who solves, who proposes, and what evolves from where.

    The fields go to ``evolve`` and ``async_evolve`` under the same names. ``solution`` is a state that is known to be
    the best one, where a domain knows it; no run is shown it.
    """

    tasks: tuple[Task, ...] = field(converter=_as_tuple)
    reward: Any
    run: Any
    propose: Any
    strategy: Strategy
    initial_state: Mapping[str, str] | None = None
    solution: Mapping[str, str] | None = None

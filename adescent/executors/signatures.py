"""What an actor takes and whether it is awaited, told from its signature; needs no event loop, and loads none."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from adescent.errors import ContractError

__all__ = ["REWARD", "RUN", "is_async", "is_ours", "reward_arity", "run_arity", "taken_arity"]

RUN = "run(rendered, task[, ctx])"
REWARD = "reward(task, output)"
"""How the actors of a rollout are called, in the words of messages."""


def run_arity(run: Any) -> int:
    """How many arguments a run is called with: 3 when it gets the `RolloutContext` too, else 2.

    It does when it has a parameter named ``ctx``, or requires a third. Raises ContractError for what takes neither.
    """
    return taken_arity(run, RUN, (2, 3), offered="ctx")


def reward_arity(reward: Any) -> int:
    """How many arguments a scorer is called with: 2. Raises ContractError for what does not take them."""
    return taken_arity(reward, REWARD, (2,))


def taken_arity(actor: Any, name: str, arity: tuple[int, ...], *, offered: str = "") -> int:
    """The first of ``arity`` (numbers of positional arguments) that the actor takes.

    ``name`` is how it is called, parameters included, for messages: ``"reward(task, output)"``. ``offered`` names a
    last argument that not everybody takes: for who has a parameter of that name the last of ``arity`` comes first.
    Raises ContractError when it is no callable or takes none of these numbers.
    """
    role = name.partition("(")[0]
    if not callable(actor):
        raise ContractError(f"{role} is a {type(actor).__name__}: give a function {name}, or a Ref to one.")
    try:
        signature = inspect.signature(actor)
    except (TypeError, ValueError):  # some builtins tell none; the call itself will tell
        return arity[0]
    for count in reversed(arity) if offered in signature.parameters else arity:
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    label = getattr(_innermost(actor), "__qualname__", type(actor).__qualname__)
    raise ContractError(f"{role} is {label}{signature}, which cannot be called as {name}: change what it takes.")


def is_async(actor: Any) -> bool:
    """Whether calling the actor gives something to await: a coroutine function in whatever wrapping."""
    function = _innermost(actor)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def is_ours(actor: Any) -> bool:
    """Whether this package defines the actor: its scorers compute briefly and never wait."""
    home = getattr(_innermost(actor), "__module__", None) or ""
    return home.partition(".")[0] == __name__.partition(".")[0]


def _innermost(actor: Any) -> Any:
    while isinstance(actor, functools.partial):
        actor = actor.func
    return actor

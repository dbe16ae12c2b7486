"""How an actor is called: checked once against its signature, then awaited like any other, whatever it is.

=======================================================  ===============================================================
the actor                                                runs
=======================================================  ===============================================================
coroutine function (method, partial, async ``__call__``) on the loop, awaited
plain function that this package defines (its scorers)   on the loop, at once: they compute briefly and never wait
any other plain function                                 in a thread of the run's pool
plain function that returns an awaitable                 in a thread; what it returns is awaited on the loop
=======================================================  ===============================================================
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint_if_cancelled

from adescent.cancellation import in_force, is_native, shed_stray
from adescent.errors import AdescentError, ContractError
from adescent.executors.threads import ThreadPool
from adescent.refs import Ref, Resolver

__all__ = ["ActorAborted", "Bound", "bind", "contained", "is_async", "parameters_of"]

Bound = Callable[..., Awaitable[Any]]

logger = logging.getLogger("adescent")


class ActorAborted(AdescentError):
    """An actor raised what would have ended more than its own rollout, such as SystemExit; ``error`` is that."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return f"the actor raised {type(self.error).__name__}: {self.error}"


def bind(
    actor: Any, *, name: str, arity: tuple[int, ...], threads: ThreadPool, resolver: Resolver | None = None
) -> Bound:
    """The actor as something to await, decided once so that a call is a straight line.

    ``actor`` is a callable or a Ref to one. ``name`` is how it is called, parameters included, for messages:
    ``"reward(task, output)"``. ``arity`` are the numbers of arguments it may take, the most wanted first: what comes
    back is called with ``max(arity)`` of them and passes on as many as the actor takes. It raises Exceptions only,
    cancellation of the calling task and Ctrl-C aside.

    Raises ContractError when the actor is no callable or takes none of these numbers, RefError when it does not
    resolve (here, since resolving may import).
    """
    if isinstance(actor, Ref):
        actor = (resolver or Resolver()).resolve(actor)
    taken = _arity_of(actor, name, arity)
    if is_async(actor):
        bound = _awaited(actor)
    elif _is_ours(actor):
        bound = _at_once(actor)
    else:
        bound = _in_thread(actor, threads)
    return bound if taken == max(arity) else _with_fewer(bound, taken)


def parameters_of(actor: Any) -> Collection[str]:
    """The names of what an actor takes; none where it does not tell."""
    try:
        return inspect.signature(actor).parameters
    except (TypeError, ValueError):
        return ()


def _arity_of(actor: Any, name: str, arity: tuple[int, ...]) -> int:
    role = name.partition("(")[0]
    if not callable(actor):
        raise ContractError(f"{role} is a {type(actor).__name__}: give a function {name}, or a Ref to one.")
    try:
        signature = inspect.signature(actor)
    except (TypeError, ValueError):  # some builtins tell none; the call itself will tell
        return arity[0]
    for count in arity:
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    label = getattr(_innermost(actor), "__qualname__", type(actor).__qualname__)
    raise ContractError(f"{role} is {label}{signature}, which cannot be called as {name}: change what it takes.")


def _innermost(actor: Any) -> Any:
    while isinstance(actor, functools.partial):
        actor = actor.func
    return actor


def is_async(actor: Any) -> bool:
    """Whether calling the actor gives something to await: a coroutine function in whatever wrapping."""
    function = _innermost(actor)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _is_ours(actor: Any) -> bool:
    home = getattr(_innermost(actor), "__module__", None) or ""
    return home.partition(".")[0] == __name__.partition(".")[0]


def _awaited(function: Bound) -> Bound:
    async def call(*args: Any) -> Any:
        try:
            returned = await function(*args)
            # What a plain function returned may be there to be awaited, and so may what an actor forgot to await.
            return await returned if inspect.isawaitable(returned) else returned
        except BaseException as error:
            if _holds(error, KeyboardInterrupt, GeneratorExit):
                raise
            await _pass_cancellation_on(error)
            if isinstance(error, Exception):
                raise
            raise ActorAborted(error) from error

    return call


def _at_once(function: Callable[..., Any]) -> Bound:
    async def compute(*args: Any) -> Any:
        return function(*args)

    return _awaited(compute)


def _in_thread(function: Callable[..., Any], threads: ThreadPool) -> Bound:
    async def call(*args: Any) -> Any:
        return await threads.run(contained, function, *args)

    return _awaited(call)


def contained(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread so that it raises Exceptions only.

    They are wrapped there, since on the loop a CancelledError of the function's would look like one of the task's.
    """
    try:
        return function(*args)
    except Exception:
        raise
    except BaseException as error:
        raise ActorAborted(error) from error


def _with_fewer(bound: Bound, count: int) -> Bound:
    async def call(*args: Any) -> Any:
        return await bound(*args[:count])

    return call


async def _pass_cancellation_on(error: BaseException) -> None:
    """Raise the cancellation of the task that called the actor, alone, if it is being cancelled; else its error stands.

    Whatever the actor made of it: what it raised besides, or instead, would outlive the scope that wanted it to end.
    """
    cancelled = get_cancelled_exc_class()
    if in_force():
        _log_rest(error, cancelled)
        await checkpoint_if_cancelled()  # raises what the scope knows for its own
    elif not is_native():
        await shed_stray()
    elif _holds(error, cancelled):
        if not isinstance(error, BaseExceptionGroup):
            raise error
        _log_rest(error, cancelled)
        raise cancelled from error  # only asyncio's is native, and can be made


def _log_rest(error: BaseException, cancelled: type[BaseException]) -> None:
    """What an actor says of its own while it is cancelled has no result to be in."""
    rest = error.split(cancelled)[1] if isinstance(error, BaseExceptionGroup) else error
    if rest is not None and not isinstance(rest, cancelled):
        logger.warning("an actor raised while it was being cancelled", exc_info=rest)


def _holds(error: BaseException, *kinds: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(kinds) is not None
    return isinstance(error, kinds)

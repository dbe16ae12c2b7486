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

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import get_cancelled_exc_class
from anyio.lowlevel import checkpoint_if_cancelled

from adescent.cancellation import in_force, is_native, shed_stray
from adescent.executors.results import ActorAborted, contained
from adescent.executors.signatures import is_async, is_ours, taken_arity
from adescent.executors.threads import ThreadPool
from adescent.refs import Ref, Resolver

__all__ = ["Bound", "bind"]

Bound = Callable[..., Awaitable[Any]]

logger = logging.getLogger("adescent")


def bind(
    actor: Any,
    *,
    name: str,
    arity: tuple[int, ...],
    threads: ThreadPool,
    resolver: Resolver | None = None,
    offered: str = "",
) -> Bound:
    """The actor as something to await, decided once so that a call is a straight line.

    ``actor`` is a callable or a Ref to one. ``name`` is how it is called, parameters included, for messages:
    ``"reward(task, output)"``. ``arity`` are the numbers of arguments it may take, as of `taken_arity`, and so is
    ``offered``: what comes back is called with ``max(arity)`` of them and passes on as many as the actor takes. It
    raises Exceptions only, cancellation of the calling task and Ctrl-C aside.

    Raises ContractError when the actor is no callable or takes none of these numbers, RefError when it does not
    resolve (here, since resolving may import).
    """
    if isinstance(actor, Ref):
        actor = (resolver or Resolver()).resolve(actor)
    taken = taken_arity(actor, name, arity, offered=offered)
    if is_async(actor):
        return _awaited(actor, taken)
    if is_ours(actor):
        return _awaited(_at_once(actor), taken)
    return _awaited(_in_thread(actor, threads), taken)


def _awaited(function: Bound, taken: int) -> Bound:
    async def call(*args: Any) -> Any:
        try:
            returned = await function(*args[:taken])
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

    return compute


def _in_thread(function: Callable[..., Any], threads: ThreadPool) -> Bound:
    async def call(*args: Any) -> Any:
        return await threads.run(contained, function, *args)

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

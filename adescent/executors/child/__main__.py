"""The worker process: ``python -m adescent.executors.child <in> <out>``, the numbers of the pipes to its parent.

It ties itself to its parent's life, confines itself as it is told, and performs rollouts until there are no more.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, NoReturn, TypeVar

from adescent.errors import SandboxUnavailable, WireError
from adescent.executors.child.channel import Channel
from adescent.executors.child.descriptors import out_of_reach, tie_to_parent
from adescent.executors.child.offspring import Offspring
from adescent.executors.child.rollouts import SCALARS, Call
from adescent.executors.child.signals import usual_signals
from adescent.executors.child.worker import Worker
from adescent.executors.child.workspace import OwnDirectory, SharedDirectory
from adescent.executors.results import contained
from adescent.executors.wire import VERSION, Bye, Hello, Message, Ready
from adescent.sandbox.confinement import confine
from adescent.sandbox.redaction import Redactor

__all__ = ["main"]

LOOK_SECONDS = 0.0005
"""How long nobody looks at the pipe while there is something to do: a look costs a tenth of what doing nothing does."""

Returned = TypeVar("Returned")


def main(receiving: int, sending: int) -> int:
    """Serve the parent at the other ends of these pipes; the exit code, 0 when it has closed them."""
    tie_to_parent()
    usual_signals()
    faulthandler.enable()
    channel = Channel(out_of_reach(receiving), out_of_reach(sending))
    reason = ""
    try:
        _serve(channel)
    except EOFError:
        pass
    except (OSError, SandboxUnavailable, WireError) as error:
        reason = str(error)
    with suppress(OSError, WireError):  # nobody may be there to hear it
        channel.send(Bye(reason))
    return 1 if reason else 0


def _serve(channel: Channel) -> NoReturn:
    """Raises EOFError when the parent has nothing more to say."""
    hello, messages = _greeting(channel)
    worker = _confined(channel, hello)
    worker.hear(messages)
    call: Call = partial(_call, hello.loop)
    look_again = 0.0
    while True:
        if not worker.has_waiting:
            worker.hear(channel.receive())
        if monotonic() >= look_again:
            worker.hear(channel.arrived())  # what cancels the next rollout may be there already
            look_again = monotonic() + LOOK_SECONDS
        begun = worker.begin() if worker.has_waiting else None
        if begun is None:
            continue
        rollout, actors = begun
        if actors.on_loop:
            from adescent.executors.child.loop import serve_on_loop  # a worker of plain functions loads no loop

            serve_on_loop(worker, hello, rollout, actors)
        worker.end(rollout, _to_its_end(rollout.perform(actors, call)))


def _greeting(channel: Channel) -> tuple[Hello, list[Message]]:
    """The parent's hello, and what came with it."""
    messages: list[Message] = []
    while not messages:
        messages = list(channel.receive())
    hello, *rest = messages
    if not isinstance(hello, Hello):
        raise WireError(f"the first message is no hello but {type(hello).__name__}.")
    if hello.version != VERSION:
        raise WireError(f"the parent speaks version {hello.version} and this worker {VERSION}: use one release.")
    return hello, rest


def _confined(channel: Channel, hello: Hello) -> Worker:
    """Do as the hello says, and say so. Raises OSError or SandboxUnavailable when it cannot be done."""
    sys.path[:] = hello.path
    redactor = Redactor.of(hello.secrets, os.environ)
    level = confine(
        hello.level,
        workspace=hello.workspace,
        memory_mb=hello.memory_mb,
        network=hello.network,
        readable=hello.readable,
    )
    directory = SharedDirectory() if level == "none" else OwnDirectory(hello.workspace)
    worker = Worker(channel, redactor, directory, None if level == "none" else Offspring())
    channel.send(Ready(VERSION, level))
    return worker


async def _call(loop: Any, actor: Callable[..., Any], *args: Any) -> Any:
    returned = contained(actor, *args)
    if type(returned) not in SCALARS and contained(inspect.isawaitable, returned):
        from adescent.executors.child.loop import await_alone

        return contained(await_alone, returned, loop)
    return returned


def _to_its_end(coroutine: Coroutine[Any, Any, Returned]) -> Returned:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        returned: Returned = end.value
        return returned
    raise RuntimeError("waited where there is no event loop")


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # how this module was found is nothing to what the actors start
    pipes = map(int, sys.argv[1:])
    del sys.argv[1:]
    sys.exit(main(*pipes))

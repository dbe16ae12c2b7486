"""What parent and worker say to each other: one record a message, tagged by an explicit name, strictly checked.

=============  =========  =======================================================================================
message        direction  meaning
=============  =========  =======================================================================================
``hello``      to worker  first of all: the protocol's version, how to find modules, how to confine itself
``ready``      to parent  the answer: what level of confinement was reached
``artifact``   to worker  a rendered artifact, named by its digest from now on; those to be forgotten
``job``        to worker  actors by Ref, under a number from now on
``run``        to worker  a rollout, by the names of artifact and job
``cancel``     to worker  a rollout is not wanted any more
``checkpoint`` to parent  a state from which a rollout could go on
``log``        to parent  what a rollout printed
``done``       to parent  a rollout ended with what it was for
``failed``     to parent  a rollout ended with an error
``bye``        to parent  the worker ends, and why, where it knows
=============  =========  =======================================================================================

Messages that are sent for every rollout are flat, and none is frozen though nobody changes one: nesting is what costs,
and a field of a frozen record takes three times as long to set.
"""

from __future__ import annotations

from functools import partial
from operator import eq
from typing import Any, Literal, cast

import msgpack
from attrs import define, field
from cattrs.fns import identity
from cattrs.preconf.msgpack import MsgpackConverter, make_converter

from adescent.canonical import as_dict
from adescent.errors import WireError
from adescent.executors.wire_checks import CHECKS
from adescent.executors.wire_values import MAX_VALUES, holds_too_many
from adescent.workspec import FailureKind, Level

__all__ = [
    "VERSION",
    "ArtifactText",
    "Bye",
    "Cancel",
    "Checkpoint",
    "Done",
    "Failed",
    "Hello",
    "Job",
    "Log",
    "Message",
    "Ready",
    "Run",
    "decode",
    "encode",
    "plain",
]

VERSION = 1
"""Goes up when parent and worker of different versions would misunderstand each other."""


ADVICE = "put large data into one text, or into a file that both sides can read."


@define
class Hello:
    """Parent to worker, first of all. ``loop`` is the event loop async actors run on: the parent's own kind.

    ``path`` becomes ``sys.path``; ``secrets`` are the names of variables whose values leave nowhere. Of async rollouts
    ``in_flight`` have begun at once (None: as many as are sent), and others wait for their turn.
    """

    version: int
    path: list[str]
    workspace: str
    level: Level
    loop: Literal["asyncio", "trio"] = "asyncio"
    memory_mb: int | None = None
    network: bool = False
    readable: list[str] = field(factory=list)
    secrets: list[str] = field(factory=list)
    in_flight: int | None = None


@define
class Ready:
    """Worker to parent: confined to ``level`` and waiting."""

    version: int
    level: Level


@define
class ArtifactText:
    """A rendered artifact. ``digest`` names it in the runs that follow; those in ``forget`` are named no more."""

    digest: str
    text: str
    forget: list[str] = field(factory=list)


@define
class Job:
    """Actors by Ref (in their JSON form); without ``run`` the output is given, without ``reward`` none is scored.

    ``hide`` are keys of a task's meta that ``run`` does not see, ``allow`` what Refs may resolve (as `Resolver`'s),
    ``cpu_seconds`` the processor time of one rollout.
    """

    number: int
    run: dict[str, Any] | None
    reward: dict[str, Any] | None
    hide: list[str] = field(factory=list)
    allow: list[str] = field(factory=list)
    cpu_seconds: float | None = None


@define
class Run:
    """One rollout: the job and the artifact by name, the task in full. ``output`` is what a scorer's job scores."""

    lease: int
    job: int
    artifact: str
    task_id: str
    prompt: str
    meta: dict[str, Any] = field(factory=dict)
    resume_state: Any = None
    output: Any = None


@define
class Cancel:
    """The rollout is not wanted any more: forget it if it has not begun, stop it if it can be stopped."""

    lease: int


@define
class Checkpoint:
    """A state (JSON) from which the rollout could go on elsewhere."""

    lease: int
    state: Any


@define
class Log:
    """A piece of what the rollout printed."""

    lease: int
    text: str


@define
class Done:
    """The rollout's output (JSON) and, if the job has a scorer, its score; ``seconds`` are wall time in the worker.

    The output that a scorer's job was given does not come back.
    """

    lease: int
    seconds: float
    output: Any = None
    score: float | None = None
    feedback: str = ""
    metrics: dict[str, float] = field(factory=dict)


@define
class Failed:
    """The rollout ended with an error: the fields of a `Failure`, its traceback, the output if there was one."""

    lease: int
    seconds: float
    kind: FailureKind
    stage: Literal["run", "reward", "worker"]
    type: str
    message: str
    transient: bool = False
    retry_after: float | None = None
    traceback: str = ""
    output: Any = None


@define
class Bye:
    """The worker ends; ``reason`` is empty when it was asked to."""

    reason: str = ""


Message = Hello | Ready | ArtifactText | Job | Run | Cancel | Checkpoint | Log | Done | Failed | Bye

# The names are the wire: a class may be renamed, a tag may not.
_TAGS: dict[str, type[Any]] = {
    "hello": Hello,
    "ready": Ready,
    "artifact": ArtifactText,
    "job": Job,
    "run": Run,
    "cancel": Cancel,
    "checkpoint": Checkpoint,
    "log": Log,
    "done": Done,
    "failed": Failed,
    "bye": Bye,
}
_TAG_OF = {kind: tag for tag, kind in _TAGS.items()}
TAG = ""
"""The key of a message's tag, which no field can be called."""


def _strict_converter() -> MsgpackConverter:
    converter = make_converter(forbid_extra_keys=True, omit_if_default=True, detailed_validation=False)
    for kind, check in CHECKS:
        if type(kind) is type:  # for a class there is a hook already, which one for a predicate does not replace
            converter.register_structure_hook(kind, check)
        else:
            converter.register_structure_hook_func(partial(eq, kind), check)
    converter.register_unstructure_hook_func(partial(eq, Any), identity)  # plain already, so nothing to walk through
    return converter


_CONVERTER = _strict_converter()
# Looked up once, not for every message.
_WRITE = {kind: _CONVERTER.get_unstructure_hook(kind) for kind in _TAG_OF}
_READ = {tag: (kind, _CONVERTER.get_structure_hook(kind)) for tag, kind in _TAGS.items()}


def encode(message: Message) -> bytes:
    """The bytes of a message. What is JSON in it has passed `check_json` already: nobody walks through it twice.

    Raises WireError when a value in it cannot be sent at all.
    """
    kind = type(message)
    try:
        fields = _WRITE[kind](message)
        fields[TAG] = _TAG_OF[kind]
        packed = cast("bytes", msgpack.packb(fields, default=as_dict))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"a {kind.__name__} message cannot be sent: {error}") from error
    if holds_too_many(packed):
        raise WireError(f"a {kind.__name__} message holds more than {MAX_VALUES} values: {ADVICE}")
    return packed


def decode(data: bytes | memoryview) -> Message:
    """The message that `encode` wrote. Raises WireError for everything else, whatever it is."""
    if holds_too_many(data):
        raise WireError(f"received a message of more than {MAX_VALUES} values.")
    try:
        fields = msgpack.unpackb(data)
        kind, read = _READ[fields.pop(TAG)]
        message: Message = read(fields, kind)
    except Exception as error:
        raise WireError(f"received what is no message: {type(error).__name__}: {str(error)[:200]}") from error
    return message


def plain(value: Any) -> Any:
    """A copy of a JSON value as the other side gets it: dicts for mappings, lists for tuples."""
    return msgpack.unpackb(msgpack.packb(value, default=as_dict))

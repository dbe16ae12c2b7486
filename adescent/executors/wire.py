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

Messages that are sent for every rollout are flat: nesting is what costs.
"""

from __future__ import annotations

from typing import Any, Literal

import msgpack
from attrs import field, frozen
from cattrs.preconf.msgpack import MsgpackConverter, make_converter

from adescent.errors import WireError
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


@frozen
class Hello:
    """Parent to worker, first of all. ``loop`` is the event loop async actors run on: the parent's own kind.

    ``path`` becomes ``sys.path``; ``secrets`` are the names of variables whose values leave nowhere.
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


@frozen
class Ready:
    """Worker to parent: confined to ``level`` and waiting."""

    version: int
    level: Level


@frozen
class ArtifactText:
    """A rendered artifact. ``digest`` names it in the runs that follow; those in ``forget`` are named no more."""

    digest: str
    text: str
    forget: list[str] = field(factory=list)


@frozen
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


@frozen
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


@frozen
class Cancel:
    """The rollout is not wanted any more: forget it if it has not begun, stop it if it can be stopped."""

    lease: int


@frozen
class Checkpoint:
    """A state (JSON) from which the rollout could go on elsewhere."""

    lease: int
    state: Any


@frozen
class Log:
    """A piece of what the rollout printed."""

    lease: int
    text: str


@frozen
class Done:
    """The rollout's output (JSON) and, if the job has a scorer, its score. ``seconds`` of wall time, in the worker."""

    lease: int
    seconds: float
    output: Any = None
    score: float | None = None
    feedback: str = ""
    metrics: dict[str, float] = field(factory=dict)


@frozen
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


@frozen
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


def _exactly(kind: type) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    return check


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is a {type(value).__name__}, not a number")
    return float(value)


def _strict_converter() -> MsgpackConverter:
    """Left to itself the library would turn "12" into 12 and 1 into "1"."""
    converter = make_converter(forbid_extra_keys=True, omit_if_default=True, detailed_validation=False)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _number)
    return converter


_CONVERTER = _strict_converter()


def encode(message: Message) -> bytes:
    """The bytes of a message. Raises WireError when a value in it is no plain JSON."""
    kind = type(message)
    try:
        fields = _CONVERTER.unstructure(message, kind)
        fields[TAG] = _TAG_OF[kind]
        packed: bytes = msgpack.packb(fields)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(f"a {kind.__name__} message cannot be sent: {error}") from error
    return packed


def decode(data: bytes) -> Message:
    """The message that `encode` wrote. Raises WireError for everything else, whatever it is."""
    try:
        fields = msgpack.unpackb(data)
        kind = _TAGS[fields.pop(TAG)]
        message: Message = _CONVERTER.structure(fields, kind)
    except Exception as error:
        raise WireError(f"received what is no message: {type(error).__name__}: {error}") from error
    return message


def plain(value: Any) -> Any:
    """A copy of a JSON value as the other side gets it: dicts for mappings, lists for tuples."""
    return msgpack.unpackb(msgpack.packb(value, default=dict))

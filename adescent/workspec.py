"""A rollout as data: what to run, how it is confined, and what came back.

These records cross threads, processes and machines. A spec names the actors by Ref, or leaves them out: then the
actors attached in this process are meant. A result reports and never raises, since one bad rollout is evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, get_args

from attrs import Attribute, field, frozen

from adescent.canonical import digest_of
from adescent.checks import is_duration, need_whole, shown
from adescent.errors import ContractError
from adescent.refs import Ref
from adescent.tasks import Score, Task, Usage

__all__ = ["Failure", "FailureKind", "Result", "RolloutSpec", "SandboxSpec", "Workspace"]

FailureKind = Literal["model", "infrastructure", "caller"]
Level = Literal["none", "limits", "landlock", "bubblewrap", "auto"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _variable_names(env: Iterable[str]) -> tuple[str, ...]:
    names = (env,) if isinstance(env, str) else tuple(env)
    for name in names:
        # What is refused may hold a secret: it must not come back in the message.
        if not isinstance(name, str) or not _VARIABLE.match(name):
            raise ContractError(
                "SandboxSpec(env=…) takes names of environment variables, such as ('LANG',); no values."
            )
    return tuple(sorted(set(names)))


def _whole(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None:
        need_whole(attribute.name, value, 1, ContractError, of="SandboxSpec", otherwise=", or None")


def _seconds(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None and not is_duration(value):
        given = f"SandboxSpec({attribute.name}={shown(value)})"
        raise ContractError(f"{given} must be a number of seconds above 0, or None.")


def _flag(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if not isinstance(value, bool):
        raise ContractError(f"SandboxSpec({attribute.name}={shown(value)}) must be True or False.")


def _one_of_the_levels(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if value not in get_args(Level):
        levels = ", ".join(map(repr, get_args(Level)))
        raise ContractError(f"SandboxSpec(level={shown(value)}) must be one of {levels}.")


@frozen(cache_hash=True)
class SandboxSpec:
    """How a rollout is confined.

    ``env`` are **names** of variables, never values. ``memory_mb`` is MiB, ``cpu_seconds`` and ``timeout_s`` seconds;
    None means no limit. ``require`` turns a level that cannot be reached into an error at the start. Raises
    ContractError for an ``env`` that holds more than names, and for a value out of range.
    """

    env: tuple[str, ...] = field(default=(), converter=_variable_names)
    memory_mb: int | None = field(default=2048, validator=_whole)
    cpu_seconds: float | None = field(default=None, validator=_seconds)
    timeout_s: float | None = field(default=None, validator=_seconds)
    network: bool = field(default=False, validator=_flag)
    level: Level = field(default="limits", validator=_one_of_the_levels)
    require: bool = field(default=False, validator=_flag)

    @property
    def asks_for_something(self) -> bool:
        """Whether a rollout that knows nothing of this sandbox would go against it; "none" leaves all as it is."""
        return self.level != "none" or self.env != () or (self.cpu_seconds, self.timeout_s) != (None, None)

    @cached_property
    def _fingerprint(self) -> str:
        limits = [self.memory_mb, self.cpu_seconds, self.timeout_s, self.network, self.level]
        return digest_of([self.env, *limits])[:16]

    def fingerprint(self) -> str:
        """16 hexadecimal digits that two sandboxes share when a measurement in one may stand for the other."""
        return self._fingerprint


def _sandbox(_: Any, attribute: Any, value: SandboxSpec | None) -> None:
    if value is not None and not isinstance(value, SandboxSpec):
        raise ContractError(f"{attribute.name}={shown(value)} must be made as SandboxSpec(…).")


@frozen
class Workspace:
    """A directory that a worker process has to itself: its absolute ``path``, and the ``id`` of its lease."""

    path: str
    id: str


@frozen(eq=False)
class RolloutSpec:
    """One rollout: run the task against a rendered artifact, score what comes out.

    ``run`` and ``reward`` None mean the actors attached to the executor. ``lease_id`` stays the same over every
    ``attempt`` (0, 1, …), so that a late second answer can be told from a first one. Raises ContractError for a
    ``sandbox`` that is none.
    """

    rendered: str
    task: Task
    run: Ref | None = None
    reward: Ref | None = None
    sandbox: SandboxSpec | None = field(default=None, validator=_sandbox)
    lease_id: str = ""
    attempt: int = 0
    resume_state: Any = None


@frozen(eq=False)
class Failure:
    """Why a rollout gave no score.

    ``stage`` says whose code failed, ``transient`` whether trying again may help (``retry_after`` seconds, if the
    other side said so). ``cause`` is the exception itself and stays in the process that saw it.
    """

    kind: FailureKind
    stage: Literal["run", "reward", "propose", "worker"]
    type: str
    message: str
    transient: bool = False
    retry_after: float | None = None
    cause: BaseException | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.stage}: {self.type}: {self.message}" if self.message else f"{self.stage}: {self.type}"


@frozen(eq=False)
class Result:
    """What came of a rollout: a ``score``, or an ``error`` that says why there is none.

    ``seconds`` is wall time where it ran, ``log`` what it printed (bounded), ``deaths`` how workers died on it,
    ``checkpoint`` the last state it could go on from, and ``level`` the confinement it ran under (``""``: none was
    asked for where it ran).
    """

    lease_id: str
    task_id: str
    output: Any = None
    score: Score | None = None
    error: Failure | None = None
    traceback: str = ""
    log: str = ""
    seconds: float = 0.0
    usage: Usage = Usage()
    attempt: int = 0
    deaths: tuple[str, ...] = ()
    checkpoint: Any = None
    level: str = ""

    @property
    def kind(self) -> Literal["ok", "model", "infrastructure", "caller"]:
        """``ok`` with a score, else who has to act: the model, the infrastructure, or the caller (a scorer)."""
        return "ok" if self.error is None else self.error.kind

    @property
    def died_every_time(self) -> bool:
        """Whether the rollout has ended every worker it was given to: that is evidence against what was run."""
        return self.kind == "infrastructure" and len(self.deaths) > self.attempt

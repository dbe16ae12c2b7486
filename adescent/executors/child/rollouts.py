"""One rollout in a worker, step by step: run the actor, look at what it made, have it scored, answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Literal

from attrs import frozen

from adescent.canonical import check_json
from adescent.checks import is_number
from adescent.errors import ContractError, WireError
from adescent.executors.child.log import PRINTS, RolloutLog
from adescent.executors.child.reserve import Reserve
from adescent.executors.context import RolloutContext
from adescent.executors.results import ActorAborted, contained, failure_from, traceback_of
from adescent.executors.signatures import is_async, reward_arity, run_arity
from adescent.executors.wire import Done, Failed, Job, Run, plain
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task, as_score
from adescent.workspec import FailureKind

__all__ = ["Actors", "Call", "Rollout"]

Call = Callable[..., Awaitable[Any]]
"""Calls an actor, awaits what is to be awaited, and raises Exceptions only, but for a cancellation of its task."""

Stage = Literal["run", "reward", "worker"]

_SCALARS = (str, type(None), bool, int, float)


@frozen
class Actors:
    """The actors of a job, ready to be called; ``on_loop``: at least one of them is to be awaited."""

    run: Callable[..., Any] | None
    reward: Callable[..., Any] | None
    takes_context: bool
    on_loop: bool

    @classmethod
    def of(cls, job: Job, resolver: Resolver) -> Actors:
        """Import, make and check them. Raises what that raises."""
        run = None if job.run is None else resolver.resolve(Ref.from_json(job.run))
        reward = None if job.reward is None else resolver.resolve(Ref.from_json(job.reward))
        takes_context = run is not None and run_arity(run) == 3
        if reward is not None:
            reward_arity(reward)
        return cls(run, reward, takes_context, is_async(run) or is_async(reward))


class Rollout:
    """A rollout that has begun. ``keep`` is given the states from which it says that it could go on.

    ``redact`` is applied to what is cut to size here. ``stop`` ends it early where that is possible: where it waits,
    on a loop.
    """

    __slots__ = ("_keep", "_redact", "_reserve", "_started", "_text", "job", "log", "run", "stop")

    def __init__(
        self,
        run: Run,
        job: Job,
        text: str,
        log: RolloutLog,
        keep: Callable[[Any], None],
        reserve: Reserve,
        redact: Callable[[str], str],
    ) -> None:
        self.run = run
        self.job = job
        self.log = log
        self.stop: Callable[[], None] = _not_to_be_stopped
        self._text = text
        self._keep = keep
        self._reserve = reserve
        self._redact = redact
        self._started = perf_counter()

    def actors(self, resolver: Resolver) -> Actors | Failed:
        """Its job's actors, or the answer that they cannot be had. May import, on this rollout's behalf."""
        printing = PRINTS.set(self.log)
        try:
            actors: Actors = contained(Actors.of, self.job, resolver)
        except Exception as error:  # noqa: BLE001 - whatever an import raises
            return self._failed(error, "caller", "worker")
        finally:
            PRINTS.reset(printing)
        return actors

    async def perform(self, actors: Actors, call: Call) -> Done | Failed:
        """Run and score; whatever goes wrong is in the answer."""
        task = Task(self.run.task_id, self.run.prompt, self.run.meta)
        output = None
        kind: FailureKind = "model"
        stage: Stage = "run"
        printing = PRINTS.set(self.log)
        try:
            if actors.run is not None:
                output = as_output(await call(actors.run, *self._arguments(task, actors)))
            if actors.reward is None:
                return Done(self.run.lease, self._seconds(), output)
            kind, stage = "caller", "reward"
            given = self.run.output if actors.run is None else _copied(output)
            score = _as_wire_score(await call(actors.reward, task, given))
        except Exception as error:  # noqa: BLE001 - one bad rollout is evidence and leaves its neighbours alone
            return self._failed(error, kind, stage, output)
        finally:
            PRINTS.reset(printing)
        feedback, metrics = spelled_out(score.feedback), dict(score.metrics)
        return Done(self.run.lease, self._seconds(), output, score.value, feedback, metrics)

    def cancelled(self) -> Failed:
        """The answer that says that it was stopped."""
        message = "the rollout was not wanted any more."
        return Failed(self.run.lease, self._seconds(), "infrastructure", "worker", "Cancelled", message)

    def unsendable(self, error: WireError) -> Failed:
        """The answer in place of one that is too large, or holds what does not cross."""
        if self.job.run is None:
            return self._failed(error, "caller", "reward")
        return self._failed(error, "model", "run")

    def _arguments(self, task: Task, actors: Actors) -> tuple[Any, ...]:
        shown = task.without(self.job.hide)
        if not actors.takes_context:
            return self._text, shown
        return self._text, shown, RolloutContext(self.run.resume_state, self._keep)

    def _failed(self, error: Exception, kind: FailureKind, stage: Stage, output: Any = None) -> Failed:
        if isinstance(error, MemoryError):
            self._reserve.release()
        lease, seconds = self.run.lease, self._seconds()
        try:
            failure = failure_from(error, kind, stage, self._redact)
            message, trace = spelled_out(failure.message), spelled_out(traceback_of(error, self._redact))
        except BaseException:  # noqa: BLE001 - somebody else's __str__ may raise anything
            cause = error.error if isinstance(error, ActorAborted) else error
            return Failed(lease, seconds, kind, stage, type(cause).__name__, "(it raises when asked for its words)")
        wait = failure.retry_after
        wait = float(wait) if is_number(wait) and math.isfinite(wait) else None
        return Failed(lease, seconds, kind, stage, failure.type, message, failure.transient, wait, trace, output)

    def _seconds(self) -> float:
        return perf_counter() - self._started


def _not_to_be_stopped() -> None:
    """A plain function runs on; the parent may end its process."""


def as_output(value: Any) -> Any:
    """The output as plain JSON, tuples as lists, a copy of its own. Raises ContractError naming what is none."""
    check_json(value, "output")
    return _copied(value)


def _copied(value: Any) -> Any:
    return value if type(value) in _SCALARS else plain(value)


def spelled_out(text: str) -> str:
    """The text with lone surrogates spelled out, which UTF-8 cannot carry."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _as_wire_score(raw: Any) -> Score:
    """A score whose words and numbers can be sent. Raises VoidScore, or ContractError naming the field."""
    score = as_score(raw)
    if not isinstance(score.feedback, str):
        raise ContractError(f"the score's feedback is a {type(score.feedback).__name__}: give words, or leave it out.")
    if not isinstance(score.metrics, Mapping):
        raise ContractError(f"the score's metrics are a {type(score.metrics).__name__}: give numbers by name.")
    if score.metrics:
        check_json(score.metrics, "the score's metrics")
    for name, number in score.metrics.items():
        if not is_number(number):
            raise ContractError(f"the score's metric {name!r} is a {type(number).__name__}: give a number.")
    return score

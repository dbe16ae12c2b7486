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
from adescent.executors.child.log import RolloutLog, printing_to
from adescent.executors.child.reserve import Reserve
from adescent.executors.context import RolloutContext
from adescent.executors.framing import frame
from adescent.executors.results import cause_of, contained, failure_from, traceback_of, type_name
from adescent.executors.signatures import is_async, reward_arity, run_arity
from adescent.executors.wire import Done, Failed, Job, Run, encode, plain
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task, as_score
from adescent.workspec import FailureKind

__all__ = ["SCALARS", "Actors", "Call", "Rollout"]

Call = Callable[..., Awaitable[Any]]
"""Calls an actor, awaits what is to be awaited, and raises Exceptions only, but for a cancellation of its task."""

Stage = Literal["run", "reward", "worker"]

SCALARS = (str, type(None), bool, int, float)
"""Types of values that hold no others and have no methods of anybody's making, which saves a look at them."""


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
        try:
            with printing_to(self.log):
                actors: Actors = contained(Actors.of, self.job, resolver)
        except Exception as error:  # noqa: BLE001 - whatever an import raises
            return self._failed(error, "caller", "worker")
        return actors

    async def perform(self, actors: Actors, call: Call) -> Done | Failed:
        """Run and score; whatever goes wrong is in the answer."""
        task = Task(self.run.task_id, self.run.prompt, self.run.meta)
        output = None
        kind: FailureKind = "model"
        stage: Stage = "run"
        try:
            with printing_to(self.log):
                if actors.run is not None:
                    # What it gave may have methods of its own making: they are the actor's code as well.
                    output = contained(as_output, await call(actors.run, *self._arguments(task, actors)))
                if actors.reward is None:
                    return Done(self.run.lease, self._seconds(), output)
                kind, stage = "caller", "reward"
                given = self.run.output if actors.run is None else _copied(output)
                score: Score = contained(_as_wire_score, await call(actors.reward, task, given))
        except Exception as error:  # noqa: BLE001 - one bad rollout is evidence and leaves its neighbours alone
            return self._failed(error, kind, stage, output)
        return Done(self.run.lease, self._seconds(), output, score.value, score.feedback, dict(score.metrics))

    def cancelled(self) -> Failed:
        """The answer that says that it was stopped."""
        message = "the rollout was not wanted any more."
        return Failed(self.run.lease, self._seconds(), "infrastructure", "worker", "Cancelled", message)

    def unsendable(self, error: WireError, output: Any) -> Failed:
        """The answer in place of one that is too large: what its scorer said is, if its output can be sent alone."""
        if self.job.reward is None:
            return self._failed(error, "model", "run")
        try:
            frame(encode(Done(self.run.lease, 0.0, output)))
        except WireError:
            return self._failed(error, "model", "run")
        return self._failed(error, "caller", "reward", output)

    def _arguments(self, task: Task, actors: Actors) -> tuple[Any, ...]:
        shown = task.without(self.job.hide)
        if not actors.takes_context:
            return self._text, shown
        return self._text, shown, RolloutContext(self.run.resume_state, self._keep)

    def _failed(self, error: Exception, kind: FailureKind, stage: Stage, output: Any = None) -> Failed:
        if issubclass(type(error), MemoryError):  # by its type: what it says of its class may be anything
            self._reserve.release()
        lease, seconds = self.run.lease, self._seconds()
        try:
            trace = spelled_out(traceback_of(error, self._redact))
        except BaseException:  # noqa: BLE001 - what it is put together from may be somebody else's, and raise anything
            trace = ""
        try:
            failure = failure_from(error, kind, stage, self._redact)
            wait = failure.retry_after
            wait = float(wait) if is_number(wait) and math.isfinite(wait) else None
            type_, message, passing = failure.type, spelled_out(failure.message), failure.transient
        except BaseException:  # noqa: BLE001 - so may its words
            type_, message = type_name(cause_of(error)), "(it raises when asked for its words)"
            passing, wait = False, None
        return Failed(lease, seconds, kind, stage, type_, message, passing, wait, trace, output)

    def _seconds(self) -> float:
        return perf_counter() - self._started


def _not_to_be_stopped() -> None:
    """A plain function runs on; the parent may end its process."""


def as_output(value: Any) -> Any:
    """The output as plain JSON, tuples as lists, a copy of its own. Raises ContractError naming what is none."""
    check_json(value, "output")
    return _copied(value)


def _copied(value: Any) -> Any:
    return value if type(value) in SCALARS else plain(value)


def spelled_out(text: str) -> str:
    """The text with lone surrogates spelled out, which UTF-8 cannot carry; text and nothing else, if it was more."""
    if type(text) is str and text.isascii():
        return text
    return str.encode(text, "utf-8", "backslashreplace").decode()


def _as_wire_score(raw: Any) -> Score:
    """A score whose words and numbers can be sent. Raises VoidScore, or ContractError naming the field."""
    if type(raw) in SCALARS:  # a value with nothing beside it that could be something else
        return as_score(raw)
    score = as_score(raw)
    if not isinstance(score.feedback, str):
        raise ContractError(f"the score's feedback is a {type(score.feedback).__name__}: give words, or leave it out.")
    if not isinstance(score.metrics, Mapping):
        raise ContractError(f"the score's metrics are a {type(score.metrics).__name__}: give numbers by name.")
    check_json(score.metrics, "the score's metrics")
    metrics = plain(score.metrics)
    for name, number in metrics.items():
        if not is_number(number):
            raise ContractError(f"the score's metric {name!r} is a {type(number).__name__}: give a number.")
    return Score(score.value, spelled_out(score.feedback), metrics)

"""What came of an order, as the result of a rollout: an answer put into records, or a loss put into words."""

from __future__ import annotations

from attrs import evolve

from adescent.errors import AdescentError, VoidScore
from adescent.executors.launching import Room
from adescent.executors.pool import Order
from adescent.executors.results import failure_from, traceback_of
from adescent.executors.wire import Done, Failed
from adescent.tasks import Score, as_score
from adescent.workspec import Failure, Result, RolloutSpec

__all__ = ["outcome", "refused"]

_LOST = {
    "deaths": ("WorkerLost", "its worker was lost {count} times"),
    "timeout": ("RolloutTimeout", "not done in the time its sandbox gives it (timeout_s)"),
    "cpu": ("CpuTimeExceeded", "used up the processor time its sandbox gives it (cpu_seconds)"),
    "not ready": ("WorkerNotReady", "no worker came up"),
    "closed": ("ExecutorClosed", "the executor was closed while this was under way"),
}


def refused(spec: RolloutSpec, error: AdescentError) -> Result:
    """The result of a spec that cannot be run here."""
    failure = failure_from(error, "caller", "worker")
    return Result(spec.lease_id, spec.task.id, error=failure, traceback=traceback_of(error), attempt=spec.attempt)


def outcome(spec: RolloutSpec, order: Order, room: Room, *, after: Result | None = None) -> Result:
    """The result that an order has led to; ``after`` is that of the run whose output it only scored."""
    result = Result(
        spec.lease_id,
        spec.task.id,
        log=order.log,
        attempt=spec.attempt + order.attempt,
        deaths=tuple(order.deaths),
        checkpoint=order.checkpoint,
        level=room.level,
    )
    if order.answer is None:
        result = _lost(result, order)
    elif isinstance(order.answer, Done):
        result = _done(result, order.answer, scored=order.job is not None and order.job.reward is not None)
    else:
        result = _failed(result, order.answer)
    return _redacted(result if after is None else _joined(after, result), room)


def _done(result: Result, done: Done, *, scored: bool) -> Result:
    result = evolve(result, output=done.output, seconds=done.seconds)
    if not scored:
        return result
    try:
        # Again here: what comes out of a worker is what its code made of it.
        score = as_score(None if done.score is None else Score(done.score, done.feedback, done.metrics))
    except VoidScore as error:
        return evolve(result, error=failure_from(error, "caller", "reward"), traceback=traceback_of(error))
    return evolve(result, score=score)


def _failed(result: Result, failed: Failed) -> Result:
    failure = Failure(failed.kind, failed.stage, failed.type, failed.message, failed.transient, failed.retry_after)
    return evolve(result, output=failed.output, error=failure, traceback=failed.traceback, seconds=failed.seconds)


def _lost(result: Result, order: Order) -> Result:
    type_, words = _LOST[order.loss]
    why = "; ".join(order.deaths) or order.detail
    message = words.format(count=len(order.deaths)) + (f": {why}" if why else "")
    last_attempt = result.attempt - 1 if order.loss == "deaths" else result.attempt
    return evolve(result, attempt=last_attempt, error=Failure("infrastructure", "worker", type_, message))


def _joined(ran: Result, scored: Result) -> Result:
    """The run's result with what the scorer made of it. A scorer's death is not held against the run."""
    return evolve(
        scored,
        output=ran.output,
        log=ran.log + scored.log,
        seconds=ran.seconds + scored.seconds,
        attempt=ran.attempt,
        deaths=ran.deaths,
        checkpoint=ran.checkpoint,
        level=ran.level,
    )


def _redacted(result: Result, room: Room) -> Result:
    redact = room.redactor
    if not redact:
        return result
    score, error = result.score, result.error
    return evolve(
        result,
        output=redact.json(result.output),
        score=None if score is None else evolve(score, feedback=redact.text(score.feedback)),
        error=None if error is None else evolve(error, message=redact.text(error.message)),
        traceback=redact.text(result.traceback),
        log=redact.text(result.log),
    )

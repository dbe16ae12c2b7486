"""What came of an order, as the result of a rollout: an answer put into records, or a loss put into words."""

from __future__ import annotations

from attrs import evolve

from adescent.errors import AdescentError, VoidScore
from adescent.executors.launching import Room
from adescent.executors.pool import Order
from adescent.executors.pool_rules import Loss
from adescent.executors.results import failure_from, traceback_of
from adescent.executors.wire import Done, Failed
from adescent.tasks import Score, as_score
from adescent.workspec import Failure, Result, RolloutSpec

__all__ = ["outcome", "refused"]

_LOST: dict[Loss, tuple[str, str]] = {
    "deaths": ("WorkerLost", "its worker was lost {count} times"),
    "timeout": ("RolloutTimeout", "not done in the time its sandbox gives it (timeout_s)"),
    "cpu": ("CpuTimeExceeded", "used up the processor time its sandbox gives it (cpu_seconds)"),
    "not ready": ("WorkerNotReady", "no worker came up"),
    "closed": ("ExecutorClosed", "the executor was closed while this was under way"),
}


def refused(spec: RolloutSpec, error: AdescentError | OSError) -> Result:
    """The result of a spec that cannot be run here."""
    failure = failure_from(error, "infrastructure" if isinstance(error, OSError) else "caller", "worker")
    return Result(spec.lease_id, spec.task.id, error=failure, traceback=traceback_of(error), attempt=spec.attempt)


def outcome(spec: RolloutSpec, order: Order, room: Room, *, after: Result | None = None) -> Result:
    """The result that an order has led to; ``after`` is that of the run whose output it only scored."""
    answer = order.answer
    output, score, error, traceback, seconds = None, None, None, "", 0.0
    if answer is None:
        error = _lost(order)
    else:
        output, seconds = answer.output, answer.seconds
        if isinstance(answer, Failed):
            error, traceback = _failure(answer), answer.traceback
        elif order.job.reward is not None:
            try:
                score = _score(answer)
            except VoidScore as void:
                error, traceback = failure_from(void, "caller", "reward"), traceback_of(void)
    result = Result(
        spec.lease_id,
        spec.task.id,
        output,
        score,
        error,
        traceback,
        order.log,
        seconds,
        # The attempt it was lost in was the last one: the next was not made.
        attempt=spec.attempt + order.attempt - (order.loss == "deaths"),
        deaths=tuple(order.deaths),
        checkpoint=order.checkpoint,
        level=room.level,
    )
    return _redacted(result if after is None else _joined(after, result), room)


def _score(done: Done) -> Score:
    """Looked at again here: what comes out of a worker is what its code made of it. Raises VoidScore."""
    return as_score(None if done.score is None else Score(done.score, done.feedback, done.metrics))


def _failure(failed: Failed) -> Failure:
    return Failure(failed.kind, failed.stage, failed.type, failed.message, failed.transient, failed.retry_after)


def _lost(order: Order) -> Failure:
    assert order.loss is not None  # it has ended, without an answer
    type_, words = _LOST[order.loss]
    why = "; ".join(order.deaths) or order.detail
    message = words.format(count=len(order.deaths)) + (f": {why}" if why else "")
    return Failure("infrastructure", "worker", type_, message)


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
        score=None
        if score is None
        else evolve(score, feedback=redact.text(score.feedback), metrics=redact.json(score.metrics)),
        error=None
        if error is None
        else evolve(error, type=redact.text(error.type), message=redact.text(error.message)),
        traceback=redact.text(result.traceback),
        log=redact.text(result.log),
        deaths=tuple(map(redact.text, result.deaths)),
        checkpoint=redact.json(result.checkpoint),
    )

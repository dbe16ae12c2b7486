"""Sends rollouts and evaluations to the executor: two lanes, and the one layer that tries again."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
from attrs import evolve

from adescent.budget import Account, Purpose
from adescent.errors import AdescentError
from adescent.executors.results import failure_from
from adescent.policies import Executor
from adescent.runtime.health import Health
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

__all__ = ["Dispatch", "Lanes", "ProposeFailed"]

RETRIES = 4
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 30.0
RETRY_DEADLINE = 120.0
"""A failure that may pass is tried again `RETRIES` times, after 0.1, 0.2, 0.4 … seconds (or as long as the other side
asked for), with up to half as much again by chance so that many do not come back at once, within the deadline."""


class ProposeFailed(AdescentError):
    """The proposer raised, and trying again did not help."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class Lanes:
    """Shares an executor's slots: evaluations overtake waiting rollouts, and some slots are theirs alone.

    A slot is handed from who leaves to who waits; one handed to a waiter that is being cancelled is passed on.
    """

    def __init__(self, slots: int, rollouts: int, eval_concurrency: int) -> None:
        reserved = min(slots // 4, eval_concurrency)
        self._free = slots
        self._rollouts_free = max(1, min(rollouts, slots - reserved))
        self._waiting_rollouts: deque[anyio.Event] = deque()
        self._waiting_evaluations: deque[anyio.Event] = deque()

    async def enter(self, evaluation: bool) -> None:
        """Wait for a slot of the lane."""
        if self._admit(evaluation):
            return
        queue = self._waiting_evaluations if evaluation else self._waiting_rollouts
        turn = anyio.Event()
        queue.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.leave(evaluation)
            else:
                queue.remove(turn)
            raise

    def leave(self, evaluation: bool) -> None:
        """Give a slot back, to an evaluation that waits before any rollout."""
        self._free += 1
        if not evaluation:
            self._rollouts_free += 1
        if self._waiting_evaluations:
            self._admit(evaluation=True)
            self._waiting_evaluations.popleft().set()
        elif self._waiting_rollouts and self._admit(evaluation=False):
            self._waiting_rollouts.popleft().set()

    def _admit(self, evaluation: bool) -> bool:
        if self._free == 0 or (not evaluation and self._rollouts_free == 0):
            return False
        self._free -= 1
        if not evaluation:
            self._rollouts_free -= 1
        return True


class Dispatch:
    """The run's way to its executor.

    ``lanes`` is None where slots are never short. ``timeout`` is the limit of one rollout in seconds, or None.
    ``calls_each`` is what one rollout may cost, ``sandbox`` how those are confined that do not say so themselves.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        account: Account,
        health: Health,
        lanes: Lanes | None,
        timeout: float | None,
        count: Callable[[str], None],
        seed: int,
        calls_each: int = 1,
        sandbox: SandboxSpec | None = None,
    ) -> None:
        self._executor = executor
        self._account = account
        self._health = health
        self._lanes = lanes
        self._timeout = timeout
        self._count = count
        self._calls_each = calls_each
        self._sandbox = sandbox
        self._jitter = random.Random(f"{seed}:jitter")

    async def rollout(self, spec: RolloutSpec) -> Result:
        """A worker's rollout, whose first try its lease has paid for."""
        return await self._until_settled(spec, "rollout", evaluation=False)

    async def evaluate(self, spec: RolloutSpec, purpose: Purpose) -> Result:
        """An evaluation, whose first try its measurement has paid for."""
        return await self._until_settled(spec, purpose, evaluation=True)

    async def propose(self, ask: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Call the proposer, whose first call its lease has paid for. Raises ProposeFailed when it does not answer."""
        started = anyio.current_time()
        for attempt in range(RETRIES + 1):
            try:
                return await self._answer(ask, arguments)
            except ProposeFailed:
                raise
            except Exception as error:
                failure = failure_from(error, "model", "propose")
                if not await self._may_retry(failure, attempt, started, "proposal", 1):
                    raise ProposeFailed(failure) from error
        raise AssertionError("the last attempt returns or raises")

    async def _answer(self, ask: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> Any:
        if self._timeout is None:
            return await ask(*arguments)
        with anyio.move_on_after(self._timeout):
            return await ask(*arguments)
        raise ProposeFailed(self._timed_out("propose"))

    async def _until_settled(self, spec: RolloutSpec, purpose: Purpose, evaluation: bool) -> Result:
        number = self._health.begin()
        if self._sandbox is not None and spec.sandbox is None:
            spec = evolve(spec, sandbox=self._sandbox)
        try:
            result = await self._once(spec, purpose, evaluation)
            if result.error is not None and result.error.transient:
                result = await self._tried_again(spec, result, purpose, evaluation)
        except BaseException:
            self._health.withdrawn(number)
            raise
        self._health.observe(number, result)
        return result

    async def _tried_again(self, spec: RolloutSpec, result: Result, purpose: Purpose, evaluation: bool) -> Result:
        started = anyio.current_time() - result.seconds
        for attempt in range(RETRIES + 1):
            if result.error is None or not result.error.transient:
                break
            if not await self._may_retry(result.error, attempt, started, purpose, self._calls_each):
                break
            spec = _next_attempt(spec, result)
            result = await self._once(spec, purpose, evaluation)
        return result

    async def _once(self, spec: RolloutSpec, purpose: Purpose, evaluation: bool) -> Result:
        result = await self._in_lane(spec, evaluation)
        if result.level not in ("", "none"):
            self._count(f"rollouts_at_{result.level}")
        for _ in range(result.attempt - spec.attempt):  # sent again by the executor itself, when a worker was lost
            if not self._account.try_call(purpose, self._calls_each):
                break
        return result

    async def _in_lane(self, spec: RolloutSpec, evaluation: bool) -> Result:
        if self._lanes is None:
            return await self._limited(spec)
        await self._lanes.enter(evaluation)
        try:
            return await self._limited(spec)
        finally:
            self._lanes.leave(evaluation)

    async def _limited(self, spec: RolloutSpec) -> Result:
        if self._timeout is None:
            return await self._executor.rollout(spec)
        with anyio.move_on_after(self._timeout):
            return await self._executor.rollout(spec)
        failure = self._timed_out("run")
        return Result(spec.lease_id, spec.task.id, error=failure, seconds=self._timeout, attempt=spec.attempt)

    def _timed_out(self, stage: Literal["run", "propose"]) -> Failure:
        """Not the model's doing for certain, so no 0 at the gate; and not tried again, since it had its time.

        Nor would anyone go on from what it kept: its checkpoints are dropped with it.
        """
        self._count("rollouts_timed_out")
        message = f"not done within rollout_timeout={self._timeout} s"
        return Failure("infrastructure", stage, "RolloutTimeout", message)

    async def _may_retry(self, failure: Failure, attempt: int, started: float, purpose: Purpose, calls: int) -> bool:
        """Whether to try again, having waited and paid for it."""
        if not failure.transient or attempt >= RETRIES:
            return False
        wait = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2**attempt) * (1.0 + self._jitter.random() / 2)
        if failure.retry_after is not None:
            wait = max(wait, failure.retry_after)
        if anyio.current_time() + wait - started > RETRY_DEADLINE or not self._account.try_call(purpose, calls):
            return False
        self._count("retries")
        await anyio.sleep(wait)
        return True


def _next_attempt(spec: RolloutSpec, ended: Result) -> RolloutSpec:
    """The same lease once more, from the last state that was kept."""
    kept = spec.resume_state if ended.checkpoint is None else ended.checkpoint
    # An executor may have tried more than once by itself: no attempt has the number of another.
    return evolve(spec, attempt=max(spec.attempt, ended.attempt) + 1, resume_state=kept)

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from adescent.budget import Account, Budget, Purpose
from adescent.policies import EvaluationServices
from adescent.tasks import Score
from adescent.verifier import MemoryCache
from adescent.workspec import Failure, Result, RolloutSpec

Answer = Score | Failure | Exception | Result


class ScriptedRollouts:
    """Rollouts that answer as a test says (1.0 unless said otherwise) and remember what they were asked for."""

    def __init__(self) -> None:
        self.answer: Callable[[RolloutSpec], Answer] = lambda spec: Score(1.0)
        self.held: dict[str, anyio.Event] = {}
        self.pauses: Callable[[], int] = lambda: 1
        self.started: list[str] = []
        self.specs: list[RolloutSpec] = []
        self.cancelled: list[str] = []
        self.under_way = 0
        self.most_under_way = 0
        self.counted: Counter[str] = Counter()
        self.account = Account(Budget())
        self.cache = MemoryCache()

    def services(self, *, concurrency: int = 4, calls: int | None = None, identity: str = "here") -> EvaluationServices:
        self.account = Account(Budget(calls=calls))
        self.counted.clear()
        return EvaluationServices(
            rollout=self.rollout,
            render=lambda state: "\n".join(state.values()),
            account=self.account,
            identity=identity,
            concurrency=concurrency,
            cache=self.cache,
            count=self._count,
        )

    def _count(self, name: str) -> None:
        self.counted[name] += 1

    def hold(self, *task_ids: str) -> None:
        self.held.update((task_id, anyio.Event()) for task_id in task_ids)

    def let_go(self, *task_ids: str) -> None:
        for task_id in task_ids:
            self.held.pop(task_id).set()

    async def rollout(self, spec: RolloutSpec, purpose: Purpose) -> Result:
        self.started.append(spec.task.id)
        self.specs.append(spec)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if spec.task.id in self.held:
                await self.held[spec.task.id].wait()
            for _ in range(self.pauses()):
                await anyio.lowlevel.checkpoint()
            return self._result(spec)
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                self.cancelled.append(spec.task.id)
            raise
        finally:
            self.under_way -= 1

    def _result(self, spec: RolloutSpec) -> Result:
        answer = self.answer(spec)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Failure):
            return Result(spec.lease_id, spec.task.id, error=answer)
        return answer if isinstance(answer, Result) else Result(spec.lease_id, spec.task.id, score=answer)

    @property
    def reserved(self) -> float:
        """Calls that are held for something; the account must be limited."""
        limit, left = self.account.budget.calls, self.account.left("gate")
        return math.nan if limit is None or left is None else limit - left - self.account.calls


@pytest.fixture
def rollouts() -> Any:
    return ScriptedRollouts()


@pytest.fixture(scope="module")
def new_rollouts() -> Any:
    """For tests that need several, or one for each example."""
    return ScriptedRollouts

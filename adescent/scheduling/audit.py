"""The audit scheduler: spends the oracle's budget where a wrong commit would cost most."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count as count_up

from anyio import TASK_STATUS_IGNORED, CancelScope, Event
from anyio.abc import TaskStatus
from attrs import define, field

from adescent.errors import BudgetExhausted
from adescent.evolvable import Evolvable
from adescent.governance import LEAST_TRUST, audit_gain, oracle_forced
from adescent.policies.comparison import compared
from adescent.policies.measuring import Verifier
from adescent.policies.records import AuditRequest, AuditVerdict, Measurement, Pool
from adescent.telemetry import AuditFinished, Emit
from adescent.telemetry import Event as RunEvent

__all__ = ["AuditScheduler", "judged", "trust_after"]

INITIAL_TRUST = 1.0
TRUST_STEP = 0.25
MOST_TRUST = 4.0


def trust_after(trust: float, cheap_gain: float, full_gain: float) -> float:
    """Trust in an artifact's cheap verdicts, in [0.25, 4], after one of them met the full one.

    Up by 0.25 when they agree in sign, halved when not, unchanged when the full verdict is a tie: a tie is no label.
    """
    if full_gain == 0.0:
        return trust
    if cheap_gain != 0.0 and (cheap_gain > 0.0) == (full_gain > 0.0):
        return min(MOST_TRUST, trust + TRUST_STEP)
    return max(LEAST_TRUST, trust / 2.0)


def judged(base: Measurement, candidate: Measurement) -> AuditVerdict:
    """The oracle's word on two measurements, compared on the tasks both have scores on: better passes, no less does."""
    sides = compared(Pool() + candidate, Pool() + base, len(candidate.readings))
    if isinstance(sides, str):
        return AuditVerdict("unavailable", f"by the oracle, {sides}")
    rates = f"oracle: {sides.mine / sides.n:.4f} against {sides.theirs / sides.m:.4f}"
    return AuditVerdict("passed" if sides.gain > 0 else "rejected", rates)


@define(order=False, eq=False)
class _Queued:
    """A request and the slot its answer goes into; the scope ends an audit whose asker is gone."""

    rank: tuple[float, int]
    request: AuditRequest
    answered: Event = field(factory=Event, init=False)
    scope: CancelScope = field(factory=CancelScope, init=False)
    verdict: AuditVerdict | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)
    abandoned: bool = field(default=False, init=False)

    def __lt__(self, other: _Queued) -> bool:
        return self.rank < other.rank

    def answer(self, verdict: AuditVerdict) -> None:
        self.verdict = verdict
        self.answered.set()


class AuditScheduler:
    """The `Auditor` of a run: one oracle call at a time, the one worth most first, as long as the budget lasts.

    Start `run` in a task group. ``oracle_budget`` is the number of task scorings that may be bought (≥ 0). Requests of
    equal worth go by arrival. Where the verifier has no oracle of its own the gate's word is the oracle's: every audit
    passes at once and costs nothing. A second look at less than the gate has seen would veto by luck.
    """

    def __init__(
        self,
        verifier: Verifier,
        *,
        oracle_budget: int,
        count: Callable[[str], None],
        emit: Emit,
    ) -> None:
        self._verifier = verifier
        self._left = oracle_budget
        self._has_oracle = bool(getattr(verifier, "has_oracle", True))
        self._count = count
        self._emit = emit
        self._trust: dict[str, float] = {}
        self._queue: list[_Queued] = []
        self._arrivals = count_up()
        self._arrived = Event()
        self._closed = False

    def trust(self, artifact_id: str) -> float:
        """Trust in the cheap verdicts on an artifact, in [0.25, 4]."""
        return self._trust.get(artifact_id, INITIAL_TRUST)

    def required(self, artifact: Evolvable) -> bool:
        """Whether the oracle must be heard before a change to this artifact is committed."""
        return oracle_forced(artifact.blast_radius, self.trust(artifact.id))

    def buys_cheap_verdicts(self, artifact: Evolvable) -> bool:
        """Whether trust matters: only an oracle that may disagree with the gate can be called in by a lack of it."""
        return self._has_oracle

    def observe(self, artifact_id: str, cheap_gain: float, full_gain: float) -> None:
        """A cheap and a full verdict on one candidate, as gains in rate over its base."""
        self._trust[artifact_id] = trust_after(self.trust(artifact_id), cheap_gain, full_gain)

    async def audit(self, request: AuditRequest) -> AuditVerdict:
        """Queue for the oracle and wait for its word.

        ``unavailable`` when the budget does not cover candidate and base together, when too little could be scored,
        or when the run ends first. Raises what the verifier raises. Cancelled, the request leaves the queue, and an
        oracle call made for it ends.
        """
        if not self._has_oracle:
            return self._announced(request, _BY_THE_GATE)
        if self._closed:
            return _ENDING
        gain = audit_gain(request.candidate.blast_radius, request.uncertainty, self.trust(request.candidate.id))
        queued = _Queued((-gain, next(self._arrivals)), request)
        heappush(self._queue, queued)
        self._arrived.set()
        try:
            await queued.answered.wait()
        finally:
            if not queued.answered.is_set():
                queued.abandoned = True
                queued.scope.cancel()
        if queued.error is not None:
            raise queued.error
        assert queued.verdict is not None
        return queued.verdict

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Serve requests until cancelled; then answer whoever still waits."""
        task_status.started()
        serving: _Queued | None = None
        try:
            while True:
                serving = await self._next()
                await self._serve(serving)
        finally:
            self._closed = True
            for queued in (*self._queue, *([serving] if serving else ())):
                if not queued.answered.is_set():
                    queued.answer(_ENDING)
            self._queue.clear()

    async def _next(self) -> _Queued:
        while True:
            while self._queue:
                queued = heappop(self._queue)
                if not queued.abandoned:
                    return queued
            self._arrived = Event()
            await self._arrived.wait()

    async def _serve(self, queued: _Queued) -> None:
        with queued.scope:
            try:
                verdict = await self._ask_oracle(queued.request)
            except Exception as error:  # raised where the verdict is waited for
                if queued.abandoned:
                    raise
                queued.error = error
                queued.answered.set()
                return
            queued.answer(self._announced(queued.request, verdict))

    def _announced(self, request: AuditRequest, verdict: AuditVerdict) -> AuditVerdict:
        self._count(f"audits_{verdict.decision}")
        self._emit(partial(_finished, request, verdict))
        return verdict

    async def _ask_oracle(self, request: AuditRequest) -> AuditVerdict:
        sides = (request.base, request.candidate)
        costs = [self._verifier.oracle_cost(side) for side in sides]
        held = sum(costs)
        if held > self._left:
            return AuditVerdict("unavailable", f"{held} oracle scorings needed, {self._left} left")
        self._left -= held
        measured: list[Measurement] = []
        try:
            for side, cost in zip(sides, costs, strict=True):
                measured.append(await self._verifier.oracle(side))
                held -= cost
        except BudgetExhausted as exhausted:
            self._left += held
            return AuditVerdict("unavailable", str(exhausted))
        return judged(*measured)


_ENDING = AuditVerdict("unavailable", "the run ends")
_BY_THE_GATE = AuditVerdict("passed", "there is no oracle but the reward, and the gate has gone by that")


def _finished(request: AuditRequest, verdict: AuditVerdict, elapsed: float) -> RunEvent:
    return AuditFinished(
        elapsed=elapsed, artifact_id=request.candidate.id, decision=verdict.decision, reason=verdict.reason
    )

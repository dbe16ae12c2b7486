from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import BudgetExhausted
from adescent.evolvable import Evolvable
from adescent.policies import AuditRequest, AuditVerdict, Estimate, Measurement, Reading
from adescent.scheduling.audit import AuditScheduler, judged, trust_after
from adescent.telemetry import AuditFinished, Event

BASE = Evolvable("artifact", {"text": "base"})


def scores(*values: float | None) -> Measurement:
    return Measurement(
        tuple(
            Reading(str(index), missing="scorer") if value is None else Reading(str(index), value, 1)
            for index, value in enumerate(values)
        )
    )


@define
class ScriptedOracle:
    """A verifier whose oracle knows a rate for each text, costs 2 a new text, and waits when told to."""

    rates: dict[str, float] = field(factory=dict)
    errors: dict[str, Exception] = field(factory=dict)
    held: anyio.Event | None = None
    when_cancelled: Exception | None = None
    has_oracle: bool = True
    heard: list[str] = field(factory=list)
    cut_off: list[str] = field(factory=list)

    async def rule(self, artifact: Evolvable) -> Measurement:
        raise NotImplementedError

    async def learned(self, artifact: Evolvable) -> Estimate:
        raise NotImplementedError

    async def oracle(self, artifact: Evolvable) -> Measurement:
        text = artifact.state["text"]
        await checkpoint()
        if text in self.errors:
            raise self.errors[text]
        self.heard.append(text)
        try:
            if self.held is not None:
                await self.held.wait()
        except anyio.get_cancelled_exc_class():
            self.cut_off.append(text)
            if self.when_cancelled is not None:
                raise self.when_cancelled from None
            raise
        return scores(*[self.rates.get(text, 0.5)] * 2)

    def oracle_cost(self, artifact: Evolvable) -> int:
        return 0 if artifact.state["text"] in self.heard else 2


@define
class Run:
    """An audit scheduler at work, and what it said."""

    scheduler: AuditScheduler
    oracle: ScriptedOracle
    tasks: anyio.abc.TaskGroup
    counted: Counter[str]
    events: list[Event]
    answers: list[tuple[str, AuditVerdict]] = field(factory=list)

    def ask(self, text: str, *, blast_radius: float = 0.2, uncertainty: float = 0.1) -> anyio.CancelScope:
        scope = anyio.CancelScope()

        async def wait() -> None:
            with scope, anyio.fail_after(5):
                self.answers.append((text, await self.audit(text, blast_radius, uncertainty)))

        self.tasks.start_soon(wait)
        return scope

    async def audit(self, text: str, blast_radius: float = 0.2, uncertainty: float = 0.1) -> AuditVerdict:
        candidate = Evolvable("artifact", {"text": text}, blast_radius=blast_radius)
        with anyio.fail_after(5):
            return await self.scheduler.audit(AuditRequest(BASE, candidate, uncertainty))


@asynccontextmanager
async def running(budget: int = 100, *, has_oracle: bool = True, started: bool = True) -> AsyncIterator[Run]:
    counted: Counter[str] = Counter()
    events: list[Event] = []
    oracle = ScriptedOracle(has_oracle=has_oracle)

    def count(name: str) -> None:
        counted[name] += 1

    def emit(make: Callable[[float], Event]) -> None:
        events.append(make(1.5))

    scheduler = AuditScheduler(oracle, oracle_budget=budget, count=count, emit=emit)
    async with anyio.create_task_group() as server, anyio.create_task_group() as tasks:
        if started:
            await server.start(scheduler.run)
        yield Run(scheduler, oracle, tasks, counted, events)
        await turns()
        server.cancel_scope.cancel()


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await checkpoint()


async def left_over(run: Run) -> int:
    """How much of its budget the oracle has left, found by buying candidates for as long as it lasts."""
    run.oracle.heard.append("base")
    before = len(run.oracle.heard)
    while (await run.audit(f"more {len(run.oracle.heard)}")).decision != "unavailable":
        pass
    return 2 * len([text for text in run.oracle.heard[before:] if text != "base"])


def artifact(blast_radius: float) -> Evolvable:
    return Evolvable("artifact", blast_radius=blast_radius)


# Judging --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "candidate", "decision"),
    [
        ((0.5, 0.5), (0.5, 0.6), "passed"),
        ((0.5, 0.5), (0.5, 0.5), "rejected"),
        ((0.5, 0.5), (0.5, 0.4), "rejected"),
        ((0.1, 0.2, 0.3), (0.3, 0.2, 0.1), "rejected"),
        ((None,) * 2, (0.9, 0.9), "unavailable"),
        ((0.5, None), (0.9, 0.9), "unavailable"),
        ((0.5,) * 9 + (1.0,), (0.6,) * 9 + (None,), "passed"),
        ((0.5,) * 8 + (1.0,) * 2, (0.6,) * 8 + (None,) * 2, "unavailable"),
        ((), (), "unavailable"),
    ],
)
def test_a_candidate_passes_when_it_is_better_where_both_were_scored(base: Any, candidate: Any, decision: str) -> None:
    assert judged(scores(*base), scores(*candidate)).decision == decision


GAINS = st.floats(-1, 1)
TRUST = st.floats(0.25, 4.0)


@given(TRUST, GAINS, GAINS)
def test_trust_stays_in_its_range_and_moves_with_agreement(trust: float, cheap: float, full: float) -> None:
    after = trust_after(trust, cheap, full)
    assert 0.25 <= after <= 4.0
    if full == 0.0:
        assert after == trust
    elif (cheap > 0) == (full > 0) and cheap != 0.0:
        assert after == min(4.0, trust + 0.25)
    else:
        assert after == max(0.25, trust / 2)


def test_tiny_gains_have_a_sign_too() -> None:
    assert trust_after(1.0, 1e-200, 1e-200) == 1.25
    assert trust_after(1.0, -1e-200, 1e-200) == 0.5


@pytest.mark.anyio
async def test_trust_is_kept_for_each_artifact() -> None:
    async with running() as run:
        run.scheduler.observe("a", -0.1, 0.1)
        run.scheduler.observe("b", 0.1, 0.1)
        assert [run.scheduler.trust(name) for name in "abc"] == [0.5, 1.25, 1.0]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("blast_radius", "disagreements", "agreements", "required"),
    [(0.2, 0, 0, False), (0.30, 0, 0, False), (0.31, 0, 0, True), (0.2, 1, 0, True), (0.2, 1, 1, False)],
)
async def test_the_oracle_is_required_where_much_is_at_stake_or_trust_is_gone(
    blast_radius: float, disagreements: int, agreements: int, required: bool
) -> None:
    async with running() as run:
        for _ in range(disagreements):
            run.scheduler.observe("artifact", 0.1, -0.1)
        for _ in range(agreements):
            run.scheduler.observe("artifact", 0.1, 0.1)
        assert run.scheduler.required(artifact(blast_radius)) is required


@pytest.mark.anyio
@pytest.mark.parametrize("blast_radius", [0.2, 0.31])
@pytest.mark.parametrize("has_oracle", [True, False])
async def test_cheap_verdicts_are_bought_where_trust_matters(has_oracle: bool, blast_radius: float) -> None:
    async with running(has_oracle=has_oracle) as run:
        assert run.scheduler.buys_cheap_verdicts(artifact(blast_radius)) is has_oracle


@pytest.mark.anyio
async def test_without_an_oracle_of_its_own_the_gate_s_word_stands() -> None:
    """A look at what the gate has decided by, or at less of it, could only veto by luck."""
    async with running(budget=0, has_oracle=False, started=False) as run:
        run.oracle.rates["accepted"] = 0.1
        verdict = await run.audit("accepted", blast_radius=0.9)
        assert verdict.decision == "passed"
        assert run.oracle.heard == []
        assert run.counted == {"audits_passed": 1}
        assert run.events == [
            AuditFinished(elapsed=1.5, artifact_id="artifact", decision="passed", reason=verdict.reason)
        ]


# Asking ---------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_oracle_passes_and_vetoes() -> None:
    async with running() as run:
        run.oracle.rates.update(better=0.9, worse=0.1)
        assert (await run.audit("better")).decision == "passed"
        assert (await run.audit("worse")).decision == "rejected"
        tie = await run.audit("no better")
        assert (tie.decision, tie.reason) == ("rejected", "oracle: 0.5000 against 0.5000")
        assert run.counted == {"audits_passed": 1, "audits_rejected": 2}
        assert run.events[0] == AuditFinished(
            elapsed=1.5, artifact_id="artifact", decision="passed", reason="oracle: 0.9000 against 0.5000"
        )


@pytest.mark.anyio
async def test_requests_are_served_by_what_they_are_worth() -> None:
    """The first is under way before the others come; from then on the largest Ĝ goes first, equals by arrival."""
    async with running() as run:
        run.oracle.heard.append("base")
        run.oracle.held = anyio.Event()
        run.ask("first")
        await turns()
        for text, radius, uncertainty in [
            ("small", 0.1, 0.1),
            ("equal 1", 0.2, 0.2),
            ("large", 0.9, 0.3),
            ("equal 2", 0.2, 0.2),
            ("unsure", 0.1, 0.5),
        ]:
            run.ask(text, blast_radius=radius, uncertainty=uncertainty)
            await turns(3)
        run.oracle.held.set()
        await turns(40)
    served = [text for text in run.oracle.heard if text != "base"]
    assert served == ["first", "large", "unsure", "equal 1", "equal 2", "small"]
    assert [text for text, _ in run.answers] == served


@pytest.mark.anyio
async def test_little_trust_makes_an_audit_worth_more() -> None:
    async with running(started=False) as run:
        for name, radius in (("trusted", 0.3), ("doubted", 0.2)):
            candidate = Evolvable(name, {"text": name}, blast_radius=radius)
            if name == "doubted":
                run.scheduler.observe(name, 0.1, -0.1)
            run.tasks.start_soon(run.scheduler.audit, AuditRequest(BASE, candidate, 0.1))
            await turns(3)
        async with anyio.create_task_group() as server:
            await server.start(run.scheduler.run)
            await turns(30)
            server.cancel_scope.cancel()
    assert [text for text in run.oracle.heard if text != "base"] == ["doubted", "trusted"]


@pytest.mark.anyio
async def test_the_budget_is_reserved_whole() -> None:
    async with running(budget=5) as run:
        run.oracle.rates["one"] = 0.9
        assert (await run.audit("one")).decision == "passed"  # 2 for the base, 2 for the candidate
        verdict = await run.audit("two")
        assert (verdict.decision, verdict.reason) == ("unavailable", "2 oracle scorings needed, 1 left")
        assert (await run.audit("one")).decision == "passed"  # what is known costs nothing
        assert run.oracle.heard.count("two") == 0
        assert (await run.audit("three")).reason == "2 oracle scorings needed, 1 left"
        assert run.counted["audits_unavailable"] == 2


@pytest.mark.anyio
async def test_the_base_is_paid_from_the_same_budget() -> None:
    async with running(budget=3) as run:
        assert (await run.audit("candidate")).reason == "4 oracle scorings needed, 3 left"
        assert run.oracle.heard == []


@pytest.mark.anyio
async def test_an_idle_scheduler_sleeps() -> None:
    async with running() as run:
        await run.audit("candidate")
        with anyio.fail_after(5):
            await anyio.wait_all_tasks_blocked()


@pytest.mark.anyio
@pytest.mark.parametrize(("which", "left"), [("base", 10), ("candidate", 8)])
async def test_a_run_out_of_calls_is_unavailable_and_gives_the_oracle_s_budget_back(which: str, left: int) -> None:
    async with running(budget=10) as run:
        run.oracle.errors[which] = BudgetExhausted("calls", 2, 1)
        assert (await run.audit("candidate")).decision == "unavailable"
        run.oracle.errors.clear()
        assert await left_over(run) == left


@pytest.mark.anyio
async def test_who_asks_gets_the_bare_error_and_the_next_is_served() -> None:
    async with running() as run:
        run.oracle.errors["broken"] = OSError("executor is gone")
        with pytest.raises(OSError, match="executor is gone"):
            await run.audit("broken")
        assert (await run.audit("fine")).decision == "rejected"


@pytest.mark.anyio
async def test_who_is_cancelled_in_the_queue_is_skipped() -> None:
    async with running() as run:
        run.oracle.held = anyio.Event()
        run.ask("first")
        await turns()
        gone = run.ask("gone", blast_radius=0.9)
        run.ask("last")
        await turns()
        gone.cancel()
        await turns()
        run.oracle.held.set()
        await turns(30)
    assert run.oracle.heard == ["base", "first", "base", "last"]
    assert [text for text, _ in run.answers] == ["first", "last"]


@pytest.mark.anyio
async def test_an_oracle_call_ends_with_who_asked_for_it() -> None:
    async with running() as run:
        run.oracle.held = anyio.Event()
        gone = run.ask("gone")
        await turns()
        gone.cancel()
        await turns()
        assert run.oracle.cut_off == ["base"]
        run.oracle.held = None
        assert (await run.audit("next")).decision == "rejected"
        assert run.counted == {"audits_rejected": 1}


@pytest.mark.anyio
async def test_an_error_nobody_waits_for_ends_the_scheduler() -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with running() as run:
            run.oracle.held = anyio.Event()
            run.oracle.when_cancelled = OSError("could not let go")
            gone = run.ask("gone")
            await turns()
            gone.cancel()
            await turns(30)
    assert raised.group_contains(OSError, match="could not let go")


@pytest.mark.anyio
async def test_the_end_of_the_run_answers_who_still_waits() -> None:
    async with running(started=False) as run:
        run.oracle.held = anyio.Event()
        async with anyio.create_task_group() as server:
            await server.start(run.scheduler.run)
            run.ask("served")
            await turns()
            run.ask("queued")
            await turns()
            server.cancel_scope.cancel()
        await turns()
        assert sorted(run.answers) == [
            (text, AuditVerdict("unavailable", "the run ends")) for text in ("queued", "served")
        ]
        assert (await run.audit("late")).decision == "unavailable"


@pytest.mark.anyio
@pytest.mark.parametrize("cancelled", range(3))
async def test_cancelled_at_any_checkpoint_the_others_are_served(cancelled: int) -> None:
    for steps in range(30):
        async with running() as run:
            scopes = [run.ask(str(number)) for number in range(3)]
            await turns(steps)
            scopes[cancelled].cancel()
            await turns(60)
        answered = {text for text, _ in run.answers}
        assert answered | {str(cancelled)} == {"0", "1", "2"}

"""Foreign commits, budgets that run out, cancellation, and the serial gate."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from attrs import evolve

from adescent.policies import AuditVerdict, Measurement, Outcome

pytestmark = pytest.mark.anyio


async def test_a_foreign_commit_is_merged_first(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    pending = [{"other": "+5"}]
    run.ledger.before_commit = lambda: pending and run.ledger.foreign("a", **pending.pop())
    assert await run.outcomes(run.card(seed, "6", x="+6")) == ["committed"]
    assert run.head.version == 3
    assert run.head.state == {"seed": "+0 +1 +2 +3 +4", "other": "+5", "x": "+6"}
    assert run.merger.held_out("a") == 0.7
    assert run.counted["cas_losses"] == 1


async def test_what_a_foreign_commit_already_did_is_a_no_op(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    pending = [{"x": "+6"}]
    run.ledger.before_commit = lambda: pending and run.ledger.foreign("a", **pending.pop())
    assert await run.outcomes(run.card(seed, "6", x="+6")) == ["no-op"]


async def test_after_three_lost_races_the_card_ends_and_the_others_wait(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    base = run.ledger.foreign("a", text="old")
    run.ledger.foreign("a", text="newer")
    run.ledger.before_commit = lambda: run.ledger.foreign("a", **{f"other{run.head.version}": "…"})
    rival = run.card(base, "6", text="+6")
    merged = await run.merge(run.card(seed, "5", x="+5"), rival)
    assert [settled.outcome for settled in merged.report.settled] == [Outcome.CAS_CONFLICT]
    assert [entry.card for entry in merged.leftover] == [rival]
    assert run.counted["cas_losses"] == 3
    assert merged.head == run.head


async def test_a_merge_that_keeps_nothing_tells_of_the_head_it_saw(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    newer = run.ledger.foreign("a", other="+9")
    assert (await run.merge(run.card(seed, x="-0"))).head == newer
    newest = run.ledger.foreign("a", other="+8")
    assert (await run.merge()).head == newest


async def test_a_foreign_head_is_measured_before_anything_is_held_against_it(anyio_backend: Any, run: Any) -> None:
    await run.start()
    base = run.ledger.foreign("a", other="+5 +6")
    assert await run.outcomes(run.card(base, x="-0")) == ["below-threshold"]
    assert run.merger.held_out("a") == 0.7


async def test_an_artifact_that_was_never_opened_is_measured_first(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(opened=False)
    assert run.merger.held_out("a") is None
    assert await run.outcomes(run.card(seed, x="+5")) == ["committed"]
    assert run.merger.held_out("a") == 0.6


async def test_a_head_that_cannot_be_measured_costs_no_candidate(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(opened=False)
    run.evaluator.score = lambda artifact, task, repeat: None
    assert await run.outcomes(run.card(seed, x="+5")) == ["unmeasured"]
    assert run.evaluator.purposes() == {"gate": 1}


@pytest.mark.parametrize("left", range(0, 60, 3))
async def test_a_budget_may_end_anywhere(anyio_backend: Any, run: Any, left: int) -> None:
    seed = await run.start(noisy=True)
    run.ledger.foreign("a", other="…")
    base = run.ledger.foreign("a", other="+9")
    run.evaluator.left = left
    cards = [
        run.card(seed, "5", x="+5"),
        run.card(seed, "6", other="-6"),
        run.card(base, "6", x="+6 -0 -1"),
        run.card(base, "7", y="-0"),
    ]
    merged = await run.merge(*cards)
    assert merged.report.considered + len(merged.leftover) == 4
    assert run.evaluator.left >= 0
    spent_out = merged.report.count(Outcome.UNMEASURED)
    assert spent_out or run.evaluator.left < left
    run.evaluator.left = None
    assert await run.outcomes(run.card(run.head, "8", z="+8 +7 +6 +5 +4 +3")) in (["committed"], ["below-threshold"])


@pytest.mark.parametrize("stop_at", range(10))
async def test_cancelled_anywhere_nothing_is_half_done(anyio_backend: Any, run: Any, stop_at: int) -> None:
    """Cancelled at its n-th measurement or commit, a merge has committed all or nothing, and another one can follow."""
    seed = await run.start(noisy=True)
    base = run.ledger.foreign("a", other="+9")
    steps = iter(range(100))
    with anyio.CancelScope() as scope:

        def step(purpose: str = "") -> None:
            if next(steps) == stop_at:
                scope.cancel()

        run.evaluator.before = run.ledger.before_commit = step
        await run.merge(run.card(seed, "5", x="+5 +6 +7 +8"), run.card(base, "6", x="-0"), run.card(base, y="…"))
    run.evaluator.before = lambda purpose: None
    run.ledger.before_commit = lambda: None
    assert run.head.version == (2 if scope.cancelled_caught else 3)
    assert ("x" in run.head.state) == (run.head.version == 3)
    merged = await run.merge(run.card(run.head, "0", z="-0"))
    assert merged.report.count(Outcome.BELOW_THRESHOLD) == 1
    assert run.merger.held_out("a") == (0.6 if run.head.version == 2 else 1.0)


@pytest.mark.parametrize("failing", ["gate", "rebase", "rule"])
async def test_an_error_of_the_evaluator_comes_out_bare(anyio_backend: Any, run: Any, failing: str) -> None:
    seed = await run.start()
    run.ledger.foreign("a", other="…")

    def fail(purpose: str) -> None:
        if purpose == failing:
            raise RuntimeError(purpose)

    run.evaluator.before = fail
    with pytest.raises(RuntimeError, match=failing):
        await run.merge(run.card(seed, "5", x="+5"), run.card(seed, "6", y="-0 -1"))


# Far-reaching artifacts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cheap", [True, False])
async def test_a_far_reaching_change_is_heard_by_the_oracle(anyio_backend: Any, run: Any, cheap: bool) -> None:
    run.auditor.cheap = cheap
    seed = await run.start(blast_radius=0.9)
    assert await run.outcomes(run.card(seed, x="+5")) == ["committed"]
    [request] = run.auditor.requests
    assert request.base.state == seed.state
    assert request.candidate.state["x"] == "+5"
    assert request.uncertainty == (0.1 if cheap else 0.0)
    assert ("rule" in run.evaluator.purposes()) is cheap


@pytest.mark.parametrize(("blast_radius", "outcome"), [(0.2, "committed"), (0.9, "audit-unavailable")])
async def test_bookkeeping_nobody_can_pay_costs_no_candidate_its_measurement(
    anyio_backend: Any, run: Any, blast_radius: float, outcome: str
) -> None:
    """The calls left suffice for the gate and not for cheap verdicts: trust goes unweighed, and no audit is held."""
    run.auditor.cheap = True
    seed = await run.start(blast_radius)
    run.evaluator.left = len(run.held_out)
    assert await run.outcomes(run.card(seed, x="+5")) == [outcome]
    assert run.evaluator.left == 0
    assert run.auditor.observed == []


@pytest.mark.parametrize(("trust", "asked"), [(1.0, 0), (0.5, 1)])
async def test_the_oracle_is_heard_where_cheap_verdicts_were_wrong(
    anyio_backend: Any, run: Any, trust: float, asked: int
) -> None:
    run.auditor.trust = trust
    seed = await run.start()
    assert await run.outcomes(run.card(seed, x="+5")) == ["committed"]
    assert len(run.auditor.requests) == asked


async def test_the_oracle_is_not_asked_about_what_would_be_refused(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(blast_radius=0.9)
    assert await run.outcomes(run.card(seed, x="-0")) == ["below-threshold"]
    assert run.auditor.requests == []


async def test_the_veto_on_a_union_is_that_of_all_its_cards(anyio_backend: Any, run: Any) -> None:
    run.auditor.verdict = AuditVerdict("rejected", "not better")
    seed = await run.start(blast_radius=0.9)
    assert await run.outcomes(run.card(seed, x="+5"), run.card(seed, y="+6")) == ["oracle-rejected"] * 2
    assert len(run.auditor.requests) == 1


@pytest.mark.parametrize(("blast_radius", "overlap"), [(0.9, False), (0.2, True)])
async def test_merges_of_far_reaching_artifacts_do_not_overlap(
    anyio_backend: Any, run: Any, blast_radius: float, overlap: bool
) -> None:
    seed = await run.start(blast_radius, opened=False)
    run.merger.open(seed, Measurement(()), noisy=True)
    other = run.ledger.register(evolve(seed, id="b"))

    async def merge(base: Any) -> None:
        run.buffer.ingest(run.card(base, x="+5 +6 +7 +8 +9"), (0, 0))
        await run.merger.merge(base.id, run.buffer.drain(base.id))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(merge, seed)
            tasks.start_soon(merge, other)
    order = "".join(artifact.id for purpose, artifact, _ in run.evaluator.measured if purpose == "gate")
    assert sorted(order) == list("aaaabbbb")
    assert (order not in ("aaaabbbb", "bbbbaaaa")) == overlap


@pytest.mark.parametrize(
    ("text", "observed"), [("+5", [(0.125, 0.1)]), ("-0", [(-0.125, -0.1)]), ("+8 -0", [(-0.125, 0.0)])]
)
async def test_trust_is_told_of_cheap_and_full_verdicts(
    anyio_backend: Any, run: Any, text: str, observed: list[tuple[float, float]]
) -> None:
    run.auditor.cheap = True
    seed = await run.start()
    await run.merge(run.card(seed, x=text))
    assert run.auditor.observed == [pytest.approx(pair) for pair in observed]


async def test_an_early_stop_says_nothing_about_trust(anyio_backend: Any, run: Any) -> None:
    run.auditor.cheap = True
    seed = await run.start()
    bought = len(run.evaluator.log)
    assert await run.outcomes(run.card(seed, x="-0 -1 -2 -3 -4")) == ["below-threshold"]
    assert len(run.evaluator.log) - bought == 6
    assert run.counted["candidates_stopped_early"] == 1
    assert run.auditor.observed == []

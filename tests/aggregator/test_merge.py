from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from adescent.aggregator import BetaAcceptance, GuardedStaleness, UnionFusion
from adescent.aggregator.fusion import MOST_RANKED
from adescent.errors import ContractError, GovernanceError
from adescent.evolvable import Evolvable
from adescent.policies import AuditVerdict, Outcome, Resolution

pytestmark = pytest.mark.anyio


class LetsThrough:
    """A conflict policy that keeps whatever comes."""

    def contested(self, cards: Any) -> Any:
        return ()

    def resolve(self, cards: Any, scores: Any) -> Resolution:
        return Resolution(tuple(cards))


async def test_a_good_diff_becomes_the_next_version(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    merged = await run.merge(run.card(seed, new="+5"))
    assert [settled.outcome for settled in merged.report.settled] == [Outcome.COMMITTED]
    assert merged.report.version == merged.head.version == run.head.version == 2
    assert run.head.state == {"seed": "+0 +1 +2 +3 +4", "new": "+5"}
    assert merged.report.held_out == run.merger.held_out("a") == 0.6
    assert run.ledger.decisions[0]["held-out"] == "0.5000 → 0.6000"


async def test_complementary_diffs_are_committed_as_one(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    merged = await run.merge(run.card(seed, x="+5"), run.card(seed, y="+6"), run.card(seed, z="+7"))
    assert merged.report.fused == 3
    assert merged.report.count(Outcome.COMMITTED) == 3
    assert run.head.version == 2
    assert run.evaluator.purposes() == {"seed": 1, "gate": 1}


async def test_edits_of_different_lines_are_committed_as_one(anyio_backend: Any, run: Any) -> None:
    await run.start()
    base = run.ledger.foreign("a", text="one\ntwo\nthree")
    merged = await run.merge(run.card(base, text="one +5\ntwo\nthree"), run.card(base, text="one\ntwo\nthree +6"))
    assert merged.report.fused == 2
    assert run.head.state["text"] == "one +5\ntwo\nthree +6"


async def test_one_bad_partner_does_not_sink_a_good_diff(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    good, bad, weak = run.card(seed, x="+5 +6"), run.card(seed, y="-0 -1 -2 -3"), run.card(seed, z="+7")
    assert await run.outcomes(good, bad, weak) == ["committed", "fusion-lost", "fusion-lost"]
    assert run.head.state == {"seed": "+0 +1 +2 +3 +4", "x": "+5 +6"}


async def test_two_single_diffs_are_tried_after_their_union(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    cards = [run.card(seed, **{key: f"-{number}"}) for number, key in enumerate("xyz")]
    assert await run.outcomes(*cards) == ["below-threshold", "below-threshold", "fusion-lost"]


async def test_a_diff_that_holds_another_stands_for_both(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    merged = await run.merge(run.card(seed, x="+5"), run.card(seed, x="+5", y="+6"))
    assert merged.report.count(Outcome.COMMITTED) == 2
    assert run.evaluator.purposes()["gate"] == 1


async def test_refused_together_the_largest_has_had_its_chance_and_the_other_gets_one(
    anyio_backend: Any, run: Any
) -> None:
    seed = await run.start()
    assert await run.outcomes(run.card(seed, x="+5"), run.card(seed, x="+5", y="-0 -1")) == [
        "committed",
        "below-threshold",
    ]
    assert run.head.state.keys() == {"seed", "x"}


@pytest.mark.parametrize(
    ("x", "y", "ranked", "kept"),
    [("+5", "+6", "won", {"x", "y"}), ("+5", "-0", "lost", {"x"}), ("+5", "nothing", "tied", {"x"})],
)
async def test_a_tournament_ranks_before_the_gate(
    anyio_backend: Any, run: Any, x: str, y: str, ranked: str, kept: set[str]
) -> None:
    seed = await run.start(fusion=UnionFusion(tournament=True))
    merged = await run.merge(run.card(seed, x=x), run.card(seed, y=y))
    assert merged.report.fusion == ((ranked, "fused") if ranked == "won" else (ranked,))
    assert run.head.state.keys() == kept | {"seed"}
    assert run.evaluator.purposes()["gate"] == 1


@pytest.mark.parametrize("tournament", [False, True])
@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([{"x": "+5"}], "one diff"),
        ([{"x": "+5"}, {"x": "+5", "y": "+6"}], "nothing new"),
    ],
)
async def test_a_merge_without_a_union_says_why(
    anyio_backend: Any, run: Any, tournament: bool, edits: list[dict[str, str]], why: str
) -> None:
    seed = await run.start(fusion=UnionFusion(tournament=tournament))
    assert (await run.merge(*[run.card(seed, **ops) for ops in edits])).report.fusion == (why,)


@pytest.mark.parametrize(("y", "became"), [("+6", "fused"), ("-0 -1", "refused")])
async def test_a_union_is_counted_by_what_became_of_it(anyio_backend: Any, run: Any, y: str, became: str) -> None:
    seed = await run.start()
    assert (await run.merge(run.card(seed, x="+5"), run.card(seed, y=y))).report.fusion == (became,)


async def test_a_union_nobody_can_pay_for_is_unmeasured(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    run.evaluator.left = 3
    assert (await run.merge(run.card(seed, x="+5"), run.card(seed, y="+6"))).report.fusion == ("unmeasured",)


async def test_a_contradiction_in_a_union_is_told(anyio_backend: Any, run: Any) -> None:
    """A conflict policy may let cards through that contradict each other; no union of them can be made."""
    seed = await run.start(conflict=LetsThrough())
    assert (await run.merge(run.card(seed, x="+5"), run.card(seed, x="+6"))).report.fusion == ("contradiction",)


async def test_a_lost_race_counts_its_union_once(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    pending = [{"other": "…"}]
    run.ledger.before_commit = lambda: pending and run.ledger.foreign("a", **pending.pop())
    assert (await run.merge(run.card(seed, "5", x="+5"), run.card(seed, "6", y="+6"))).report.fusion == ("fused",)
    assert run.counted["cas_losses"] == 1


async def test_what_is_left_of_a_refused_union_is_a_union_of_its_own(anyio_backend: Any, run: Any) -> None:
    base = await run.start()
    run.ledger.foreign("a", other="…")
    culprit = run.card(base, "0", z="-0 -1 -2 -3 -4")
    merged = await run.merge(run.card(base, "5", x="+5"), run.card(base, "6", y="+6"), culprit)
    assert [settled.outcome for settled in merged.report.settled] == ["committed", "committed", "rebase-failed"]
    assert merged.report.fusion == ("refused", "fused")


async def test_the_first_of_two_that_contradict_stays_unless_the_other_is_better(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    assert await run.outcomes(run.card(seed, x="+5"), run.card(seed, x="+6")) == ["committed", "conflict-dropped"]
    base = run.head
    assert await run.outcomes(run.card(base, y="+7"), run.card(base, y="+6 +7")) == ["conflict-dropped", "committed"]


async def test_a_crowd_of_contradictions_is_not_bought_a_score_each(anyio_backend: Any, run: Any) -> None:
    """Those whose own task gained most are compared; the others end, and are told why."""
    seed = await run.start()
    promising = run.card(seed, x="+5 +6 promising", delta=1.0)
    crowd = [run.card(seed, x=f"+5 {number}") for number in range(3 * MOST_RANKED)]
    aside = run.card(seed, y="+7")
    merged = await run.merge(*crowd, aside, promising)
    assert run.evaluator.purposes()["rule"] == MOST_RANKED
    ends = {settled.card.id: settled for settled in merged.report.settled}
    assert ends[promising.id].outcome == ends[aside.id].outcome == "committed"
    last = ends[crowd[-1].id]
    assert (last.outcome, last.reason) == (
        "conflict-dropped",
        f"{3 * MOST_RANKED + 1} contradict others; the {MOST_RANKED} whose own tasks gained most were compared.",
    )
    assert merged.report.count(Outcome.CONFLICT_DROPPED) == len(crowd)


# Every outcome one artifact can reach ---------------------------------------------------------------------------------


async def _below_threshold(run: Any) -> Any:
    return run.card(await run.start(), x="-0")


async def _tie(run: Any) -> Any:
    return run.card(await run.start(), x="nothing new")


async def _stale(run: Any) -> Any:
    seed = await run.start(staleness=GuardedStaleness())
    for number in range(2):
        run.ledger.foreign("a", **{f"other{number}": "…"})
    return run.card(seed, x="+5")


async def _oversized(run: Any) -> Any:
    return run.card(await run.start(), x="+5" + " " * 32_000)


async def _no_op(run: Any) -> Any:
    return run.card(await run.start(), seed="+0 +1 +2 +3 +4")


async def _rebase_failed(run: Any) -> Any:
    await run.start()
    base = run.ledger.foreign("a", text="+5")
    run.ledger.foreign("a", text="+6")
    return run.card(base, "6", text="+7")


async def _violates_invariant(run: Any) -> Any:
    return run.card(await run.start(), x="+5 forbidden")


async def _oracle_rejected(run: Any) -> Any:
    run.auditor.verdict = AuditVerdict("rejected", "not better")
    return run.card(await run.start(blast_radius=0.9), x="+5")


async def _audit_unavailable(run: Any) -> Any:
    run.auditor.verdict = AuditVerdict("unavailable", "over budget")
    return run.card(await run.start(blast_radius=0.9), x="+5")


async def _contract_refused(run: Any) -> Any:
    card = run.card(await run.start(), x="+5")
    return evolve(card, diff=evolve(card.diff, contract_breaking=True))


async def _refused_by_the_ledger(run: Any) -> Any:
    def refuse() -> None:
        raise ContractError("another major")

    run.ledger.before_commit = refuse
    return run.card(await run.start(), x="+5")


async def _cas_conflict(run: Any) -> Any:
    def overtake() -> None:
        run.ledger.foreign("a", **{f"other{run.head.version}": "…"})

    run.ledger.before_commit = overtake
    return run.card(await run.start(), x="+5")


async def _unmeasured(run: Any) -> Any:
    seed = await run.start()
    run.evaluator.score = lambda artifact, task, repeat: None  # void: NaN, text, None, out of range
    return run.card(seed, x="+5")


async def _out_of_budget(run: Any) -> Any:
    seed = await run.start()
    run.evaluator.left = 3
    return run.card(seed, x="+5")


@pytest.mark.parametrize(
    ("situation", "outcome"),
    [
        (_below_threshold, Outcome.BELOW_THRESHOLD),
        (_tie, Outcome.TIE),
        (_stale, Outcome.STALE),
        (_oversized, Outcome.OVERSIZED),
        (_no_op, Outcome.NO_OP),
        (_rebase_failed, Outcome.REBASE_FAILED),
        (_violates_invariant, Outcome.VIOLATES_INVARIANT),
        (_oracle_rejected, Outcome.ORACLE_REJECTED),
        (_audit_unavailable, Outcome.AUDIT_UNAVAILABLE),
        (_contract_refused, Outcome.CONTRACT_REFUSED),
        (_refused_by_the_ledger, Outcome.CONTRACT_REFUSED),
        (_cas_conflict, Outcome.CAS_CONFLICT),
        (_unmeasured, Outcome.UNMEASURED),
        (_out_of_budget, Outcome.UNMEASURED),
    ],
)
async def test_how_a_card_can_end_without_a_commit(
    anyio_backend: Any, run: Any, situation: Any, outcome: Outcome
) -> None:
    card = await situation(run)
    merged = await run.merge(card)
    [settled] = merged.report.settled
    assert settled.outcome is outcome
    assert settled.card is card
    assert settled.reason
    assert merged.report.version is None
    assert merged.leftover == ()
    assert "x" not in run.head.state


async def test_a_card_for_nothing_the_ledger_holds(anyio_backend: Any, run: Any) -> None:
    await run.start()
    merged = await run.merge(run.card(Evolvable("b"), x="+5"), artifact_id="b")
    assert [settled.outcome for settled in merged.report.settled] == [Outcome.UNKNOWN_ARTIFACT]
    assert merged.head is None


async def test_a_frozen_artifact_is_not_merged(anyio_backend: Any, run: Any) -> None:
    await run.start()
    with pytest.raises(GovernanceError):
        await run.merge(run.card(Evolvable("oracle"), x="+5"), artifact_id="oracle")


# What is remembered ---------------------------------------------------------------------------------------------------


async def test_the_same_losing_edit_is_measured_once_and_the_proposer_is_told(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    assert await run.outcomes(run.card(seed, "1", x="-0")) == ["below-threshold"]
    bought = len(run.evaluator.log)
    for learnt_from in ("2", "3", "4"):
        assert await run.outcomes(run.card(seed, learnt_from, x="-0")) == ["duplicate"]
    assert len(run.evaluator.log) == bought
    assert "below-threshold: 0.4000 against the head's 0.5000" in run.merger.history("a")[-1].reason


async def test_a_rejected_edit_is_measured_again_against_another_head(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    assert await run.outcomes(run.card(seed, x="-9")) == ["tie"]
    assert await run.outcomes(run.card(seed, y="+9")) == ["committed"]
    assert await run.outcomes(run.card(run.head, x="-9")) == ["below-threshold"]


async def test_the_same_edit_twice_in_one_merge_is_one_measurement(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    same = run.card(seed, "1", x="+5")
    assert await run.outcomes(same, same, run.card(seed, "2", x="+5")) == ["committed", "duplicate", "duplicate"]


async def test_history_holds_the_last_cards(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    for number in range(70):
        await run.merge(run.card(seed, x=f"nothing {number}"))
    history = run.merger.history("a")
    assert len(history) == 64
    assert history[-1].card.diff.ops == {"x": "nothing 69"}
    assert run.merger.history("never heard of") == ()


async def test_candidates_that_score_nothing_valid_are_never_best(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    known = run.evaluator.score
    run.evaluator.score = lambda artifact, task, repeat: (
        None if "garbage" in artifact.state else known(artifact, task, repeat)
    )
    cards = run.card(seed, x="+5"), run.card(seed, garbage="+5 +6 +7", x="+7")
    assert await run.outcomes(*cards) == ["committed", "conflict-dropped"]
    assert await run.outcomes(run.card(run.head, garbage="+5 +6 +7")) == ["unmeasured"]
    assert run.head.state["x"] == "+5"


async def test_a_few_missing_scores_do_not_decide(anyio_backend: Any, run: Any) -> None:
    known = run.evaluator.score
    run.evaluator.score = lambda artifact, task, repeat: None if task.id == "h9" else known(artifact, task, repeat)
    seed = await run.start()
    assert await run.outcomes(run.card(seed, x="+9")) == ["tie"]
    assert await run.outcomes(run.card(seed, x="+5")) == ["committed"]


async def test_a_noisy_candidate_is_screened_and_then_confirmed(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(noisy=True, acceptance=BetaAcceptance(confirm_repeats=2))
    assert await run.outcomes(run.card(seed, x="+5 +6 +7 +8 +9")) == ["committed"]
    gate = [("x" in artifact.state, repeats) for purpose, artifact, repeats in run.evaluator.measured]
    assert gate[:2] == [(False, range(1)), (True, range(1))]
    assert sorted(gate[2:], key=str) == [(False, range(1, 3)), (True, range(1, 3))]
    assert run.merger.held_out("a") == 1.0


async def test_every_measurement_has_as_many_repeats_as_the_run_wants(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(noisy=True, eval_repeats=2, acceptance=BetaAcceptance(confirm_repeats=2))
    assert await run.outcomes(run.card(seed, x="+5 +6 +7 +8 +9")) == ["committed"]
    repeats = [repeats for _, _, repeats in run.evaluator.measured]
    assert repeats == [range(2), range(2), range(2, 6), range(2, 6)]


async def test_a_lucky_first_look_is_found_out(anyio_backend: Any, run: Any) -> None:
    known = run.evaluator.score
    run.evaluator.score = lambda artifact, task, repeat: (
        1.0 if artifact.state.get("x") and repeat == 0 else known(artifact, task, repeat)
    )
    seed = await run.start(noisy=True)
    assert await run.outcomes(run.card(seed, x="lucky")) == ["tie"]

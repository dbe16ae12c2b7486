from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.aggregator import BetaAcceptance, ConfirmedPromotion
from adescent.errors import OptionError
from adescent.policies import AuditVerdict
from adescent.telemetry import ArtifactPromoted


def test_due_after_k_quiet_merges() -> None:
    assert [ConfirmedPromotion(k=3).due(quiet) for quiet in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize("k", [0, -1, True, 1.5])
def test_k_is_a_number_of_merges(k: Any) -> None:
    with pytest.raises(OptionError, match="k="):
        ConfirmedPromotion(k=k)


async def _committed(run: Any, **options: Any) -> Any:
    seed = await run.start(**options)
    assert await run.outcomes(run.card(seed, good="+5")) == ["committed"]
    return run.head


async def _lose(run: Any, *numbers: int) -> None:
    for number in numbers:
        await run.merge(run.card(run.head, **{f"bad{number}": "-0"}))


@pytest.mark.anyio
async def test_the_head_is_promoted_after_three_decided_merges(anyio_backend: Any, run: Any) -> None:
    await _committed(run)
    await _lose(run, 1, 2)
    assert run.ledger.stable["a"].version == 1
    await _lose(run, 3)
    assert run.ledger.stable["a"] == run.head
    assert run.events == [ArtifactPromoted(elapsed=0.0, artifact_id="a", version=2, held_out=0.6)]
    await _lose(run, 4, 5, 6)
    assert run.counted["promotions"] == 1


@pytest.mark.anyio
async def test_a_commit_restarts_the_clock(anyio_backend: Any, run: Any) -> None:
    await _committed(run)
    await _lose(run, 1, 2)
    await run.merge(run.card(run.head, better="+6"))
    await _lose(run, 3, 4)
    assert run.ledger.stable["a"].version == 1
    await _lose(run, 5)
    assert run.ledger.stable["a"].version == 3


@pytest.mark.anyio
async def test_an_oracle_rejection_restarts_the_clock(anyio_backend: Any, run: Any) -> None:
    await _committed(run)
    await _lose(run, 1, 2)
    run.auditor.trust = 0.5
    run.auditor.verdict = AuditVerdict("rejected", "not better")
    assert await run.outcomes(run.card(run.head, better="+6")) == ["oracle-rejected"]
    await _lose(run, 3, 4)
    assert run.ledger.stable["a"].version == 1


@pytest.mark.anyio
async def test_merges_that_measured_nothing_do_not_move_the_clock(anyio_backend: Any, run: Any) -> None:
    await _committed(run)
    await _lose(run, 1)
    for _ in range(5):
        await _lose(run, 1)
    assert run.ledger.stable["a"].version == 1


@pytest.mark.anyio
async def test_a_head_that_turns_out_below_stable_is_not_promoted(anyio_backend: Any, run: Any) -> None:
    known = run.evaluator.score
    run.evaluator.score = lambda artifact, task, repeat: (
        known(artifact, task, repeat) if repeat < 2 or "lucky" not in artifact.state else 0.0
    )
    seed = await run.start(noisy=True, acceptance=BetaAcceptance(confirm_repeats=1, delta=0.4))
    assert await run.outcomes(run.card(seed, lucky="+5")) == ["committed"]
    await _lose(run, 1, 2, 3)
    assert run.ledger.stable["a"].version == 1
    assert run.merger.held_out("a") == 0.3


@pytest.mark.anyio
@pytest.mark.parametrize("noisy", [False, True])
async def test_a_clean_end_promotes_a_head_that_holds(anyio_backend: Any, run: Any, noisy: bool) -> None:
    head = await _committed(run, noisy=noisy, acceptance=BetaAcceptance(delta=0.4))
    assert await run.merger.confirm(head)
    assert run.ledger.stable["a"] == head
    spent = len(run.evaluator.measured)
    assert await run.merger.confirm(head)
    assert len(run.evaluator.measured) == spent


@pytest.mark.anyio
@pytest.mark.parametrize(("words", "holds"), [("+0 +1 +2 +3 +4 +5", True), ("+0", False)])
async def test_the_final_measurement_may_be_handed_over(anyio_backend: Any, run: Any, words: str, holds: bool) -> None:
    head = await _committed(run)
    final = await run.evaluator.measure(
        type(head)("z", {"all": words}), run.held_out, split="held_out", purpose="final"
    )
    assert await run.merger.confirm(head, final) == holds
    assert run.evaluator.purposes()["promotion"] == 0


@pytest.mark.anyio
async def test_what_cannot_be_paid_for_is_not_promoted(anyio_backend: Any, run: Any) -> None:
    head = await _committed(run, noisy=True, acceptance=BetaAcceptance(delta=0.4))
    run.evaluator.left = 3
    assert not await run.merger.confirm(head)
    assert run.counted["promotions_unaffordable"] == 1


@pytest.mark.anyio
async def test_a_continued_run_measures_what_is_stable(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    newer = run.ledger.foreign("a", seed="+0 +1 +2")
    measured = await run.evaluator.measure(newer, run.held_out, split="held_out", purpose="seed")
    run.merger.open(newer, measured, stable=seed)
    assert not await run.merger.confirm(run.head)
    assert await run.outcomes(run.card(newer, good="+5 +6")) == ["committed"]
    assert await run.merger.confirm(run.head)


@pytest.mark.anyio
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(("words", "holds"), [("-0 -1", False), ("+6", True)])
async def test_a_figure_of_an_older_head_promotes_no_newer_one(
    anyio_backend: Any, run: Any, words: str, holds: bool, noisy: bool
) -> None:
    """Somebody else commits while the end is being measured: that head is measured itself, or stays where it is."""
    head = await _committed(run, noisy=noisy, acceptance=BetaAcceptance(delta=0.4))
    final = await run.evaluator.measure(head, run.held_out, split="held_out", purpose="final")
    newer = run.ledger.foreign("a", foreign=words)
    assert await run.merger.confirm(head, final) == holds
    assert run.evaluator.measured[-1][:2] == ("promotion", newer)
    assert run.ledger.stable["a"].version == (newer.version if holds else 1)
    assert not holds or run.merger.stable_pool("a").rate == 0.7


@pytest.mark.anyio
async def test_a_foreign_commit_restarts_the_clock(anyio_backend: Any, run: Any) -> None:
    await _committed(run)
    await _lose(run, 1, 2)
    run.ledger.foreign("a", other="+9")
    await _lose(run, 3, 4)
    assert run.ledger.stable["a"].version == 1
    await _lose(run, 5)
    assert run.ledger.stable["a"] == run.head


@pytest.mark.anyio
async def test_a_merge_is_reported_before_a_promotion_measures(anyio_backend: Any, run: Any) -> None:
    """What is cut off in the middle of a promotion takes no card's end with it, and the promotion comes later."""
    await _committed(run, noisy=True, acceptance=BetaAcceptance(delta=0.4))
    await _lose(run, 1, 2)
    with anyio.CancelScope() as scope:
        run.evaluator.before = lambda purpose: scope.cancel() if purpose == "promotion" else None
        await _lose(run, 3)
    assert scope.cancelled_caught
    assert run.settled[-1].outcome == "below-threshold"
    assert len(run.settled) == 4
    assert run.ledger.stable["a"].version == 1

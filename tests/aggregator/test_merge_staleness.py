"""Cards whose base is gone: rebased, verified again, or competing as rivals."""

from __future__ import annotations

from typing import Any

import pytest

from adescent.aggregator import FullStaleness, GuardedStaleness

pytestmark = pytest.mark.anyio


async def test_a_late_card_is_rebased_and_committed(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    for number in range(7):
        run.ledger.foreign("a", **{f"other{number}": "…"})
    assert await run.outcomes(run.card(seed, "5", x="+5")) == ["committed"]
    assert run.head.version == 9
    assert run.head.state.keys() >= {"other0", "other6", "x"}


@pytest.mark.parametrize(("async_ratio", "blast_radius", "behind", "outcome"), [
    (None, 0.2, 1, "committed"),
    (None, 0.2, 2, "stale"),
    (None, 0.9, 5, "committed"),
    (None, 0.9, 6, "stale"),
    (3, 0.9, 3, "committed"),
    (3, 0.9, 4, "stale"),
    (0, 0.2, 1, "stale"),
])  # fmt: skip
async def test_how_late_a_card_may_be_when_guarded(
    anyio_backend: Any, run: Any, async_ratio: int | None, blast_radius: float, behind: int, outcome: str
) -> None:
    seed = await run.start(blast_radius, staleness=GuardedStaleness(), async_ratio=async_ratio)
    for number in range(behind):
        run.ledger.foreign("a", **{f"other{number}": "…"})
    assert await run.outcomes(run.card(seed, "5", x="+5")) == [outcome]


async def test_rebased_texts_are_merged_by_lines(anyio_backend: Any, run: Any) -> None:
    await run.start()
    base = run.ledger.foreign("a", text="one\ntwo\nthree")
    run.ledger.foreign("a", text="one +9\ntwo\nthree")
    assert await run.outcomes(run.card(base, "5", text="one\ntwo\nthree +5")) == ["committed"]
    assert run.head.state["text"] == "one +9\ntwo\nthree +5"


async def test_a_union_of_rebased_cards_that_holds_is_not_looked_into(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    run.ledger.foreign("a", other="…")
    assert await run.outcomes(run.card(seed, "5", x="+5"), run.card(seed, "6", y="+6")) == ["committed"] * 2
    assert run.evaluator.wave_tasks == []


async def test_the_wave_looks_at_the_newest_tasks_and_fits_the_concurrency(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(eval_concurrency=6)
    run.ledger.foreign("a", other="…")
    spoiler = run.card(seed, "0", spoilt="-0 -1 -2 -3 -4 -5 -6 -7")
    cards = [run.card(seed, str(number), **{f"x{number}": f"+{number}"}) for number in (5, 6, 7, 8, 9)]
    await run.merge(spoiler, *cards)
    assert run.evaluator.wave_tasks == [("t9", "t8", "t7")] * 2


async def test_a_shared_task_is_looked_at_once(anyio_backend: Any, run: Any) -> None:
    seed = await run.start(eval_concurrency=2)
    run.ledger.foreign("a", other="…")
    await run.merge(run.card(seed, "5", x="+5"), run.card(seed, "5", y="-0 -1"))
    assert run.evaluator.wave_tasks == [("t5",)] * 2


async def test_a_card_whose_task_got_worse_ends_and_the_others_go_on(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    run.ledger.foreign("a", other="+9")
    cards = run.card(seed, "5", x="+5"), run.card(seed, "9", y="+6 -9 -0 -1 -2"), run.card(seed, "7", z="+7")
    assert await run.outcomes(*cards) == ["committed", "rebase-failed", "committed"]
    assert run.head.state.keys() == {"seed", "other", "x", "z"}


async def test_cards_at_the_head_are_not_verified_again(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    await run.merge(run.card(seed, "5", x="+5"), run.card(seed, "6", y="-0 -1"))
    assert run.evaluator.wave_tasks == []


async def test_what_a_strategy_forbids_is_not_even_tried_on_own_tasks(anyio_backend: Any, run: Any) -> None:
    seed = await run.start()
    run.ledger.foreign("a", other="…")
    assert await run.outcomes(run.card(seed, "5", x="+5 forbidden")) == ["violates-invariant"]
    assert run.evaluator.wave_tasks == []


# Rivals ---------------------------------------------------------------------------------------------------------------


async def _overtaken(run: Any, newer: str = "+5 theirs", **options: Any) -> Any:
    """A base that a newer head has overwritten in the very line a card is going to change."""
    await run.start(**options)
    base = run.ledger.foreign("a", text="old")
    run.ledger.foreign("a", text=newer)
    return base


async def test_a_rival_that_beats_newer_text_replaces_it(anyio_backend: Any, run: Any) -> None:
    base = await _overtaken(run)
    assert await run.outcomes(run.card(base, "6", text="+5 +6 mine")) == ["committed"]
    assert run.head.state["text"] == "+5 +6 mine"
    assert run.evaluator.wave_tasks == [("t6",)] * 2  # its own look, and no part in the others'


@pytest.mark.parametrize(("text", "outcome"), [("mine", "rebase-failed"), ("+6 mine", "tie")])
async def test_newer_text_is_never_overwritten_unmeasured(
    anyio_backend: Any, run: Any, text: str, outcome: str
) -> None:
    base = await _overtaken(run)
    assert await run.outcomes(run.card(base, "6", text=text)) == [outcome]
    assert run.head.state["text"] == "+5 theirs"


async def test_rivals_are_never_fused_and_wait_when_something_else_was_kept(anyio_backend: Any, run: Any) -> None:
    base = await _overtaken(run)
    rival = run.card(base, "6", text="+5 +6 mine")
    merged = await run.merge(rival, run.card(base, "7", x="+7"))
    assert [settled.outcome.value for settled in merged.report.settled] == ["committed"]
    assert [entry.card for entry in merged.leftover] == [rival]
    assert len(merged.leftover) == 1
    assert await run.outcomes() == ["committed"]
    assert run.head.state == {"seed": "+0 +1 +2 +3 +4", "text": "+5 +6 mine", "x": "+7"}


async def test_of_rivals_for_one_text_the_better_goes_to_the_gate(anyio_backend: Any, run: Any) -> None:
    base = await _overtaken(run)
    rivals = run.card(base, "6", text="+5 +6 first"), run.card(base, "7", text="+5 +6 +7 second")
    assert await run.outcomes(*rivals) == ["conflict-dropped", "committed"]


async def test_full_staleness_leaves_everything_to_the_gate(anyio_backend: Any, run: Any) -> None:
    base = await _overtaken(run, staleness=FullStaleness())
    assert await run.outcomes(run.card(base, "6", text="+5 +6 mine")) == ["committed"]
    assert run.evaluator.wave_tasks == []


async def test_a_strategy_may_refuse_rivals(anyio_backend: Any, run: Any, rules: Any) -> None:
    base = await _overtaken(run, strategy=rules(takes_rivals=False))
    assert await run.outcomes(run.card(base, "6", text="+5 +6 mine")) == ["stale"]

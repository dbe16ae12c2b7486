"""What holds whatever comes in: every card ends once, and nothing depends on who did the work or when it arrived."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adescent.aggregator import BetaAcceptance, GuardedStaleness, ReflectiveStaleness, UnionFusion
from adescent.policies import AuditVerdict, Outcome

pytestmark = pytest.mark.anyio

GOOD = ["+5", "+6 +7", "+8", "+9 +7", "one\n=\n+9", "+9\n=\nthree"]
MIXED = [None, "-0", "-0 -1 -2 -3 -4", "nothing", "forbidden", "+8 -1", "+0 +1 +2 +3 +4"]
ops = st.tuples(st.sampled_from(["seed", "x", "y", "z", "u", "v"]), st.sampled_from([*GOOD, *GOOD, *MIXED]))
edits = st.lists(ops, min_size=1, max_size=2).map(dict) | st.dictionaries(
    st.text(max_size=2), st.just("+5"), max_size=9
)
cards = st.tuples(edits, st.sampled_from([0, 0, 1, 3]), st.sampled_from("0123456789"))
batches = st.lists(st.lists(cards, max_size=6), min_size=1, max_size=4)
situations = st.fixed_dictionaries(
    {
        "noisy": st.booleans(),
        "tournament": st.booleans(),
        "guarded": st.booleans(),
        "takes_rivals": st.booleans(),
        "blast_radius": st.sampled_from([0.2, 0.2, 0.9]),
        "verdict": st.sampled_from(["passed", "passed", "rejected", "unavailable"]),
        "left": st.sampled_from([None, None, None, 20, 100, 400]),
        "races": st.sampled_from([0, 0, 1, 2, 4]),
        "eval_concurrency": st.sampled_from([1, 4, 16]),
    }
)


async def search(run: Any, rules: Any, batches: Any, situation: Any, shuffled: random.Random | None = None) -> Any:
    """Merge batch after batch; late cards are changes to the version so many commits ago."""
    seed = await run.start(
        situation["blast_radius"],
        noisy=situation["noisy"],
        fusion=UnionFusion(tournament=situation["tournament"]),
        staleness=GuardedStaleness() if situation["guarded"] else ReflectiveStaleness(),
        strategy=rules(situation["takes_rivals"]),
        acceptance=BetaAcceptance(confirm_repeats=1, delta=0.4),
        eval_concurrency=situation["eval_concurrency"],
    )
    run.auditor.verdict = AuditVerdict(situation["verdict"])
    run.evaluator.left = situation["left"]
    races = [{"other": f"{number}"} for number in range(situation["races"])]
    run.ledger.before_commit = lambda: races and run.ledger.foreign("a", **races.pop())
    assert seed.version == 1
    reports = []
    for turn, batch in enumerate([*batches, [], []]):
        cards = []
        for edit, behind, learnt_from in batch:
            versions = run.ledger.dev["a"]
            base = versions[max(0, len(versions) - 1 - behind)]
            cards.append(run.card(base, learnt_from, **edit))
        arrivals = list(enumerate(cards))
        if shuffled is not None:
            shuffled.shuffle(arrivals)
        for unit, card in arrivals:
            run.buffer.ingest(card, (turn, unit))
        merged = await run.merger.merge("a", run.buffer.drain("a"))
        run.buffer.put_back(merged.leftover)
        reports.append(merged.report)
        # A merge that is given cards ends at least one, so that merging what waits comes to an end.
        assert merged.report.considered or not merged.leftover
        await run.merger.promote_due("a")
        if run.evaluator.refused:  # the run ends here
            break
    return reports


@settings(max_examples=60)
@given(batches=batches, situation=situations)
async def test_every_card_ends_exactly_once(
    anyio_backend: Any, new_run: Any, rules: Any, batches: Any, situation: Any
) -> None:
    run = new_run()
    reports = await search(run, rules, batches, situation)
    outcomes = Counter(settled.outcome for report in reports for settled in report.settled)
    assert sum(outcomes.values()) + len(run.buffer) == run.buffer.ingested
    for report in reports:
        assert (report.version is not None) == (report.count(Outcome.COMMITTED) > 0)


@settings(max_examples=40)
@given(batches=batches, situation=situations, seed=st.integers())
async def test_arrival_decides_nothing(
    anyio_backend: Any, new_run: Any, rules: Any, batches: Any, situation: Any, seed: int
) -> None:
    one, other = new_run(), new_run()
    in_order = await search(one, rules, batches, situation)
    shuffled = await search(other, rules, batches, situation, random.Random(seed))
    assert in_order == shuffled
    assert one.ledger.dev == other.ledger.dev
    assert one.ledger.decisions == other.ledger.decisions
    assert one.ledger.stable == other.ledger.stable


@settings(max_examples=40)
@given(batches=batches, situation=situations)
async def test_the_head_is_never_worse_than_it_was_measured(
    anyio_backend: Any, new_run: Any, rules: Any, batches: Any, situation: Any
) -> None:
    """With scores that do not vary, every commit of the run itself is a true gain over the version before it."""
    run = new_run()
    reports = await search(run, rules, batches, situation)
    committed = {report.version for report in reports if report.version is not None}
    rates = {
        version.version: sum(run.evaluator.score(version, task, 0) for task in run.held_out)
        for version in run.ledger.dev["a"]
    }
    assert all(rates[version] > rates[version - 1] for version in committed)
    assert "forbidden" not in " ".join(run.head.state.values())

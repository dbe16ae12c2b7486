from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from adescent.aggregator import BetaAcceptance, judge
from adescent.errors import ContractError, OptionError
from adescent.policies import GateEvidence, Measurement, Outcome, Pool, Reading, Verdict
from adescent.stats import prob_greater


def measured(*scores: float | None, trials: int = 1, environment: str = "here", complete: bool = True) -> Measurement:
    readings = tuple(
        Reading(f"h{number}", missing="void") if score is None else Reading(f"h{number}", score, trials)
        for number, score in enumerate(scores)
    )
    return Measurement(readings, environment, complete)


def rates(successes: int, tasks: int = 10, **options: Any) -> Measurement:
    return measured(*[1.0] * successes, *[0.0] * (tasks - successes), **options)


def evidence(incumbent: Measurement, first: Measurement, **options: Any) -> GateEvidence:
    return GateEvidence(Pool() + incumbent, first, held_out=len(incumbent.readings), **options)


def outcome(seen: GateEvidence, **options: Any) -> str:
    verdict = BetaAcceptance(**options).decide(seen)
    return verdict.outcome.value if verdict.outcome else verdict.decision


@pytest.mark.parametrize(("successes", "word"), [(4, "below-threshold"), (5, "tie"), (6, "accept"), (10, "accept")])
def test_without_noise_any_net_gain_is_taken(successes: int, word: str) -> None:
    assert outcome(evidence(rates(5), rates(successes))) == word


def test_p_is_exact() -> None:
    verdict = BetaAcceptance().decide(evidence(rates(5), rates(6)))
    assert verdict.p == prob_greater(7, 5, 6, 6)
    assert f"p = {verdict.p:.3f}" in verdict.reason


def test_equal_rates_are_a_tie_whatever_the_order_of_the_sums() -> None:
    incumbent = Pool() + measured(0.1, 0.2, 0.3)
    assert outcome(GateEvidence(incumbent, measured(0.3, 0.2, 0.1), held_out=3)) == "tie"


@pytest.mark.parametrize(("successes", "word"), [(4, "below-threshold"), (5, "tie"), (6, "measure")])
def test_with_noise_the_first_measurement_only_screens(successes: int, word: str) -> None:
    seen = evidence(rates(5), rates(successes), noisy=True)
    assert outcome(seen) == word
    assert BetaAcceptance(confirm_repeats=3).decide(seen).repeats == (3 if word == "measure" else 0)


@pytest.mark.parametrize(
    ("fresh", "word"), [(5, "tie"), (4, "below-threshold"), (6, "below-threshold"), (7, "accept"), (10, "accept")]
)
def test_only_fresh_measurements_confirm(fresh: int, word: str) -> None:
    seen = evidence(rates(5), rates(10), noisy=True, fresh=Pool() + rates(fresh))
    assert outcome(seen) == word


def test_delta_is_how_sure_it_has_to_be() -> None:
    seen = evidence(rates(5), rates(10), noisy=True, fresh=Pool() + rates(6))
    assert outcome(seen, delta=0.5) == "accept"
    assert outcome(seen, delta=0.01) == "below-threshold"


def test_delta_is_annealed_by_candidates_measured() -> None:
    policy = BetaAcceptance(delta=0.4, anneal_half_life=10)
    assert [policy.delta_after(number) for number in (0, 10, 20, 1000)] == [0.4, 0.2, 0.1, 0.01]
    assert BetaAcceptance().delta_after(1000) == 0.2
    seen = evidence(rates(5), rates(10), noisy=True, fresh=Pool() + rates(7))
    assert outcome(seen, delta=0.2, anneal_half_life=10) == "accept"
    assert outcome(evolve(seen, candidates=50), delta=0.2, anneal_half_life=10) == "below-threshold"


@pytest.mark.parametrize(
    ("fresh", "word"),
    [
        ([4], "below-threshold"),
        ([5], "tie"),
        ([6], "measure"),
        ([9], "measure"),
        ([9, 2], "measure"),
        ([9, 9, 9], "accept"),
    ],
)
@pytest.mark.parametrize("trials", [1, 3])
def test_stepwise_a_candidate_that_falls_behind_is_refused_at_once(fresh: list[int], word: str, trials: int) -> None:
    pool = Pool()
    for successes in fresh:
        pool += measured(*[float(trials)] * successes, *[0.0] * (10 - successes), trials=trials)
    seen = evidence(rates(5), measured(*[float(trials)] * 10, trials=trials), noisy=True, fresh=pool)
    assert outcome(seen, stepwise=True, confirm_repeats=3) == word
    first = evidence(rates(5), rates(6), noisy=True)
    assert BetaAcceptance(stepwise=True, confirm_repeats=3).decide(first).repeats == 1


def test_without_repeats_the_first_look_decides() -> None:
    assert outcome(evidence(rates(5), rates(6), noisy=True), confirm_repeats=0, delta=0.5) == "accept"
    assert outcome(evidence(rates(5), rates(6), noisy=True), confirm_repeats=0) == "below-threshold"


@pytest.mark.parametrize(("missing", "word"), [(1, "accept"), (2, "unmeasured"), (10, "unmeasured")])
def test_under_nine_in_ten_common_tasks_nothing_is_compared(missing: int, word: str) -> None:
    assert outcome(evidence(rates(0), measured(*[1.0] * (10 - missing), *[None] * missing))) == word
    assert outcome(evidence(measured(*[0.0] * (10 - missing), *[None] * missing), rates(10))) == word


def test_rates_are_those_of_the_common_tasks() -> None:
    incumbent = measured(*[0.0] * 9, 1.0)
    assert outcome(evidence(incumbent, measured(*[0.0] * 9, None))) == "tie"


def test_figures_of_different_environments_are_never_compared() -> None:
    assert outcome(evidence(rates(5), rates(10, environment="there"))) == "unmeasured"


def test_a_measurement_that_stopped_early_is_below() -> None:
    assert outcome(evidence(rates(5), measured(0.0, 0.0, complete=False))) == "below-threshold"


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 0},
        {"delta": 1.0},
        {"delta": True},
        {"confirm_repeats": -1},
        {"confirm_repeats": 1.5},
        {"anneal_half_life": 0},
    ],
)
def test_options_without_meaning_are_refused(options: Any) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        BetaAcceptance(**options)


@pytest.mark.parametrize(("prefix", "still"), [([0.0] * 5, True), ([0.0] * 6, False), ([1.0, *[0.0] * 6], False)])
def test_a_candidate_that_cannot_reach_the_head_is_given_up(prefix: list[float], still: bool) -> None:
    seen = evidence(rates(5), measured(*prefix, complete=False))
    assert BetaAcceptance().can_still_accept(seen) == still


score = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1 / 3, 1.0]))


@given(
    incumbent=st.lists(st.sampled_from([0.0, 0.1, 1 / 3, 1.0]), min_size=4, max_size=12),
    data=st.data(),
    noisy=st.booleans(),
    trials=st.integers(1, 3),
)
def test_stopping_early_never_changes_how_a_candidate_ends(
    incumbent: list[float], data: st.DataObject, noisy: bool, trials: int
) -> None:
    candidate = data.draw(st.lists(score, min_size=len(incumbent), max_size=len(incumbent)))
    policy = BetaAcceptance()
    for length in range(1, len(candidate)):
        seen = evidence(measured(*incumbent), measured(*candidate[:length], trials=trials, complete=False), noisy=noisy)
        if policy.can_still_accept(seen):
            continue
        rest = [value for value in candidate[length:] if value is not None]
        if len(rest) == len(candidate) - length:  # scores that go missing later are nobody's doing
            whole = evidence(measured(*incumbent), measured(*candidate, trials=trials), noisy=noisy)
            assert outcome(whole) in ("below-threshold", "unmeasured")
        longer = evolve(seen, first=measured(*candidate[: length + 1], trials=trials, complete=False))
        assert length + 1 == len(candidate) or candidate[length] is None or not policy.can_still_accept(longer)


@pytest.mark.anyio
async def test_judging_measures_for_as_long_as_the_policy_asks(anyio_backend: Any) -> None:
    asked: list[int] = []

    async def more(repeats: int) -> tuple[Measurement, Measurement]:
        asked.append(repeats)
        return rates(5), rates(9)

    verdict, seen = await judge(BetaAcceptance(confirm_repeats=2), evidence(rates(5), rates(6), noisy=True), more)
    assert asked == [2]
    assert verdict.decision == "accept"
    assert seen.fresh.by_task["h0"] == (1.0, 1)
    assert seen.incumbent.by_task["h0"] == (2.0, 2)


@pytest.mark.anyio
async def test_judging_ends_when_there_is_nothing_to_be_had(anyio_backend: Any) -> None:
    async def more(repeats: int) -> tuple[Measurement, Measurement]:
        return rates(5), measured(*[None] * 10)

    verdict, _ = await judge(BetaAcceptance(), evidence(rates(5), rates(6), noisy=True), more)
    assert verdict.outcome is Outcome.UNMEASURED


async def _more(measurements: int) -> tuple[Measurement, Measurement]:
    raise AssertionError("nobody asked for more")


@pytest.mark.anyio
@pytest.mark.parametrize("verdict", [True, None, "accept", Verdict("rejected")])  # type: ignore[arg-type]
async def test_a_policy_that_gives_no_verdict_is_told_so(anyio_backend: Any, verdict: Any) -> None:
    class Loose:
        def decide(self, evidence: GateEvidence) -> Any:
            return verdict

        def can_still_accept(self, evidence: GateEvidence) -> bool:
            return True

    with pytest.raises(ContractError, match=r"Loose\.decide (returned a|said)"):
        await judge(Loose(), GateEvidence(Pool(), Measurement(())), _more)

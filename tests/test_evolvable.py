from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from adescent.aggregator import UnionFusion
from adescent.config import Options
from adescent.errors import ContractError
from adescent.evolution import async_evolve
from adescent.evolvable import (
    Contract,
    Diff,
    EvidenceCard,
    Evolvable,
    Trajectory,
    VersionVector,
    changed,
    contradicts,
    difference,
)
from adescent.policies import Measurement, Policies, VerifierServices
from adescent.tasks import Score, Task
from adescent.textmerge import merge_lines
from adescent.verifier import LayeredVerifier

KEYS = st.sampled_from(["a", "b", "c", "d"])
LINES = st.lists(st.sampled_from(["one", "two", "three", ""]), max_size=5).map("\n".join)
STATES = st.dictionaries(KEYS, LINES, max_size=4)
OPS = st.dictionaries(KEYS, st.none() | LINES, max_size=4)
VECTORS = st.dictionaries(KEYS, st.integers(0, 4), max_size=4).map(VersionVector)
DIFFS = st.builds(Diff, target=st.sampled_from(["x", "y"]), ops=OPS)


def artifact(state: Any, version: int = 1) -> Evolvable:
    return Evolvable("x", state, version)


# Version vectors ------------------------------------------------------------------------------------------------------


@given(VECTORS, VECTORS, VECTORS)
def test_version_vectors_are_a_join_semilattice(a: VersionVector, b: VersionVector, c: VersionVector) -> None:
    assert a | a == a
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | VersionVector() == a
    assert all((a | b)[key] == max(a[key], b[key]) for key in "abcd")


@given(VECTORS, st.dictionaries(KEYS, st.just(0), max_size=4))
def test_an_artifact_at_version_0_is_the_same_as_one_not_named(vector: VersionVector, zeros: dict[str, int]) -> None:
    spelled_out = VersionVector({**zeros, **vector})
    assert spelled_out == vector
    assert hash(spelled_out) == hash(vector)
    assert len(spelled_out) == len(list(spelled_out)) == len(vector)


def test_an_artifact_that_is_not_named_is_at_0_and_is_not_in_it() -> None:
    vector = VersionVector({"a": 2, "b": 0})
    assert (vector["a"], vector["b"], vector["z"]) == (2, 0, 0)
    assert [key in vector for key in "abz"] == [True, False, False]
    assert vector.with_version("b", 1) == VersionVector({"a": 2, "b": 1})
    assert vector.with_version("a", 0) == VersionVector()


@given(VECTORS, VECTORS, st.lists(KEYS, max_size=4))
def test_staleness_is_the_largest_lag_of_what_was_touched(
    a: VersionVector, b: VersionVector, touched: list[str]
) -> None:
    head = a | b
    assert head.staleness(a, touched) == max((head[key] - a[key] for key in touched), default=0)
    assert head.staleness(head, touched) == 0
    later = head.with_version("a", head["a"] + 1)
    assert later.staleness(a, touched) - head.staleness(a, touched) in (0, 1)


def test_a_base_ahead_of_the_head_is_refused() -> None:
    head, base = VersionVector({"a": 1, "b": 5}), VersionVector({"a": 2})
    with pytest.raises(ContractError, match="ahead of the head"):
        head.staleness(base, ["a", "b"])
    assert head.staleness(base, ["b"]) == 5


@pytest.mark.parametrize("version", [-1, 1.0, True, "1", None])
def test_a_version_is_a_whole_number(version: Any) -> None:
    with pytest.raises(ContractError, match="version of 'a'"):
        VersionVector({"a": version})


# Diffs ----------------------------------------------------------------------------------------------------------------


@given(STATES, STATES)
def test_a_diff_leads_from_one_state_to_the_other(old: dict[str, str], new: dict[str, str]) -> None:
    a, b = artifact(old), artifact(new)
    diff = a.diff(b)
    assert a.apply(diff) == b
    assert a.state == old, "the artifact itself stays as it was"
    assert diff.size() == len({key for key in {**old, **new} if old.get(key) != new.get(key)})
    assert a.diff(a).size() == 0


@given(STATES, OPS)
def test_applying_twice_changes_nothing_more(state: dict[str, str], ops: dict[str, str | None]) -> None:
    once = changed(state, ops)
    assert list(changed(once, ops).items()) == list(once.items())
    assert changed(state, difference(state, once)) == once


def test_kept_keys_keep_their_place_and_new_ones_come_last() -> None:
    state = changed({"a": "1", "b": "2", "c": "3"}, {"z": "new", "b": "changed", "a": None})
    assert list(state.items()) == [("b", "changed"), ("c", "3"), ("z", "new")]


def test_the_same_edit_has_the_same_name_whoever_made_it() -> None:
    one = Diff("x", {"a": "1", "b": None}, origin="somewhere")
    other = Diff("x", {"b": None, "a": "1"}, origin="elsewhere")
    assert (one, one.id) == (other, other.id)
    others = [Diff("y", one.ops), Diff("x", {"a": "1"}), Diff("x", one.ops, True), Diff("x", one.ops, adapts=("y",))]
    assert len({one.id, *(diff.id for diff in others)}) == 5


@given(DIFFS, DIFFS)
def test_contradiction_is_mutual_and_about_one_key_with_two_values(a: Diff, b: Diff) -> None:
    assert contradicts(a, b) == contradicts(b, a)
    assert not contradicts(a, a)
    shared = a.ops.keys() & b.ops.keys()
    assert contradicts(a, b) == (a.target == b.target and any(a.ops[key] != b.ops[key] for key in shared))


def test_deleting_contradicts_setting_and_not_deleting() -> None:
    assert contradicts(Diff("x", {"a": None}), Diff("x", {"a": "text"}))
    assert not contradicts(Diff("x", {"a": None}), Diff("x", {"a": None, "b": "text"}))


@given(STATES, OPS, OPS)
def test_diffs_that_do_not_contradict_can_be_applied_in_any_order(
    state: dict[str, str], one: dict[str, str | None], other: dict[str, str | None]
) -> None:
    if not contradicts(Diff("x", one), Diff("x", other)):
        assert changed(changed(state, one), other) == changed(changed(state, other), one)


# Artifacts ------------------------------------------------------------------------------------------------------------


def test_a_diff_for_another_artifact_is_refused() -> None:
    with pytest.raises(ContractError, match="'y' cannot be applied to 'x'"):
        artifact({}).apply(Diff("y", {}))


def test_a_breaking_diff_raises_the_major_of_the_contract() -> None:
    base = evolve(artifact({}), contract=Contract("text", major=2))
    assert base.apply(Diff("x", {"a": "1"}, contract_breaking=True)).contract == Contract("text", major=3)
    assert base.apply(Diff("x", {"a": "1"})).contract == base.contract


def test_the_digest_is_of_the_state_in_its_order() -> None:
    one, other = artifact({"a": "1", "b": "2"}), artifact({"b": "2", "a": "1"})
    assert one.digest != other.digest
    assert one.digest == evolve(one, version=7).digest


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a b", "é", "a\n", None, 3])
def test_an_id_is_one_that_a_ledger_can_hold(name: Any) -> None:
    with pytest.raises(ContractError, match="artifact id"):
        Evolvable(name)


@pytest.mark.parametrize("radius", [-0.1, 1.1, float("nan"), True, "0.2", None])
def test_a_blast_radius_is_a_share(radius: Any) -> None:
    with pytest.raises(ContractError, match="blast_radius"):
        Evolvable("x", blast_radius=radius)


@pytest.mark.parametrize("state", [{"a": 1}, {1: "a"}, {"a": None}, Diff("x", {"a": None}).ops])
def test_a_state_is_text_under_text(state: Any) -> None:
    with pytest.raises(ContractError, match="holds text under text keys"):
        artifact(state)
    with pytest.raises(ContractError, match="holds text under text keys"):
        changed(state, {})


@pytest.mark.parametrize("ops", [{"a": 1}, {1: "a"}, {"a": ["b"]}])
def test_a_diff_sets_text_or_deletes(ops: Any) -> None:
    with pytest.raises(ContractError, match="to text or to None"):
        Diff("x", ops)
    with pytest.raises(ContractError, match="to text or to None"):
        changed({}, ops)


@pytest.mark.parametrize("none", [None, "text", [("a", "b")], 5])
def test_what_is_no_mapping_is_refused_by_name(none: Any) -> None:
    with pytest.raises(ContractError, match=f"state is a mapping.* {type(none).__name__}"):
        artifact(none)
    with pytest.raises(ContractError, match=f"ops map.* {type(none).__name__}"):
        Diff("x", none)


@pytest.mark.parametrize("field", [{"target": 5}, {"id": ["x"]}, {"origin": None}, {"adapts": "x"}, {"adapts": (1,)}])
def test_what_names_a_diff_is_text(field: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=rf"Diff\({next(iter(field))}=.*must be a t"):
        Diff(**{"target": "x", "ops": {}, **field})


def test_a_state_is_a_copy() -> None:
    state = {"a": "1"}
    kept = artifact(state)
    state["a"] = "2"
    assert kept.state == {"a": "1"}


@pytest.mark.anyio
async def test_an_artifact_is_measured_by_the_verifier_and_the_group_of_a_run(anyio_backend: Any) -> None:
    measured: list[tuple[float | None, float | None]] = []

    def verifier(services: VerifierServices) -> LayeredVerifier:
        layers = LayeredVerifier(services)

        class Asking(LayeredVerifier):
            async def rule(self, artifact: Evolvable) -> Measurement:
                edit = EvidenceCard(Diff(artifact.id, {"more": "solve"}), VersionVector())
                cheap = await artifact.cheap_eval(edit, layers)
                measured.append((cheap, await artifact.full_eval(services.splits.held_out, services.evaluator)))
                return await super().rule(artifact)

        return Asking(services)

    async def run(rendered: str, task: Task) -> bool:
        return "solve" in rendered

    async def reward(task: Task, output: bool) -> float:
        return float(output)

    async def propose(rendered: str, task: Task, output: bool, score: Score) -> str:
        return task.id

    rows = [{"prompt": str(number)} for number in range(10)]
    policies = Policies(verifier=verifier, fusion=UnionFusion(tournament=True))
    options: Options = {"schedule": "rounds", "rounds": 1, "n_workers": 2, "policies": policies}
    options |= {"run": run, "propose": propose}
    await async_evolve(rows, reward, **options)
    assert set(measured) == {(1.0, 0.0)}


# Cards ----------------------------------------------------------------------------------------------------------------


def card(ops: dict[str, str | None], base: dict[str, str], version: int = 1) -> EvidenceCard:
    return EvidenceCard(
        Diff("x", ops),
        VersionVector({"x": version}),
        {key: base.get(key) for key in ops},
        ("x",),
        (Trajectory(Task("t", "p"), "output", Score(0.0)),),
    )


@given(STATES, OPS, STATES)
def test_newer_text_is_never_overwritten_except_by_a_rival(
    base: dict[str, str], ops: dict[str, str | None], newer: dict[str, str]
) -> None:
    head = artifact(newer, version=4)
    rebased = card(ops, base).rebased_onto(head)
    for key, proposed in ops.items():
        before, current = base.get(key), newer.get(key)
        got = rebased.diff.ops.get(key, current)
        if key in rebased.rival_keys:
            assert got == proposed
            assert current not in (before, proposed)
        elif current == before:
            assert got == proposed
        elif before is None or current is None or proposed is None:
            assert current == proposed
            assert got == current
        else:
            assert got == merge_lines(before, current, proposed).text


@given(STATES, OPS, STATES)
def test_a_rebased_card_stands_on_the_new_head(
    base: dict[str, str], ops: dict[str, str | None], newer: dict[str, str]
) -> None:
    head = artifact(newer, version=4)
    old = card(ops, base)
    rebased = old.rebased_onto(head)
    assert VersionVector({"x": 4}).staleness(rebased.base_version, rebased.touched) == 0
    assert dict(rebased.base_values) == {key: newer.get(key) for key in rebased.diff.ops}
    assert all(newer.get(key) != value for key, value in rebased.diff.ops.items()), "what the head holds is left out"
    assert rebased.diff.id == Diff("x", rebased.diff.ops).id
    assert rebased.rebased_onto(head) == rebased
    assert rebased.trajectories == old.trajectories
    assert set(rebased.rival_keys) <= rebased.diff.ops.keys()


@given(STATES, OPS)
def test_rebasing_onto_an_unchanged_head_drops_only_what_it_already_holds(
    base: dict[str, str], ops: dict[str, str | None]
) -> None:
    rebased = card(ops, base).rebased_onto(artifact(base))
    assert changed(base, rebased.diff.ops) == changed(base, ops)
    assert not rebased.rival


@given(STATES, OPS, STATES, STATES)
def test_once_a_rival_always_a_rival(
    base: dict[str, str], ops: dict[str, str | None], newer: dict[str, str], newest: dict[str, str]
) -> None:
    once = card(ops, base).rebased_onto(artifact(newer, 2))
    twice = once.rebased_onto(artifact(newest, 3))
    for key in once.rival_keys:
        assert key in twice.rival_keys or newest.get(key) == ops[key]


def test_edits_of_different_lines_are_merged() -> None:
    base = "one\ntwo\nthree"
    rebased = card({"a": "one!\ntwo\nthree"}, {"a": base}).rebased_onto(artifact({"a": "one\ntwo\nthree!"}))
    assert rebased.diff.ops == {"a": "one!\ntwo\nthree!"}
    assert not rebased.rival


def test_edits_of_the_same_line_compete() -> None:
    rebased = card({"a": "mine"}, {"a": "old"}).rebased_onto(artifact({"a": "theirs"}))
    assert (rebased.diff.ops, rebased.rival_keys, rebased.rival) == ({"a": "mine"}, ("a",), True)


def test_a_card_is_about_one_artifact() -> None:
    with pytest.raises(ContractError, match="'x' cannot be rebased onto 'y'"):
        card({"a": "1"}, {}).rebased_onto(Evolvable("y"))


def test_a_card_is_named_by_what_it_says() -> None:
    one = card({"a": "1"}, {})
    assert one.id == card({"a": "1"}, {}).id
    assert len({one.id, card({"a": "2"}, {}).id, card({"a": "1"}, {}, version=2).id}) == 3
    assert evolve(one, before_after_delta=0.5).id == one.id


def test_a_state_is_not_changed_in_place() -> None:
    held = artifact({"a": "1"})
    attempts: list[Callable[[Any], Any]] = [
        lambda state: state.__setitem__("b", "2"),
        lambda state: state.__delitem__("a"),
        lambda state: state.update(b="2"),
        lambda state: state.pop("a"),
        lambda state: state.clear(),
        lambda state: state.setdefault("b", "2"),
    ]
    for attempt in attempts:
        with pytest.raises(ContractError, match="never changed in place"):
            attempt(held.state)
    assert held.state == {"a": "1"}
    assert copy.deepcopy(held) == pickle.loads(pickle.dumps(held)) == held

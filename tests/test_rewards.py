"""The scorers a Ref can name: what scores, what does not, and what the proposer is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent import rewards
from adescent.errors import ContractError, OptionError
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task, as_score

NO_JSON_VALUES = [b"42", {1, 2}, float("nan"), float("inf"), object(), lambda: 42, 1j]

anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.text())


def scorer(name: str, **config: Any) -> rewards.Scorer:
    made: rewards.Scorer = Resolver().resolve(Ref(f"adescent.rewards:{name}", config))
    return made


def scored(name: str, gold: object, output: object, **config: Any) -> Score:
    return scorer(name, **config)(Task("t1", "?", {"gold": gold}), output)


# --- what holds for all of them


@pytest.mark.parametrize("name", rewards.__all__)
def test_a_missing_gold_names_the_key_and_the_task(name: str) -> None:
    for meta in ({"gold": 1, "answer": None}, {"gold": 1}):
        with pytest.raises(ContractError, match=r"task 't1'.*'answer'"):
            scorer(name, gold_key="answer")(Task("t1", "?", meta), "42")


@pytest.mark.parametrize("key", ["", 5, None])
@pytest.mark.parametrize("name", rewards.__all__)
def test_a_gold_key_is_a_name(name: str, key: object) -> None:
    with pytest.raises(OptionError, match="gold_key"):
        scorer(name, gold_key=key)


@pytest.mark.parametrize("output", NO_JSON_VALUES)
@pytest.mark.parametrize("name", rewards.__all__)
def test_an_output_that_is_no_json_value_scores_nothing_and_says_so(name: str, output: object) -> None:
    score = scored(name, {"a": 42} if name == "json_field_match" else 42, output)
    assert score.value == 0.0
    assert type(output).__name__ in score.feedback


@pytest.mark.parametrize("name", rewards.__all__)
@given(output=anything)
def test_any_output_has_a_valid_score_and_words_unless_it_is_full(name: str, output: object) -> None:
    score = scored(name, {"a": 42} if name == "json_field_match" else "42", output)
    assert as_score(score) is score
    assert (score.feedback == "") == (score.value == 1.0)
    assert all(0.0 <= metric <= 1.0 for metric in score.metrics.values())
    again = scored(name, {"a": 42} if name == "json_field_match" else "42", output)
    assert again == score


@pytest.mark.parametrize("name", rewards.__all__)
def test_feedback_is_bounded(name: str) -> None:
    gold = {"a": "g" * 9000} if name == "json_field_match" else ["7 " * 9000] * 50
    assert len(scored(name, gold, ", ".join(map(str, range(9000)))).feedback) < 6000


@pytest.mark.parametrize("name", ["exact_match", "contains", "last_number", "numeric_close", "f1_match"])
def test_the_best_of_several_accepted_answers_counts(name: str) -> None:
    assert scored(name, ["41", "42"], "42").value == 1.0
    assert scored(name, [41, 42], 42).value == 1.0
    assert "one of" in scored(name, ["41", "42"], "7").feedback or name == "f1_match"
    with pytest.raises(ContractError, match=r"task 't1'.*'gold'"):
        scored(name, [], "42")


# --- one by one


@pytest.mark.parametrize(
    ("gold", "output", "config", "value"),
    [
        ("Paris", "Paris", {}, 1.0),
        ("Paris", "  paris\n", {}, 1.0),
        ("Paris", "paris", {"ignore_case": False}, 0.0),
        ("Paris", "Paris.", {}, 0.0),
        ("Paris", "Paris.", {"ignore_punctuation": True}, 1.0),
        ("Paris", "It is Paris", {}, 0.0),
        ("New  York", "new york", {}, 1.0),
        ("Caf\u00e9", "Cafe\u0301", {}, 1.0),
        (3, "3", {}, 1.0),
        ("3", 3, {}, 1.0),
        (True, "true", {}, 1.0),
        ("", None, {}, 1.0),
        ("x", None, {}, 0.0),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}, {}, 1.0),
    ],
)
def test_exact_match(gold: object, output: object, config: dict[str, Any], value: float) -> None:
    assert scored("exact_match", gold, output, **config).value == value


@pytest.mark.parametrize(
    ("gold", "output", "config", "value"),
    [
        ("paris", "It is Paris.", {}, 1.0),
        ("paris", "It is Paris.", {"ignore_case": False}, 0.0),
        ("new york", "in New\n  York City", {}, 1.0),
        ("4", "14", {}, 1.0),
        ("4", "14", {"whole_words": True}, 0.0),
        ("4", "(4)", {"whole_words": True}, 1.0),
        ("c++", "in C++, yes", {"whole_words": True}, 1.0),
        (".*", "anything", {"whole_words": True}, 0.0),
        ("x", None, {}, 0.0),
    ],
)
def test_contains(gold: object, output: object, config: dict[str, Any], value: float) -> None:
    assert scored("contains", gold, output, **config).value == value


@pytest.mark.parametrize("gold", ["", " \n", ["fine", ""]])
def test_a_blank_gold_is_contained_in_everything_and_refused(gold: object) -> None:
    with pytest.raises(ContractError, match=r"task 't1'.*'gold'.*blank"):
        scored("contains", gold, "anything")


@pytest.mark.parametrize(
    ("gold", "output", "value"),
    [
        (1234.5, "so 1,234.5", 1.0),
        ("1,234.5", 1234.5, 1.0),
        (-3, "-3", 1.0),
        (-3, "3", 0.0),
        (1000, "1e3", 1.0),
        (5, "$5", 1.0),
        (50, "50%", 1.0),
        (0.5, "50%", 0.0),
        (0.75, "3/4", 1.0),
        ("3/4", "1/4", 0.0),
        ("1 3/4", "1.75", 1.0),
        (0.1, "0.1", 1.0),
        (2, "2.00", 1.0),
        ("first 7 + 5, then\n#### 12", "12", 1.0),
        (12, "12 because 7 + 5", 0.0),
        (12345678901234567890, "12345678901234567891", 0.0),
        (42, "forty-two", 0.0),
        (42, None, 0.0),
    ],
)
def test_last_number(gold: object, output: object, value: float) -> None:
    assert scored("last_number", gold, output).value == value


@pytest.mark.parametrize("gold", ["none", "", True, {"a": "b"}, ["1", "none"]])
@pytest.mark.parametrize("name", ["last_number", "numeric_close"])
def test_a_gold_without_a_number_is_refused(name: str, gold: object) -> None:
    with pytest.raises(ContractError, match=r"task 't1'.*'gold'.*no number"):
        scored(name, gold, "42")


@pytest.mark.parametrize(
    ("gold", "output", "config", "value"),
    [
        (3, "3.000001", {}, 1.0),
        (3, "3.00001", {}, 0.0),
        (100, "101", {"rel_tol": 0.01}, 1.0),
        (100, "101.1", {"rel_tol": 0.01}, 0.0),
        (-100, "-99", {"rel_tol": 0.01}, 1.0),
        (0, "0.1", {"abs_tol": 0.1}, 1.0),
        (0, "0.1", {}, 0.0),
        (1, "1.3", {"rel_tol": 0, "abs_tol": 0.3}, 1.0),
        ("1/3", "0.3333", {"abs_tol": 0.0001}, 1.0),
    ],
)
def test_numeric_close(gold: object, output: object, config: dict[str, Any], value: float) -> None:
    assert scored("numeric_close", gold, output, **config).value == value


@pytest.mark.parametrize("name", ["rel_tol", "abs_tol"])
@pytest.mark.parametrize("value", [-0.1, True, "0.1", None, float("inf"), float("nan")])
def test_a_tolerance_is_finite_and_not_negative(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name):
        rewards.numeric_close(**{name: value})


@pytest.mark.parametrize(
    ("gold", "output", "config", "value"),
    [
        (["a", "b"], "b, A", {}, 1.0),
        (["a", "b"], "b, A", {"ignore_case": False}, 1 / 3),
        (["a", "b"], "a, a, b, b", {}, 1.0),
        (["a", "b"], "- a\n- c", {}, 1 / 3),
        (["a", "b"], "- a\n- c", {"exact": True}, 0.0),
        (["a", "b"], ["b", "a"], {"exact": True}, 1.0),
        ("a; b", '["a", "b"]', {}, 1.0),
        ([1, 2], "1, 2", {}, 1.0),
        (["a"], None, {}, 0.0),
        ([], "", {}, 1.0),
        ([], "a", {}, 0.0),
    ],
)
def test_set_match(gold: object, output: object, config: dict[str, Any], value: float) -> None:
    assert scored("set_match", gold, output, **config).value == pytest.approx(value)


@given(st.frozensets(st.sampled_from("abcdef")), st.frozensets(st.sampled_from("abcdef")))
def test_set_match_is_jaccard(gold: frozenset[str], found: frozenset[str]) -> None:
    score = scored("set_match", sorted(gold), ", ".join(sorted(found)))
    assert score.value == pytest.approx(len(gold & found) / len(gold | found) if gold | found else 1.0)
    assert score.metrics["recall"] == pytest.approx(len(gold & found) / len(gold) if gold else 1.0)
    assert scored("set_match", sorted(gold), sorted(found), exact=True).value == float(gold == found)


@pytest.mark.parametrize(
    ("gold", "output", "value"),
    [
        ("The Eiffel Tower", "eiffel tower!", 1.0),
        ("Eiffel Tower", "the tall Eiffel Tower of Paris", 4 / 7),
        ("cat cat", "cat", 2 / 3),
        ("cat cat dog", "cat cat", 4 / 5),
        ("cat", "dog", 0.0),
        (["cat", "tall dog"], "dog", 2 / 3),
        ("the", "a", 1.0),
        ("the", "cat", 0.0),
        ("cat", None, 0.0),
    ],
)
def test_f1_match(gold: object, output: object, value: float) -> None:
    assert scored("f1_match", gold, output).value == pytest.approx(value)


def test_f1_tells_precision_and_recall() -> None:
    score = scored("f1_match", "eiffel tower", "tall eiffel tower there")
    assert score.metrics == {"precision": 0.5, "recall": 1.0}


PERSON = {"name": "Ann", "age": 3, "home": {"city": "Rome", "a.b": 1}, "tags": ["x", "y"]}


@pytest.mark.parametrize(
    ("output", "fields", "value"),
    [
        (PERSON, None, 1.0),
        ('{"tags": ["x", "y"], "age": 3.0, "name": "Ann", "home": {"a.b": 1, "city": "Rome"}}', None, 1.0),
        ('{"name": "Ann", "age": "3", "home": {}, "tags": ["y", "x"], "more": 1}', None, 0.25),
        ('Here:\n```json\n{"name": "Ann"}\n```', ["name"], 1.0),
        ({"home": {"city": "Rome"}}, ["home.city", "name"], 0.5),
        ({"tags": ["?", "y"]}, ["tags.1"], 1.0),
        ({"tags": ["?", "y"]}, [["tags", 1], ["tags", 0]], 0.5),
        ({"home": {"a.b": 1}}, [["home", "a.b"]], 1.0),
        ({"home": "Rome"}, ["home.city"], 0.0),
        ({"tags": []}, ["tags.0"], 0.0),
        (["Ann"], ["name"], 0.0),
        ("Ann", ["name"], 0.0),
        (None, None, 0.0),
    ],
)
def test_json_field_match(output: object, fields: Any, value: float) -> None:
    assert scored("json_field_match", PERSON, output, fields=fields).value == value


def test_json_field_match_tells_each_field() -> None:
    score = scored("json_field_match", '{"a": 1, "b": "x", "c": null}', {"a": True, "b": "x"})
    assert score.metrics == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert score.feedback == "a: expected 1, found true; c: expected null, found no such field"


def test_fields_whose_keys_hold_dots_keep_their_own_names() -> None:
    gold = {"a": {"b": 1}, "a.b": 2, "c": {"d.e": 3}}
    score = scored("json_field_match", gold, {"a": {"b": 1}}, fields=["a.b", ["a.b"], ["c", "d.e"]])
    assert score.metrics == {"a.b": 1.0, '["a.b"]': 0.0, '["c", "d.e"]': 0.0}


@pytest.mark.parametrize("fields", ["name", [], [""], ["a..b"], [[]], [[1.5]], [None], {"name": 1}, 5])
def test_fields_are_a_list_of_paths(fields: Any) -> None:
    with pytest.raises(OptionError, match="fields"):
        rewards.json_field_match(fields=fields)


@pytest.mark.parametrize(
    ("gold", "fields"),
    [("words", None), ({}, None), ([0], None), (3, None), ('"text"', None), ({"a": 1}, ["b"]), ({"a": 1}, ["a.b"])],
)
def test_a_gold_without_the_fields_is_refused(gold: object, fields: Any) -> None:
    with pytest.raises(ContractError, match=r"task 't1'.*'gold'"):
        scored("json_field_match", gold, "{}", fields=fields)


@pytest.mark.parametrize(
    ("name", "gold", "output", "words"),
    [
        ("exact_match", "Paris", "London", 'expected exactly "Paris", found "London"'),
        ("exact_match", ["a", "b"], "c", 'expected exactly one of "a", "b", found "c"'),
        ("contains", "Paris", "London", 'expected the output to contain "Paris", found "London"'),
        ("last_number", 3, "so it is 1,005", 'expected the number "3", found "1,005" as the last number'),
        ("last_number", 3, "no idea", 'expected the number "3", found no number in "no idea"'),
        ("set_match", ["a", "b"], "b, c", 'missing: "a"; not expected: "c"'),
        ("set_match", ["a", "b"], "b", 'missing: "a"; not expected: nothing'),
        (
            "f1_match",
            "tall tower",
            "red tower",
            'expected "tall tower", found "red tower"; missing words: "tall"; needless words: "red"',
        ),
        ("json_field_match", {"a": 1}, "none", 'expected a JSON object with "a", found "none"'),
        ("json_field_match", {"a": 1}, {"a": "1"}, 'a: expected 1, found "1"'),
    ],
)
def test_feedback_says_what_was_expected_and_found(name: str, gold: object, output: object, words: str) -> None:
    assert scored(name, gold, output).feedback == words

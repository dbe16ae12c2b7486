from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import ContractError, OptionError, ProposalError
from adescent.evolvable import State, changed
from adescent.refs import Ref, Resolver
from adescent.strategies import AppendRules, KeyedRules

TEXTS = st.text(st.sampled_from("ab:-* \n\t\r\u00e9e\u0301•."), max_size=12)
HEADERS = st.sampled_from(["", "Rules", "# Rules\n\nFollow them."])


def grown(strategy: AppendRules | KeyedRules, state: Any, proposal: Any) -> State:
    return changed(state, strategy.to_diff(state, proposal, "rules").ops)


# Rules by content -----------------------------------------------------------------------------------------------------


def test_rules_are_rendered_in_the_order_they_came() -> None:
    strategy = AppendRules(header="# Rules")
    state = grown(strategy, {}, "zebra first")
    state = grown(strategy, state, ["apple next", "then\nboth lines"])
    assert strategy.render(state) == "# Rules\n\n- zebra first\n- apple next\n- then\n  both lines"


def test_nothing_to_list_renders_the_header_alone() -> None:
    assert AppendRules(header="# Rules").render({}) == "# Rules"
    assert AppendRules().render({}) == ""


@pytest.mark.parametrize("same", ["  Be brief.  ", "- Be brief.", "* - Be brief.\n", "Be brief.\r\n"])
def test_the_same_rule_is_never_held_twice(same: str) -> None:
    state = AppendRules().initial("Be brief.")
    assert AppendRules().to_diff(state, same, "rules").ops == {}


def test_unicode_forms_are_one_rule() -> None:
    state = AppendRules().initial("caf\u00e9")
    assert AppendRules().to_diff(state, "cafe\u0301", "rules").ops == {}


def test_a_rule_is_removed_by_text_or_key_and_replaced_in_one_proposal() -> None:
    strategy = AppendRules()
    state = strategy.initial("one\ntwo\nthree")
    key = next(iter(state))
    smaller = grown(strategy, state, {"remove": [key, "- three"], "add": "four"})
    assert list(smaller.values()) == ["two", "four"]


def test_removing_and_adding_one_rule_changes_nothing() -> None:
    state = AppendRules().initial("one")
    assert AppendRules().to_diff(state, {"remove": "one", "add": "one"}, "rules").ops == {}


def test_removing_what_is_not_there_is_a_failed_proposal() -> None:
    with pytest.raises(ProposalError, match="no rule 'two'"):
        AppendRules().to_diff(AppendRules().initial("one"), {"remove": "two"}, "rules")


@pytest.mark.parametrize(
    "proposal", [1, None, [1], {"delete": "one"}, {"add": 3}, {"add": {"a": "b"}}, b"one", {1: "a"}]
)
def test_append_rules_says_what_it_takes(proposal: Any) -> None:
    with pytest.raises(ContractError, match="AppendRules takes") as raised:
        AppendRules().to_diff({}, proposal, "rules")
    assert not isinstance(raised.value, ProposalError)


@given(HEADERS, st.lists(TEXTS, max_size=5))
def test_what_append_rules_renders_can_start_another_run(header: str, rules: list[str]) -> None:
    strategy = AppendRules(header=header)
    state = grown(strategy, {}, rules)
    assert list(strategy.initial(strategy.render(state)).items()) == list(state.items())
    assert strategy.initial(state) == state


@given(TEXTS, TEXTS)
def test_one_key_never_means_two_rules(one: str, other: str) -> None:
    first, second = grown(AppendRules(), {}, one), grown(AppendRules(), {}, other)
    assert all(second.get(key, rule) == rule for key, rule in first.items())


# Rules by name --------------------------------------------------------------------------------------------------------


def test_lines_and_mappings_mean_the_same() -> None:
    strategy = KeyedRules()
    state = strategy.initial({"old": "goes", "kept": "stays"})
    lines = "- new: one: two\n  and more\n* kept: stays\n\nold:"
    mapping = {"new": " one: two\nand more", "kept": "stays", "old": None}
    for proposal in (lines, mapping):
        assert strategy.to_diff(state, proposal, "rules").ops == {"new": "one: two\nand more", "old": None}


def test_removing_a_name_that_is_not_there_changes_nothing() -> None:
    assert KeyedRules().to_diff({}, {"gone": None}, "rules").ops == {}


def test_keyed_rules_render_as_named_items() -> None:
    state = {"b": "first", "a": "second\nline"}
    assert KeyedRules(header="Routes").render(state) == "Routes\n\n- b: first\n- a: second\n  line"


@pytest.mark.parametrize(
    "proposal",
    [
        "no colon here",
        ": no name",
        "fine: rule\nSure, here you go",
        {"a:b": "x"},
        {"a\nb": "x"},
        {" ": "x"},
        {"a": " "},
    ],
)
def test_a_malformed_rule_is_a_failed_proposal(proposal: Any) -> None:
    with pytest.raises(ProposalError):
        KeyedRules().to_diff({}, proposal, "rules")


@pytest.mark.parametrize("proposal", [1, None, ["a: b"], {1: "a"}, {"a": 1}, {"a": ["b"]}])
def test_keyed_rules_say_what_they_take(proposal: Any) -> None:
    with pytest.raises(ContractError, match="KeyedRules takes") as raised:
        KeyedRules().to_diff({}, proposal, "rules")
    assert not isinstance(raised.value, ProposalError)


@given(HEADERS, st.dictionaries(TEXTS, TEXTS, max_size=5))
def test_what_keyed_rules_render_can_start_another_run(header: str, rules: dict[str, str]) -> None:
    strategy = KeyedRules(header=header)
    try:
        state = grown(strategy, {}, rules)
    except ProposalError:
        return
    assert list(strategy.initial(strategy.render(state)).items()) == list(state.items())


# Both -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [AppendRules(max_rules=2), KeyedRules(max_rules=2)])
def test_too_many_rules_are_invalid(strategy: AppendRules | KeyedRules) -> None:
    assert strategy.violation({"a": "1", "b": "2"}) == ""
    assert "3 rules where 2" in strategy.violation({"a": "1", "b": "2", "c": "3"})


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3"])
@pytest.mark.parametrize("kind", [AppendRules, KeyedRules])
def test_a_limit_is_a_positive_whole_number(kind: Any, limit: Any) -> None:
    with pytest.raises(OptionError, match="max_rules"):
        kind(max_rules=limit)


@pytest.mark.parametrize("start", [3, ["a: b"], b"a: b"])
@pytest.mark.parametrize("strategy", [AppendRules(), KeyedRules()])
def test_another_start_is_refused(strategy: Any, start: Any) -> None:
    with pytest.raises(ContractError, match="starts from"):
        strategy.initial(start)


@pytest.mark.parametrize("strategy", [AppendRules(), KeyedRules()])
def test_starts_without_a_rule(strategy: AppendRules | KeyedRules) -> None:
    assert strategy.initial(None) == {}


def test_a_ref_names_a_strategy_with_its_options() -> None:
    made = Resolver().resolve(Ref("adescent.strategies.rules:AppendRules", {"header": "Rules", "max_rules": 5}))
    assert made == AppendRules(header="Rules", max_rules=5)
    assert repr(made) == repr(AppendRules(header="Rules", max_rules=5)) != repr(AppendRules())


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("- one\n- two", ["one", "two"]),
        ("1. one\n2) two\n   more of two", ["one", "two\n   more of two"]),
        ("* one\nstill one\n\n* two", ["one\nstill one", "two"]),
        ("one\n- not a list\n- as a whole", ["one\n- not a list\n- as a whole"]),
        ("- one", ["one"]),
    ],
)
def test_a_text_that_is_written_as_a_list_is_several_rules(text: str, rules: list[str]) -> None:
    strategy = AppendRules()
    state = strategy.to_diff({}, text, "a").ops
    assert list(state.values()) == rules
    assert strategy.to_diff({}, rules, "a").ops == state

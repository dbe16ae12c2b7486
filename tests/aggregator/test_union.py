from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adescent.aggregator.union import Union
from adescent.evolvable import changed

BASE = {"text": "one\ntwo\nthree\nfour\nfive", "other": "x"}


def test_disjoint_and_equal_ops_add_up(card: Any) -> None:
    union = Union([card(BASE, a="1"), card(BASE, b="2", a="1"), card(BASE, other=None)])
    assert union.ops == {"a": "1", "b": "2", "other": None}
    assert union.diff("a").ops == union.ops


def test_texts_changed_in_different_lines_are_merged(card: Any) -> None:
    union = Union([card(BASE, text="ONE\ntwo\nthree\nfour\nfive"), card(BASE, text="one\ntwo\nthree\nfour\nFIVE")])
    assert union.ops == {"text": "ONE\ntwo\nthree\nfour\nFIVE"}
    assert union.add(card(BASE, text="one\ntwo\nTHREE\nfour\nfive")) == ()
    assert union.ops == {"text": "ONE\ntwo\nTHREE\nfour\nFIVE"}


def test_a_contradiction_takes_nothing_and_names_the_keys(card: Any) -> None:
    first, second = card(BASE, a="1", text="ONE\ntwo\nthree\nfour\nfive"), card(BASE, b="2")
    union = Union([first, second])
    newcomer = card(BASE, a="2", b="2", c="3", text="1\ntwo\nthree\nfour\nfive")
    assert union.add(newcomer) == ("a", "text")
    assert union.ops == {"a": "1", "text": "ONE\ntwo\nthree\nfour\nfive", "b": "2"}
    assert union.opponents(newcomer, ("a", "text")) == (first,)
    assert union.without([first]).ops == {"b": "2"}


def test_only_those_who_really_disagree_are_opponents(card: Any) -> None:
    first, last = card(BASE, text="ONE\ntwo\nthree\nfour\nfive"), card(BASE, text="one\ntwo\nthree\nfour\nFIVE")
    newcomer = card(BASE, text="one\ntwo\nthree\nfour\n5")
    union = Union([first, last])
    assert union.opponents(newcomer, union.add(newcomer)) == (last,)


def test_texts_of_different_bases_and_deletions_are_not_merged(card: Any) -> None:
    union = Union([card(BASE, text="ONE\ntwo\nthree\nfour\nfive")])
    assert union.add(card({"text": "another base"}, text="one\ntwo\nthree\nfour\nFIVE")) == ("text",)
    assert union.add(card(BASE, text=None)) == ("text",)
    assert union.add(card({}, text="new")) == ("text",)


ops = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([None, "1", "2", "l1\n=\nl3", "L1\n=\nl3", "l1\n=\nL3"]))


@given(edits=st.lists(ops, max_size=6))
def test_every_card_of_a_union_is_in_it_and_no_other(card: Any, edits: list[dict[str, str | None]]) -> None:
    base = dict.fromkeys("abcd", "l1\n=\nl3")
    union, out = Union(), 0
    for edit in edits:
        out += bool(union.add(card(base, **edit)))
    assert len(union.cards) == len(edits) - out
    assert union.ops.keys() == {key for taken in union.cards for key in taken.diff.ops}
    for taken in union.cards:
        for key, value in taken.diff.ops.items():
            # Equal, or merged from different lines: every line the card changed is there.
            lines = zip(
                (value or "").split("\n"), base[key].split("\n"), (union.ops[key] or "").split("\n"), strict=False
            )
            assert union.ops[key] == value or all(new in (old, got) for new, old, got in lines)
    assert changed(base, union.ops) == changed(changed(base, union.ops), union.ops)


def test_texts_that_agree_only_in_pairs_are_in_each_others_way(card: Any) -> None:
    base = {"x": "x\nx\na\na"}
    first, second, third = (card(base, x=text) for text in ("x\nx\na", "b\nx\nx\na\na", "b\nx\nb\na\na"))
    assert len(Union([first, third]).cards) == len(Union([second, third]).cards) == 2
    union = Union([first, second])
    assert union.opponents(third, union.add(third)) == (first, second)


def test_a_text_of_another_base_is_not_merged_even_where_it_could_be(card: Any) -> None:
    union = Union([card(BASE, text="ONE\ntwo\nthree\nfour\nfive")])
    newer = {"text": "ONE\ntwo\nthree\nfour\nfive"}
    assert union.add(card(newer, text="ONE\ntwo\nthree\nfour\nFIVE")) == ("text",)

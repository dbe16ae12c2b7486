from __future__ import annotations

import random
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent import textmerge
from adescent.textmerge import Merge, merge_lines

# Few different lines, so that they repeat and touch; line ends of all kinds, and a last line with or without one.
texts = st.lists(st.sampled_from(["a", "b", "c", "", "\r", "d\r", "\x0b", "\u2028"]), max_size=12).map("\n".join)

CONFLICT = Merge(None, 1)


def lines(*items: str) -> str:
    return "\n".join(items)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        pytest.param("a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC", id="different lines"),
        pytest.param("a\nb\n", "A\nb\n", "a\nb\nc\n", "A\nb\nc\n", id="a change and a line more"),
        pytest.param("a\nb", "A\nb", "a\nb\nc", "A\nb\nc", id="a line more where no line feed ends the text"),
        pytest.param("a\nb", "x\na\nb", "a\nb\ny", "x\na\nb\ny", id="a line more at either end"),
        pytest.param("a\nb\nc\nd", "b\nc\nd", "a\nb\nc", "b\nc", id="a line less at either end"),
        pytest.param("a\nb\nc", "A\nb\nc\nx", "A\nb\nc", "A\nb\nc\nx", id="the same change on both sides, once"),
        pytest.param("a\nb\nc\nd\ne", "A\nb\nc\nd\nE", "A\nb\nC\nd\ne", "A\nb\nC\nd\nE", id="one alike, one each"),
        pytest.param("a\nb\nc\n", "A\nb\nc\n", "a\nb\nc", "A\nb\nc", id="the last line feed goes"),
        pytest.param("a\nb\nc", "A\nb\nc", "a\nb\nc\n", "A\nb\nc\n", id="a last line feed comes"),
        pytest.param("a\r\nb\r\nc\n", "A\r\nb\r\nc\n", "a\r\nb\r\nC\n", "A\r\nb\r\nC\n", id="mixed line ends stay"),
        pytest.param("a\nb\nc", "a\r\nb\nc", "a\nb\nC", "a\r\nb\nC", id="a line end is a change like another"),
    ],
)
def test_independent_changes_are_merged(base: str, ours: str, theirs: str, merged: str) -> None:
    assert merge_lines(base, ours, theirs) == merge_lines(base, theirs, ours) == Merge(merged, 0)


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param("a", "b", "c", id="the same line"),
        pytest.param("a\nb", "A\nb", "a\nB", id="neighbouring lines"),
        pytest.param("a\nb\nc", "a\nx\nb\nc", "a\nB\nc", id="a line more beside a change"),
        pytest.param("a\nb", "a\nx\nb", "a\ny\nb", id="different lines more at one place"),
        pytest.param("a\nb\nc", "a\nc", "a\nB\nc", id="deleted here, changed there"),
        pytest.param("a\nb\nc\nd", "A\nB\nc\nd", "A\nb\nc\nd", id="half of it alike"),
        pytest.param("", "x", "y", id="both begin a text"),
        pytest.param("a\nb\n", "a\r\nb\r\n", "A\nb\n", id="all line ends against one line"),
    ],
)
def test_changes_without_an_untouched_line_between_them_conflict(base: str, ours: str, theirs: str) -> None:
    assert merge_lines(base, ours, theirs) == merge_lines(base, theirs, ours) == CONFLICT


def test_every_conflict_counts() -> None:
    assert merge_lines("a\nb\nc\nd\ne", "1\nb\nC\nd\n2", "3\nb\nc\nd\n4") == Merge(None, 2)


@given(texts, texts)
def test_a_side_that_did_nothing_or_the_same_changes_nothing(base: str, changed: str) -> None:
    assert merge_lines(base, base, changed) == Merge(changed, 0)
    assert merge_lines(base, changed, base) == Merge(changed, 0)
    assert merge_lines(base, changed, changed) == Merge(changed, 0)


@given(texts, texts, texts)
def test_the_sides_are_treated_alike_and_there_is_a_text_or_a_conflict(base: str, ours: str, theirs: str) -> None:
    merge = merge_lines(base, ours, theirs)
    assert merge == merge_lines(base, theirs, ours)
    assert (merge.text is None) == (merge.conflicts > 0)


@given(texts, texts, texts)
def test_a_merge_invents_no_line(base: str, ours: str, theirs: str) -> None:
    if (text := merge_lines(base, ours, theirs).text) is not None:
        assert set(text.split("\n")) <= set(ours.split("\n")) | set(theirs.split("\n"))


edits = st.sampled_from(["keep", "replace", "delete", "insert before"])


def edited(base: list[str], plan: dict[int, str], author: str) -> str:
    result: list[str] = []
    for i, line in enumerate(base):
        edit = plan.get(i, "keep")
        new = [f"{author} {i}"] if edit in {"replace", "insert before"} else []
        result += new if edit in {"replace", "delete"} else [*new, line]
    return "\n".join(result)


@given(st.lists(st.tuples(st.booleans(), edits), min_size=1, max_size=30), st.booleans())
def test_edits_two_lines_apart_are_all_there(plan: list[tuple[bool, str]], repeating: bool) -> None:
    # Every third line may be edited, by one side each; lines in between that are all alike must not confuse anything.
    base = ["" if repeating and i % 3 else f"line {i}" for i in range(3 * len(plan) + 1)]
    ours = {3 * i: edit for i, (mine, edit) in enumerate(plan) if mine}
    theirs = {3 * i: edit for i, (mine, edit) in enumerate(plan) if not mine}
    everything = edited(base, ours | theirs, "author")
    assert merge_lines(
        base="\n".join(base), ours=edited(base, ours, "author"), theirs=edited(base, theirs, "author")
    ) == Merge(everything, 0)


@given(texts, texts)
def test_an_alignment_is_an_ordered_selection_of_equal_lines(base_text: str, side_text: str) -> None:
    base, side = base_text.split("\n"), side_text.split("\n")
    i = j = 0
    for start, other, size in textmerge._equal_runs(base, side):
        assert start >= i
        assert other >= j
        assert base[start : start + size] == side[other : other + size]
        i, j = start + size, other + size
    assert i <= len(base)
    assert j <= len(side)


def hard_texts() -> dict[str, tuple[str, str, str]]:
    """Texts of 32 000 characters that a search without bounds aligns in minutes or hours."""
    draw = random.Random(0)
    same = ["x"] * 16_000
    twice = [chr(0x4E00 + i // 2) for i in range(16_000)]
    few = [[draw.choice("abcdef") for _ in same] for _ in range(3)]
    return {
        "one line repeated": (lines(*same), lines("a", *same[2:], "a"), lines("b", *same[4:], "b")),
        "empty lines": ("\n" * 32_000, "a" + "\n" * 31_990 + "b", "b" + "\n" * 31_980 + "c"),
        "a few kinds of line": (lines(*few[0]), lines(*few[1]), lines(*few[2])),
        "each line twice": (lines(*twice), lines(*twice[::-1]), lines("a", *twice[100:], *twice[:99])),
    }


@pytest.mark.parametrize("name", hard_texts())
def test_the_search_for_an_alignment_is_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    search = SequenceMatcher.find_longest_match

    def counting(matcher: Any, start: int, stop: int, *others: int) -> Any:
        nonlocal looked_at
        looked_at += sum(1 + len(matcher.b2j.get(line, ())) for line in matcher.a[start:stop])
        return search(matcher, start, stop, *others)

    monkeypatch.setattr(SequenceMatcher, "find_longest_match", counting)
    base, ours, theirs = hard_texts()[name]
    assert merge_lines(base, ours, theirs).text is None
    assert looked_at <= 2 * textmerge._MOST_COMPARISONS


def test_a_long_text_of_different_lines_is_merged_in_full() -> None:
    base = [chr(0x4E00 + i) for i in range(16_000)]
    ours, theirs = dict.fromkeys(range(0, 16_000, 4), "replace"), dict.fromkeys(range(2, 16_000, 4), "replace")
    merge = merge_lines(lines(*base), edited(base, ours, ""), edited(base, theirs, ""))
    assert merge == Merge(edited(base, ours | theirs, ""), 0)

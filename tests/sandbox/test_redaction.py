"""The values of secrets, wherever they turn up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.sandbox import Redactor


def redactor(**values: str) -> Redactor:
    return Redactor.of(values, values)


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        ({"KEY": "hunter22"}, "the key is hunter22.", "the key is «KEY»."),
        ({"KEY": "hunter22"}, "hunter22hunter22", "«KEY»«KEY»"),
        # One value holds another: the longer one is named, and no rest of it stays.
        ({"SHORT": "hunt", "LONG": "hunter22"}, "hunter22 hunt hunter", "«LONG» «SHORT» «SHORT»er"),
        # They overlap: no character of either stays, and the longer one is named.
        ({"ONE": "abcdef", "TWO": "defgh"}, "-abcdefgh-", "-«ONE»-"),
        ({"ONE": "abcde", "TWO": "defghi"}, "-abcdefghi-", "-«TWO»-"),
        ({"ONE": "abcd", "TWO": "cdef", "SIX": "efgh"}, "-abcdefgh-", "-«ONE»-"),
        ({"SELF": "aaaa"}, "-aaaaaa-", "-«SELF»-"),
        # Side by side is not overlapping.
        ({"ONE": "abcd", "TWO": "efgh"}, "abcdefgh", "«ONE»«TWO»"),
        ({"EMPTY": "", "TINY": "abc"}, "abc", "abc"),
        ({"ONE": "same value", "TWO": "same value"}, "same value", "«ONE»"),
        ({"KEY": "a\nb"}, "a\nb", "a\nb"),
        ({"KEY": "a\n\nb"}, "x a\n\nb y", "x «KEY» y"),
    ],
)
def test_a_value_becomes_its_name(values: dict[str, str], text: str, expected: str) -> None:
    assert redactor(**values).text(text) == expected


PEM = "-----BEGIN KEY-----\r\nMIIEvQIBADANBgkq\r\nshort\r\n-----END KEY-----\r\n"


def test_of_a_value_of_several_lines_the_long_ones_count_alone() -> None:
    secret = redactor(PEM=PEM)
    assert secret.text(PEM) == "«PEM»"
    assert secret.text("line 2: MIIEvQIBADANBgkq") == "line 2: «PEM»"
    assert secret.text("all is short today") == "all is short today"


@pytest.mark.parametrize("value", ['quo"ted\\back', "line one\nline two", "Schlüssel\twort", "it's 'quoted'"])
@pytest.mark.parametrize("written", [json.dumps, repr, lambda value: json.dumps(value, ensure_ascii=False)])
def test_a_value_is_found_as_programs_write_it(value: str, written: Any) -> None:
    assert redactor(KEY=value).text(f"got {written([value])}").count("«KEY»") == 1


def test_names_that_are_not_set_count_for_nothing() -> None:
    nothing = Redactor.of(["MISSING", "EMPTY"], {"EMPTY": "", "OTHER": "not asked for"})
    assert not nothing
    assert nothing.text("not asked for") == "not asked for"


def test_nothing_to_redact_costs_nothing() -> None:
    nothing = Redactor.of([], {})
    value = {"deep": [{"down": "text"}]}
    assert not nothing
    assert nothing.json(value) is value
    text = "text"
    assert nothing.text(text) is text
    assert redactor(KEY="hunter22").text(text) is text


def test_json_is_redacted_at_any_depth_and_in_its_keys() -> None:
    secret = redactor(KEY="hunter22")
    value = {"a hunter22": ["hunter22", {"b": ("x", "hunter22!"), "hunter22": None}], "n": 1.5, "yes": True}
    expected = {"a «KEY»": ["«KEY»", {"b": ["x", "«KEY»!"], "«KEY»": None}], "n": 1.5, "yes": True}
    assert secret.json(value) == expected
    assert secret.json("hunter22") == "«KEY»"


def test_keys_that_only_a_value_told_apart_are_both_kept() -> None:
    found = redactor(PEM="first line here\nsecond line here").json({"first line here": 1, "second line here": 2})
    assert sorted(found.values()) == [1, 2]
    assert all("line here" not in key for key in found)


PIECES = st.text("abc", max_size=8)


@given(st.lists(PIECES, max_size=4), st.lists(PIECES, max_size=8))
def test_no_value_is_left_and_nothing_else_is_lost(values: list[str], around: list[str]) -> None:
    named = {f"N{number}": value for number, value in enumerate(values)}
    secret = Redactor.of(named, named)
    text = "".join(piece for pair in zip(around, [*values, *around], strict=False) for piece in pair)
    found = secret.text(text)
    looked_for = [value for value in values if len(value) >= 4]
    assert not any(value in found for value in looked_for)
    assert secret.text(found) == found
    if not any(value in text for value in looked_for):
        assert found == text
    # Every letter that stays was in no value, in its old order.
    covered = {at for value in looked_for for at in _positions(text, value)}
    kept = "".join(letter for at, letter in enumerate(text) if at not in covered)
    assert "".join(letter for letter in found if letter in "abc") == kept


def _positions(text: str, value: str) -> set[int]:
    starts = (start for start in range(len(text)) if text.startswith(value, start))
    return {start + offset for start in starts for offset in range(len(value))}

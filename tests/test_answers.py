"""Reading answers: which number formats count, and that nothing a model writes breaks the reader."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adescent.answers import items_in, json_in, last_number_in, normal_text, same_json, squad_words, text_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", "42"),
        ("The answer is 42.", "42"),
        ("first 1, then 2", "2"),
        ("...42", "42"),
        ("答案是42", "42"),
        ("**42**", "42"),
        ("\\boxed{42}", "42"),
        ("$42$", "42"),
        ("#### 18", "18"),
        ("5km", "5"),
        # thousands and decimals
        ("1,234.5", "1234.5"),
        ("1,234,567", "1234567"),
        ("[1,234]", "1234"),
        ("3,4", "4"),
        ("1,234,56", "56"),
        (".5", "0.5"),
        ("3.14", "3.14"),
        ("0.10", "0.1"),
        ("7.", "7"),
        # signs
        ("-3", "-3"),
        ("+3", "3"),
        ("\u22123", "-3"),
        ("-.5", "-0.5"),
        ("5-3", "3"),
        ("10\u201320", "20"),
        ("- 5", "5"),
        ("x = -7", "-7"),
        # exponents
        ("1e3", "1000"),
        ("1E-3", "0.001"),
        ("2.5e+2", "250"),
        # money and percentages
        ("$5", "5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("US$5", "5"),
        ("€1,000.50", "1000.5"),
        ("£7", "7"),
        ("50%", "50"),
        ("50 %", "50"),
        # fractions
        ("3/4", "3/4"),
        ("-3/4", "-3/4"),
        ("1 3/4", "7/4"),
        ("2024 3/4", "3/4"),
        ("6/3 = 2", "2"),
        ("\\frac{3}{4}", "3/4"),
        ("$-\\dfrac{1}{2}$", "-1/2"),
        ("5/0", "0"),
        ("2024/05/06", "6"),
        ("2024/5/6", "6"),
        ("3/4.5", "4.5"),
        # digits that are no number
        ("about 3 of x2", "3"),
        ("2 in version 1.2.3", "1.2"),
    ],
)
def test_the_last_number(text: str, value: str) -> None:
    number = last_number_in(text)
    assert number is not None
    assert number.value == Fraction(value)


@pytest.mark.parametrize("text", ["", "none", "x2", "forty-two", "H2O", "٣", "１２", "1" * 5000, "-", "$", "/", "%"])
def test_no_number(text: str) -> None:
    assert last_number_in(text) is None


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "{:+}", "{:+,}", "{}.", "={}%"]))
def test_an_integer_is_read_as_it_is_written(value: int, form: str) -> None:
    number = last_number_in("so, after 3 steps: " + form.format(value))
    assert number is not None
    assert number.value == value


@given(st.floats(-1e15, 1e15, allow_subnormal=False))
def test_a_float_is_read_as_it_is_written(value: float) -> None:
    number = last_number_in(f"it is {value!r}")
    assert number is not None
    assert float(number.value) == value


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_is_its_quotient(top: int, bottom: int) -> None:
    number = last_number_in(f"it is {top}/{bottom}")
    assert number is not None
    assert number.value == Fraction(top, bottom)


@given(st.text(alphabet="0123456789.,/-+$%eE x\\frac{}\u2212\n", max_size=40))
def test_any_text_is_read_without_an_error(text: str) -> None:
    number = last_number_in(text)
    assert number is None or last_number_in(f"it is {number.written}") is not None


def test_a_huge_exponent_builds_no_huge_number() -> None:
    number = last_number_in("1e999999999")
    assert number is not None
    assert number.value == 1


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, ""),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (["a", 1], '["a", 1]'),
        ({"b": 1, "a": "é"}, '{"a": "é", "b": 1}'),
        (float("nan"), None),
        (b"bytes", None),
        ({1, 2}, None),
        (object(), None),
        ({"a": object()}, None),
    ],
)
def test_an_output_as_text(output: object, text: str | None) -> None:
    assert text_of(output) == text


def test_an_output_that_holds_itself_or_nests_without_end_is_no_text() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert text_of(loop) is None
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert text_of(deep) is None


def test_normal_text() -> None:
    assert normal_text(" Cafe\u0301\t\n au  lait. ", ignore_case=False) == "Caf\u00e9 au lait."
    assert normal_text("STRASSE", ignore_case=True) == normal_text("Straße", ignore_case=True)
    assert normal_text("a.b, c!", ignore_case=True, ignore_punctuation=True) == "ab c"


@given(st.text(), st.booleans(), st.booleans())
@example("C:\u0327", False, True)  # without the colon the two compose
@example("\u037e", False, True)  # composes to a semicolon
def test_normal_text_stays_as_it_is(text: str, ignore_case: bool, ignore_punctuation: bool) -> None:
    once = normal_text(text, ignore_case=ignore_case, ignore_punctuation=ignore_punctuation)
    assert normal_text(once, ignore_case=ignore_case, ignore_punctuation=ignore_punctuation) == once


def test_squad_words() -> None:
    assert squad_words("The cat, a CAT; an anthem!") == {"cat": 2, "anthem": 1}


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ([1], [1]),
        ("3", 3),
        ('Sure:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('```json\n{"a": 1}\n```\nbetter:\n```json\n{"a": 2}\n```', {"a": 2}),
        ('```json\n{"a": 1}\n```\n```python\nprint()\n```', {"a": 1}),
    ],
)
def test_json_is_found(output: object, value: object) -> None:
    assert json_in(output) == value


@pytest.mark.parametrize(
    "output",
    [None, "", "words", "{'a': 1}", "NaN", '{"a": Infinity}', "[" * 100_000, "1" * 5000, b"{}", "```json\n{\n```"],
)
def test_no_json_is_a_value_error(output: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_in(output)


@pytest.mark.parametrize(
    ("output", "items"),
    [
        (["a", "b"], ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('```json\n["a", "b, c"]\n```', ["a", "b, c"]),
        ("a, b; c\nd", ["a", "b", "c", "d"]),
        ("- a\n* b\n1. c\n2) d", ["a", "b", "c", "d"]),
        ("'a', \"b\", `c`", ["a", "b", "c"]),
        (", ,\n", []),
        ("", []),
        (None, []),
        ([1, True, {"a": 1}, ""], ["1", "true", '{"a": 1}']),
        (3, ["3"]),
        ("3.5", ["3.5"]),
        ("-3", ["-3"]),
    ],
)
def test_items(output: object, items: list[str]) -> None:
    assert items_in(output) == items


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (1, "1", False),
        (None, False, False),
        ([1, 2], (1, 2), True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": 1, "b": [True]}, {"b": [True], "a": 1}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([], {}, False),
    ],
)
def test_equality_of_json(one: object, other: object, same: bool) -> None:
    assert same_json(one, other) is same
    assert same_json(other, one) is same


@given(json_values)
def test_a_json_value_equals_what_it_is_read_back_as(value: object) -> None:
    if value is not None and not isinstance(value, str):
        assert same_json(json_in(text_of(value)), value)

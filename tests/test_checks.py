from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import pytest

from adescent.checks import is_duration, is_number, is_whole, need_share, need_whole, shown
from adescent.errors import ContractError, OptionError


class Size(IntEnum):
    SMALL = 3


@pytest.mark.parametrize("value", [0, -1, 2.5, math.inf, math.nan, Size.SMALL, 10**308, -(10**308)])
def test_numbers(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, False, None, "1", b"1", 1j, [1]])
def test_what_is_none(value: Any) -> None:
    assert not is_number(value)
    assert not is_whole(value)


@pytest.mark.parametrize(
    ("value", "passes"), [(1, True), (1e-9, True), (0, False), (-1, False), (math.inf, False), (math.nan, False)]
)
def test_a_duration_passes(value: Any, passes: bool) -> None:
    assert is_duration(value) == passes


def test_an_int_that_no_float_can_hold_is_a_whole_number_and_no_number_to_calculate_with() -> None:
    for value in (10**400, -(10**400)):
        assert not is_number(value)
        assert is_whole(value)


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("value", "words"),
    [("x" * 80, "'" + "x" * 59), (10**5000, "a int"), (Unspeakable(), "a Unsp")],
    ids=["long", "too long for Python", "unspeakable"],
)
def test_whatever_was_given_can_be_shown(value: Any, words: str) -> None:
    assert shown(value).startswith(words)
    assert len(shown(value)) <= 60


def test_whole_numbers_have_a_least_one() -> None:
    assert is_whole(-5)
    assert is_whole(3, 3)
    assert is_whole(Size.SMALL, 1)
    assert not is_whole(2, 3)
    assert not any(is_whole(value) for value in (2.0, math.nan, math.inf))


def test_the_message_says_what_was_given_and_what_may_be() -> None:
    need_whole("size", 1, 1, OptionError)
    with pytest.raises(OptionError, match=r"^size=0 must be a whole number of at least 1\.$"):
        need_whole("size", 0, 1, OptionError)
    with pytest.raises(ContractError, match=r"^Box\(size='x{59}\) must be a whole number of at least 2, or None\.$"):
        need_whole("size", "x" * 80, 2, ContractError, of="Box", otherwise=", or None")


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, True, None, "0.5"])
def test_a_share_is_no_more_than_all(value: Any) -> None:
    need_share("part", 0, ContractError)
    need_share("part", 1.0, ContractError)
    with pytest.raises(ContractError, match=r"^part=.* must lie in \[0, 1\]\.$"):
        need_share("part", value, ContractError)

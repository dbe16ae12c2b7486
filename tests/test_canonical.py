from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.canonical import canonical_json, check_json, digest_of, digest_of_text
from adescent.errors import ContractError, RefError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT
JSON = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_what_passes_comes_back_from_json_as_it_went_in(value: Any) -> None:
    check_json(value, "value")
    again = json.loads(canonical_json(value))
    assert again == value
    assert canonical_json(again) == canonical_json(value)
    assert digest_of(again) == digest_of(value)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_the_order_of_keys_does_not_count(entries: dict[str, Any]) -> None:
    backwards = dict(reversed(entries.items()))
    assert digest_of(backwards) == digest_of(entries)


@given(st.lists(SCALARS, max_size=4), st.lists(SCALARS, max_size=4))
def test_other_json_has_another_digest(one: list[Any], other: list[Any]) -> None:
    same = list(map(type, one)) == list(map(type, other)) and one == other
    assert (digest_of(one) == digest_of(other)) is same


def test_tuples_are_lists_and_any_mapping_is_an_object() -> None:
    frozen: Mapping[str, Any] = MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})
    check_json(frozen, "value")
    assert digest_of(frozen) == digest_of({"a": {"b": [1, 2]}})


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"a": [1, {"b": float("nan")}]}, r"meta\.a\[1\]\.b"),
        ({"a": float("inf")}, r"meta\.a"),
        ({"a": {1: "x"}}, r"meta\.a: the key 1"),
        ({"a": "\ud800"}, r"meta\.a: a lone surrogate"),
        ({"\udfff": 1}, "meta: a lone surrogate"),
        ({"a": 2**63}, r"meta\.a: an integer beyond 64 bits"),
        ({"a": -(2**63) - 1}, r"meta\.a: an integer beyond 64 bits"),
        ({"a": print}, r"meta\.a: a builtin_function_or_method"),
        ({"a": {1, 2}}, r"meta\.a: a set"),
        ({"a": b"bytes"}, r"meta\.a: a bytes"),
        ({"a": [object()]}, r"meta\.a\[0\]: a object"),
    ],
)
def test_what_json_would_change_is_refused_with_its_place(value: Any, field: str) -> None:
    with pytest.raises(RefError, match=field):
        check_json(value, "meta", error=RefError)


def test_an_open_file_is_refused(tmp_path: Any) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(ContractError, match=r"meta\.file: a TextIOWrapper"):
        check_json({"file": file}, "meta")


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ContractError, match="nested deeper"):
        check_json(endless, "value")


@pytest.mark.parametrize("value", ["\ud800", object(), float("nan"), {"a": {1}}])
def test_a_value_that_was_never_checked_raises_our_error(value: Any) -> None:
    with pytest.raises(ContractError):
        digest_of(value)


def test_a_text_has_a_digest_of_its_own_or_our_error() -> None:
    assert digest_of_text("a") != digest_of_text("b") != digest_of_text("b ")
    assert len(digest_of_text("")) == 32
    with pytest.raises(ContractError, match="surrogate"):
        digest_of_text("\ud800")

"""How many values a message holds is known before any is made: nobody's memory is filled by a few bytes."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import WireError
from adescent.executors import wire_values
from adescent.executors.wire import Done, Log, Run, decode, encode
from adescent.executors.wire_values import MAX_VALUES, holds_too_many

LONG = st.sampled_from([0, 1, 31, 32, 255, 256, 65_535, 65_536])
PACKABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(width=32)
    | LONG.map(lambda length: "x" * length)
    | LONG.map(lambda length: b"x" * length)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.sampled_from([0, 1, 2, 4, 8, 16, 17, 300]).map(bytes)),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text(max_size=40), inner, max_size=20)
        | st.builds(lambda item: [item] * 70_000, st.none())
    ),
    max_leaves=10,
)


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + count(item) for item in value.values())
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    return 1


@given(PACKABLE, st.booleans())
def test_all_values_are_counted_and_nothing_else(value: Any, single: bool) -> None:
    data = msgpack.packb(value, use_single_float=single)
    there = count(value)
    with mock.patch.object(wire_values, "MAX_VALUES", there):
        assert not holds_too_many(data)
        assert not holds_too_many(memoryview(data))
    with mock.patch.object(wire_values, "MAX_VALUES", there - 1):
        assert holds_too_many(data)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_walked_to_their_end(data: bytes) -> None:
    with mock.patch.object(wire_values, "MAX_VALUES", 5):
        assert holds_too_many(data) in (True, False)


@pytest.mark.parametrize("filling", [b"\x90", b"\x80", b"\x01", b"\xa2ab", b"\xca\x3f\x80\x00\x01"])
def test_a_message_of_very_many_values_is_refused_before_they_are_made(filling: bytes) -> None:
    many = (16 << 20) // len(filling)
    array = b"\xdd" + many.to_bytes(4, "big") + filling * many
    with pytest.raises(WireError, match=f"more than {MAX_VALUES} values"):
        decode(encode(Done(1, 0.1, "HERE")).replace(b"\xa4HERE", array))


def test_what_holds_very_many_values_is_not_sent() -> None:
    with pytest.raises(WireError, match=f"a Done message holds more than {MAX_VALUES} values: put large data"):
        encode(Done(1, 0.1, [0] * MAX_VALUES))


def test_large_texts_are_few_values() -> None:
    for message in (Log(1, "x" * 10_000_000), Run(1, 1, "digest", "t", "x" * 5_000_000, {"lines": ["x" * 9000] * 500})):
        assert decode(encode(message)) == message

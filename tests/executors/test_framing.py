"""A stream of bytes becomes the same messages however it is cut, and nothing too large is ever kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import WireError
from adescent.executors.framing import MAX_FRAME, FrameDecoder, frame


def framed(*messages: bytes) -> bytes:
    return b"".join(part for message in messages for part in frame(message))


def fed(decoder: FrameDecoder, *pieces: bytes) -> list[bytes]:
    return [bytes(message) for piece in pieces for message in decoder.feed(piece)]


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    messages = draw(st.lists(st.binary(max_size=20), max_size=6))
    stream = framed(*messages)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return messages, [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]


@given(cut_streams())
def test_any_cut_gives_the_same_messages(case: tuple[list[bytes], list[bytes]]) -> None:
    messages, pieces = case
    assert fed(FrameDecoder(), *pieces) == messages


@given(st.lists(st.binary(max_size=9), max_size=4), st.integers(11, 2**32 - 1), st.binary(max_size=9), st.data())
def test_what_came_before_an_oversized_frame_is_had(
    messages: list[bytes], size: int, rest: bytes, data: st.DataObject
) -> None:
    stream = framed(*messages) + size.to_bytes(4, "big") + rest
    cut = data.draw(st.integers(0, len(stream)))
    got: list[bytes] = []
    decoder = FrameDecoder(limit=10)
    with pytest.raises(WireError, match=f"announces {size} bytes"):
        for piece in (stream[:cut], stream[cut:]):
            got.extend(map(bytes, decoder.feed(piece)))
    assert got == messages


def test_the_limit_itself_is_allowed() -> None:
    assert fed(FrameDecoder(limit=3), framed(b"abc")) == [b"abc"]
    assert frame(b"abc", limit=3) == (b"\0\0\0\3", b"abc")
    with pytest.raises(WireError, match="4 bytes is too large"):
        frame(b"abcd", limit=3)


def test_an_oversized_frame_is_refused_by_its_header_alone() -> None:
    with pytest.raises(WireError, match="the limit is"):
        fed(FrameDecoder(), (MAX_FRAME + 1).to_bytes(4, "big"))


def test_a_message_that_has_not_ended_is_none() -> None:
    assert fed(FrameDecoder(), framed(b"abc")[:-1]) == []


def test_a_message_that_arrives_whole_is_not_copied() -> None:
    stream = framed(b"a", b"b" * 1000)
    messages = list(FrameDecoder().feed(stream))
    assert [message.obj for message in messages] == [stream, stream]


def test_what_was_handed_out_does_not_change() -> None:
    decoder = FrameDecoder()
    first = [*decoder.feed(framed(b"abc")[:5]), *decoder.feed(framed(b"abc")[5:])]
    assert fed(decoder, framed(b"xyz")) == [b"xyz"]
    assert list(map(bytes, first)) == [b"abc"]


def test_a_large_message_in_small_pieces_takes_time_in_proportion() -> None:
    # To copy what has come with every piece would be to move a terabyte: the suite would stand still here.
    message = bytes(50 * 2**20)
    stream, decoder = memoryview(framed(message)), FrameDecoder()
    pieces = (bytes(stream[start : start + 2**10]) for start in range(0, len(stream), 2**10))
    assert [len(found) for piece in pieces for found in decoder.feed(piece)] == [len(message)]

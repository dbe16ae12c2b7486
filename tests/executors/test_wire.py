"""Messages survive the way, and nothing else gets through: no other type, no missing or foreign key, no non-JSON."""

from __future__ import annotations

from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.canonical import check_json
from adescent.errors import ContractError, WireError
from adescent.executors import wire
from adescent.executors.wire import Done, Failed, Hello, Job, Log, Message, Ready, Run, decode, encode, plain

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
# What msgpack can carry, and more of it than JSON can.
PACKABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | TEXT
    | st.binary(max_size=4)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=4))
    | st.builds(msgpack.Timestamp, st.integers(0, 2**32)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.binary(max_size=2), inner, max_size=3),
    max_leaves=8,
)
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    int: INTEGERS,
    str: TEXT,
    bool: st.booleans(),
    float: FINITE,
    int | None: st.none() | INTEGERS,
    float | None: st.none() | FINITE,
    list[str]: st.lists(TEXT, max_size=3),
    dict[str, float]: st.dictionaries(TEXT, FINITE, max_size=3),
    dict[str, Any]: st.dictionaries(TEXT, JSON, max_size=3),
    dict[str, Any] | None: st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    Any: JSON,
}
KINDS: tuple[type[Any], ...] = Message.__args__
EXAMPLES: list[Message] = [
    Hello(1, ["/lib"], "/tmp/w", "limits", "trio", 512, True, ["/usr"], ["TOKEN"]),
    Run(7, 1, "d" * 32, "task", "prompt", {"gold": [1, None, {"a": 0.5}]}, {"step": 3}, "output"),
    Job(1, {"$ref": "a:b"}, None, ["gold"], ["a:"], 2.5),
    Done(7, 0.25, {"answer": 42}, 1.0, "good", {"length": 2.0}),
    Failed(7, 0.25, "model", "run", "ValueError", "no", True, 1.5, "Traceback", ["partial"]),
]


def messages() -> st.SearchStrategy[Message]:
    return st.one_of([st.builds(kind, **strategies_of(kind)) for kind in KINDS])


def strategies_of(kind: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    fields = attrs.fields(attrs.resolve_types(kind))
    return {a.name: FIELDS[a.type] if a.type in FIELDS else st.sampled_from(a.type.__args__) for a in fields}


def sent(message: Message) -> dict[str, Any]:
    """What is on the wire, as it is before it is packed."""
    fields: dict[str, Any] = msgpack.unpackb(encode(message))
    return fields


def received(fields: object) -> Message:
    return decode(msgpack.packb(fields))


@given(messages())
def test_what_is_sent_is_received(message: Message) -> None:
    again = decode(memoryview(encode(message)))
    assert again == message
    assert type(again) is type(message)
    assert encode(again) == encode(message)  # tells 1 from 1.0 and from True, which == does not


@given(st.binary(max_size=60))
def test_random_bytes_are_no_message(data: bytes) -> None:
    with pytest.raises(WireError, match="no message"):
        decode(data)


@given(messages(), st.data())
def test_a_damaged_message_is_refused_or_another_message(message: Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = decode(memoryview(damaged)[: data.draw(st.integers(0, len(damaged)))])
    except WireError:
        return
    assert decode(encode(again)) == again


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_field_takes_its_own_type_only(message: Message, data: st.DataObject) -> None:
    fields = sent(message)
    name = data.draw(st.sampled_from(sorted(fields)))
    fields[name] = data.draw(PACKABLE)
    try:
        again = received(fields)
    except WireError:
        return
    assert decode(encode(again)) == again  # never what it could not have been sent as
    assert sent(again) == {key: value for key, value in fields.items() if key in sent(again)}


@given(PACKABLE)
def test_a_json_field_takes_exactly_what_is_json(value: Any) -> None:
    try:
        check_json(value, "value")
    except ContractError:
        with pytest.raises(WireError):
            received({**sent(Done(1, 0.5)), "output": value})
    else:
        assert received({**sent(Done(1, 0.5)), "output": value}) == Done(1, 0.5, value)


@pytest.mark.parametrize("depth", [64, 65])
def test_a_json_field_is_as_deep_as_json_may_be(depth: int) -> None:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    with nullcontext() if depth <= 64 else pytest.raises(WireError, match="at most 64 levels"):
        assert decode(encode(Done(1, 0.5, value))) == Done(1, 0.5, value)


RUN, DONE, HELLO, FAILED = sent(EXAMPLES[1]), sent(EXAMPLES[3]), sent(EXAMPLES[0]), sent(EXAMPLES[4])


@pytest.mark.parametrize(
    "fields",
    [
        {**RUN, "lease": "12"},
        {**RUN, "lease": 1.0},
        {**RUN, "lease": True},
        {**RUN, "lease": 2**63 + 0.0},
        {**RUN, "prompt": 1},
        {**RUN, "prompt": b"bytes"},
        {**RUN, "prompt": None},
        {**RUN, "meta": []},
        {**RUN, "meta": [["a", 1]]},
        {**RUN, "meta": "a"},
        {**RUN, "meta": None},
        {**RUN, "meta": {b"a": 1}},
        {**RUN, "meta": {"a": b"bytes"}},
        {**RUN, "meta": {"a": float("nan")}},
        {**RUN, "meta": {"a": [float("-inf")]}},
        {**RUN, "meta": {"a": msgpack.Timestamp(0)}},
        {**RUN, "output": msgpack.ExtType(5, b"")},
        {**RUN, "output": 2**63},
        {**RUN, "resume_state": {"a": {b"": 1}}},
        {**HELLO, "path": "abc"},
        {**HELLO, "path": ["a", 1]},
        {**HELLO, "path": {"a": "b"}},
        {**HELLO, "path": None},
        {**HELLO, "loop": "curio"},
        {**HELLO, "loop": ["trio"]},
        {**HELLO, "level": 1},
        {**HELLO, "network": 0},
        {**HELLO, "memory_mb": "512"},
        {**HELLO, "memory_mb": 512.0},
        {**HELLO, "memory_mb": True},
        {**DONE, "seconds": "1"},
        {**DONE, "seconds": True},
        {**DONE, "seconds": float("inf")},
        {**DONE, "seconds": None},
        {**DONE, "score": "0.5"},
        {**DONE, "score": False},
        {**DONE, "score": float("nan")},
        {**DONE, "metrics": {"a": None}},
        {**DONE, "metrics": {"a": float("nan")}},
        {**DONE, "metrics": {"a": True}},
        {**DONE, "metrics": [1.0]},
        {**DONE, "feedback": None},
        {**FAILED, "kind": "ok"},
        {**FAILED, "stage": ""},
        {**FAILED, "transient": 1},
        {**FAILED, "retry_after": float("inf")},
        {**FAILED, "retry_after": "soon"},
        {**RUN, "extra": 1},
        {**RUN, "1": 1},
        {key: value for key, value in RUN.items() if key != "lease"},
        {key: value for key, value in RUN.items() if key != wire.TAG},
        {**RUN, wire.TAG: "Run"},
        {**RUN, wire.TAG: "done"},
        {**RUN, wire.TAG: None},
        {**RUN, wire.TAG: ["run"]},
        {**RUN, wire.TAG: b"run"},
        [],
        [RUN],
        ["run", 1],
        "run",
        b"run",
        None,
        1,
        {},
        {1: "run"},
    ],
)
def test_a_trap_is_refused(fields: object) -> None:
    with pytest.raises(WireError, match="received what is no message"):
        received(fields)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode(Log(1, "a"))[:-1],
        encode(Log(1, "a")) + b"\x00",
        encode(Log(1, "a")) * 2,
        b"\x91" * 100_000 + b"\x90",
        b"\x81\xa1a" * 100_000 + b"\xc0",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc1",
        encode(Log(1, "abc")).replace(b"abc", b"\xed\xa0\x80"),
        encode(Log(1, "abc")).replace(b"abc", b"\xff\xff\xff"),
    ],
    ids=[
        "nothing",
        "cut off",
        "one byte more",
        "two at once",
        "deep list",
        "deep object",
        "huge list announced",
        "huge text announced",
        "huge object announced",
        "never used",
        "lone surrogate",
        "no utf-8",
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="received what is no message"):
        decode(data)


def test_what_is_refused_is_not_quoted_at_length() -> None:
    with pytest.raises(WireError) as refused:
        received({wire.TAG: "x" * 100_000})
    assert len(str(refused.value)) < 300
    with pytest.raises(WireError) as refused:
        received({**RUN, "lease": "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, {1}, object, 2**64, 1j, Log(1, "a")], ids=ascii)
def test_what_cannot_be_packed_is_not_sent(value: object) -> None:
    with pytest.raises(WireError, match="a Done message cannot be sent"):
        encode(Done(1, 0.5, value))


def test_what_holds_itself_is_not_sent() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(WireError, match="a Done message cannot be sent"):
        encode(Done(1, 0.5, ring))


def test_the_other_side_gets_plain_json() -> None:
    given_value = {"a": (1, (2.5, None)), "b": MappingProxyType({"c": ()})}
    assert plain(given_value) == {"a": [1, [2.5, None]], "b": {"c": []}}
    assert decode(encode(Done(1, 0.5, given_value))) == Done(1, 0.5, plain(given_value))


def test_the_names_on_the_wire_are_these() -> None:
    # A class may be renamed; these may change only together with VERSION.
    messages, answers = ["artifact", "cancel", "hello", "job", "run"], ["checkpoint", "done", "failed", "log"]
    assert sorted(wire._TAGS) == sorted([*messages, *answers, "ready", "bye"])
    assert set(wire._TAGS.values()) == set(KINDS)
    assert sent(Ready(1, "none")) == {"": "ready", "version": 1, "level": "none"}
    assert sorted(sent(EXAMPLES[1])) == sorted(
        ["", "lease", "job", "artifact", "task_id", "prompt", "meta", "resume_state", "output"]
    )

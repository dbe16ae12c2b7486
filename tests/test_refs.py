"""Refs: equal by value, JSON and nothing else, and one public attribute of one module."""

from __future__ import annotations

import copy
import enum
import json
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import RefError
from adescent.refs import Ref

SCORER = "adescent.rewards:exact_match"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = texts.filter(lambda key: key != "$ref")
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
targets = st.sampled_from([SCORER, "my_pkg.evals:strict", "a:b"])


def _refs(configs: st.SearchStrategy[Any]) -> st.SearchStrategy[Ref]:
    return st.builds(Ref, targets, st.dictionaries(keys, configs, max_size=3))


values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3) | _refs(inner),
    max_leaves=12,
)
refs = _refs(values)


@given(refs)
def test_json_gives_back_an_equal_ref(ref: Ref) -> None:
    read = Ref.from_json(json.loads(json.dumps(ref.to_json())))
    assert read == ref
    assert hash(read) == hash(ref)
    assert read.digest == ref.digest


@given(refs)
def test_the_plain_config_makes_an_equal_ref(ref: Ref) -> None:
    assert Ref(ref.target, ref.plain_config()) == ref


@given(refs)
def test_copies_are_equal(ref: Ref) -> None:
    assert pickle.loads(pickle.dumps(ref)) == copy.deepcopy(ref) == attrs.evolve(ref) == ref
    assert hash(pickle.loads(pickle.dumps(ref))) == hash(ref)


@given(refs, refs)
def test_digests_tell_refs_apart_as_equality_does(one: Ref, other: Ref) -> None:
    assert (one == other) == (one.digest == other.digest)


@pytest.mark.parametrize("other", [1.0, True, "1", [1], None])
def test_values_that_python_calls_equal_are_told_apart(other: object) -> None:
    assert Ref("a:b", {"x": 1}) != Ref("a:b", {"x": other})


def test_the_order_of_keys_does_not_count() -> None:
    one, other = Ref("a:b", {"x": {"p": 1, "q": 2}, "y": 3}), Ref("a:b", {"y": 3, "x": {"q": 2, "p": 1}})
    assert one == other
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_the_digest_is_the_same_in_every_process() -> None:
    ref = Ref("a:b", {"x": [1, 2.5, "é", None], "y": Ref("c:d", call=False)})
    code = "import sys, json; from adescent.refs import Ref; print(Ref.from_json(json.loads(sys.argv[1])).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    said = subprocess.run(
        [sys.executable, "-c", code, json.dumps(ref.to_json())], env=environment, capture_output=True, check=True
    )
    assert said.stdout.decode().strip() == ref.digest


def test_a_pickle_from_another_process_is_found_in_a_dict() -> None:
    code = "import sys, pickle; from adescent.refs import Ref; r = Ref('a:b', {'x': 1}); hash(r)"
    code += "; sys.stdout.buffer.write(pickle.dumps(r))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert {Ref("a:b", {"x": 1}): "found"}[pickle.loads(said.stdout)] == "found"


def test_a_change_to_the_given_config_does_not_reach_the_ref() -> None:
    given_config: dict[str, Any] = {"items": [1], "more": {"a": 1}}
    ref = Ref("a:b", given_config)
    given_config["items"].append(2)
    given_config["more"]["b"] = 2
    ref.plain_config()["items"].append(3)
    assert ref == Ref("a:b", {"items": [1], "more": {"a": 1}})
    with pytest.raises(TypeError):
        ref.config["more"]["c"] = 3


class Shade(enum.StrEnum):
    DARK = "dark"


class Pair(NamedTuple):
    left: int
    right: int


class Half(float):
    pass


def _endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"a": float("nan")}, "config.a"),
        ({"a": {"b": [1, float("inf")]}}, "config.a.b[1]"),
        ({"a": 2**63}, "config.a"),
        ({"a": -(2**63) - 1}, "config.a"),
        ({"a": "\ud800"}, "config.a"),
        ({"a": {"\udfff": 1}}, "config.a"),
        ({"a": b"bytes"}, "config.a"),
        ({"a": {1, 2}}, "config.a"),
        ({"a": [lambda: None]}, "config.a[0]"),
        ({"a": object}, "config.a"),
        ({"a": Shade.DARK}, "config.a"),
        ({"a": Half(0.5)}, "config.a"),
        ({"a": Pair(1, 2)}, "config.a"),
        ({"a": {1: "one"}}, "config.a"),
        ({1: "one"}, "config"),
        ({"a": {"$ref": "os:system"}}, "config.a"),
        ({"$ref": 1}, "config"),
        ({"a": _endless()}, "config.a[0]"),
        ([("a", 1)], "config"),
        ("a=1", "config"),
        (None, "config"),
    ],
)
def test_what_json_does_not_hold_is_refused_with_its_path(config: Any, path: str) -> None:
    with pytest.raises(RefError) as refusal:
        Ref("a:b", config)
    assert path in str(refusal.value)


def test_a_chain_of_refs_that_is_too_deep_is_refused() -> None:
    ref = Ref("a:b")
    for _ in range(32):
        ref = Ref("a:b", {"inner": ref})
    with pytest.raises(RefError, match="64 levels"):
        Ref("a:b", {"inner": ref})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "ref is not the JSON of a Ref"),
        ([], "ref is not the JSON of a Ref"),
        ({"target": "a:b"}, r"needs '\$ref'"),
        ({"$ref": "a:b", "kind": 1}, "ref has the unknown key 'kind'"),
        ({"$ref": "a:b", "config": []}, "ref.config must be a dict"),
        ({"$ref": "a:b", "call": 1}, "call must be True or False"),
        ({"$ref": 5}, "5 is no target"),
        (
            {"$ref": "a:b", "config": {"x": [{"$ref": "c:d", "config": {"y": 2**64}}]}},
            r"ref\.config\.x\[0\]\.config\.y",
        ),
        ({"$ref": "a:b", "config": {"x": {"$ref": "c:d", "oops": 1}}}, r"ref\.config\.x has the unknown key"),
    ],
)
def test_json_that_is_no_ref_is_refused(data: object, words: str) -> None:
    with pytest.raises(RefError, match=words):
        Ref.from_json(data)


def test_json_nested_without_end_is_refused() -> None:
    data: dict[str, Any] = {"$ref": "a:b"}
    for _ in range(400):
        data = {"$ref": "a:b", "config": {"x": data}}
    with pytest.raises(RefError, match="64 levels"):
        Ref.from_json(data)


def test_the_attribute_itself_has_no_config() -> None:
    assert Ref("a:b", call=False) != Ref("a:b")
    with pytest.raises(RefError, match="leave its config out"):
        Ref("a:b", {"x": 1}, call=False)
    with pytest.raises(RefError, match="True or False"):
        Ref("a:b", call=1)  # type: ignore[arg-type]


MALFORMED = [
    "",
    ":",
    "adescent.rewards",
    "adescent.rewards:",
    ":exact_match",
    "adescent.rewards:../x",
    "adescent/rewards:exact_match",
    "../adescent.rewards:exact_match",
    ".rewards:exact_match",
    "adescent..rewards:exact_match",
    "adescent.rewards.:exact_match",
    "adescent.rewards:json.dumps",
    "adescent.rewards:exact_match.__globals__",
    "adescent.rewards:exact_match:exact_match",
    "adescent.rewards:_quoted",
    "adescent.rewards:__builtins__",
    "adescent.rewards:__import__",
    "adescent.__init__:import_module",
    "adescent.__main__:main",
    "__main__:f",
    "__mp_main__:f",
    "adescent.rewards:exact_match\n",
    "adescent.rewards:exact_match\x00",
    " adescent.rewards:exact_match",
    "adescent.rewards: exact_match",
    "adescent.rewards:exact_match()",
    "adescent.rewards:exact-match",
    "adescent.rewards:0",
    "\u0430descent.rewards:exact_match",  # a Cyrillic letter
    "adescent.rewards:ex\u0430ct_match",
    "\uff41descent.rewards:exact_match",  # a full-width letter, which NFKC and Python identifiers fold
    "adescent\u2024rewards:exact_match",  # a one dot leader
    "adescent.rewards\uff1aexact_match",  # a full-width colon
    "adescent.rewards:exact\u200b_match",
    "os:system;os:system",
]


@pytest.mark.parametrize("target", MALFORMED)
def test_a_malformed_target_is_no_ref(target: str) -> None:
    with pytest.raises(RefError):
        Ref(target)


@pytest.mark.parametrize("target", [None, 5, b"a:b", ["a:b"], ("a", "b")])
def test_a_target_is_text(target: Any) -> None:
    with pytest.raises(RefError, match="is no target"):
        Ref(target)


def test_main_comes_with_the_advice_to_move_the_function() -> None:
    with pytest.raises(RefError, match="move the function to a module"):
        Ref("__main__:score")


def test_a_mapping_that_is_no_dict_is_a_config_too() -> None:
    class Settings(dict[str, Any]):
        pass

    assert Ref("a:b", Settings(x=1)) == Ref("a:b", {"x": 1})
    with pytest.raises(RefError, match="config must be a dict"):
        Ref("a:b", SimpleNamespace(x=1))

"""Refs: equal by value, JSON and nothing else, and no way out of the trust boundary."""

from __future__ import annotations

import copy
import enum
import importlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adescent.rewards
from adescent.errors import ContractError, OptionError, RefError
from adescent.refs import Ref, Resolver, nameable
from adescent.tasks import Task

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


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Write a module to a fresh import path; afterwards it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name: str, source: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        for folder in (*reversed(path.relative_to(tmp_path).parents), path.parent)[1:]:
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "__init__.py").touch()
        path.write_text(source)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


# --- the record


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


# --- the boundary

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


OUTSIDE = [
    "os:system",
    "subprocess:run",
    "builtins:exec",
    "builtins:eval",
    "importlib:import_module",
    "adescent_evil:f",
    "adescentx.rewards:exact_match",
    "xadescent.rewards:exact_match",
    "Adescent.rewards:exact_match",
    "rewards:exact_match",
    "tests.adescent.rewards:exact_match",
]

UNREGISTERED = [
    "adescent.refs:importlib",
    "adescent.refs:Resolver",
    "adescent.refs:Ref",
    "adescent.refs:nameable",
    "adescent.rewards:json_in",
    "adescent.rewards:re",
    "adescent.rewards:Task",
    "adescent.rewards:nameable",
    "adescent.answers:json",
    "adescent:exact_match",
    "adescent:import_module",
    "adescent:rewards",
    "adescent.rewards:nowhere",
    "adescent.nowhere:f",
    "adescent.rewards.json:dumps",
    "adescent.rewards.exact_match:f",
]


@pytest.mark.parametrize("call", [True, False])
@pytest.mark.parametrize("target", [*OUTSIDE, *UNREGISTERED])
def test_nothing_resolves_that_is_not_registered(target: str, call: bool) -> None:
    with pytest.raises(RefError):
        Resolver().resolve(Ref(target, call=call))
    with pytest.raises(RefError):
        Resolver().resolve(Ref(SCORER, {"gold_key": Ref(target, call=call)}))


def test_what_is_outside_is_not_even_imported(write_module: Callable[[str, str], None]) -> None:
    write_module("outside_evil", "raise SystemExit('imported')")
    write_module("adescent_evil", "raise SystemExit('imported')")
    write_module("trusted_pkg.evals_evil", "raise SystemExit('imported')")
    resolver = Resolver(allow=("trusted_pkg.evals:",))
    for target in ("outside_evil:f", "adescent_evil:f", "trusted_pkg.evals_evil:f", "trusted_pkg:f"):
        with pytest.raises(RefError, match="was not imported"):
            resolver.resolve(Ref(target))
        with pytest.raises(RefError, match="was not imported"):
            resolver.resolve(Ref(SCORER, {"gold_key": [{"deep": Ref(target)}]}))
    assert not {"outside_evil", "adescent_evil", "trusted_pkg", "trusted_pkg.evals_evil"} & set(sys.modules)


def test_the_whole_tree_is_admitted_before_anything_is_made(write_module: Callable[[str, str], None]) -> None:
    write_module("counted_parts", "made = []\ndef part():\n    made.append(1)\n")
    resolver = Resolver(allow=("counted_parts:part",))
    allowed, outside = Ref("counted_parts:part"), Ref("os:getpid")
    for tree in (Ref("os:system", {"command": allowed}), Ref("counted_parts:part", {"a": allowed, "b": outside})):
        with pytest.raises(RefError, match="was not imported"):
            resolver.resolve(tree)
    assert "counted_parts" not in sys.modules


EVALS = """
import os
import os as loose
from json import dumps
from os.path import join

def strict(level: int = 1): return ("strict", level)
def stricter(): return "stricter"
def score(task, output): return 1.0
def renamed(): return "renamed"
async def solve(rendered=None, task=None): return 1
def fails(text): raise ValueError(text)
def typed(number): return number + 1

class Judge:
    def __init__(self, name, inner=None): self.name, self.inner = name, inner
    def __call__(self, task, output): return 0.5

judge = Judge("ready")
THRESHOLD = 0.5
alias = renamed
_hidden = strict
__getattr__ = lambda name: __import__(name)
"""


def test_an_allowed_module_gives_what_it_defines(write_module: Callable[[str, str], None]) -> None:
    write_module("my_evals", EVALS)
    resolver = Resolver(allow=("my_evals:",))
    assert resolver.resolve(Ref("my_evals:strict", {"level": 3})) == ("strict", 3)
    assert resolver.resolve(Ref("my_evals:score", call=False))(None, "") == 1.0
    assert resolver.resolve(Ref("my_evals:judge", call=False)).name == "ready"
    assert resolver.resolve(Ref("my_evals:alias")) == "renamed"


@pytest.mark.parametrize("name", ["os", "loose", "dumps", "join", "THRESHOLD", "nowhere", "subprocess"])
def test_an_allowed_module_gives_nothing_that_it_imported(name: str, write_module: Callable[[str, str], None]) -> None:
    write_module("my_evals", EVALS)
    with pytest.raises(RefError, match=f"my_evals.*{name}"):
        Resolver(allow=("my_evals:",)).resolve(Ref(f"my_evals:{name}", call=False))


@pytest.mark.parametrize(
    ("entry", "resolved"),
    [
        ("my_pkg.evals:", {"my_pkg.evals:strict", "my_pkg.evals:stricter"}),
        ("my_pkg.evals:strict", {"my_pkg.evals:strict"}),
        ("my_pkg.deep.", {"my_pkg.deep.evals:strict", "my_pkg.deep.evals:stricter"}),
        (
            "my_pkg.",
            {
                "my_pkg.evals:strict",
                "my_pkg.evals:stricter",
                "my_pkg.deep.evals:strict",
                "my_pkg.deep.evals:stricter",
            },
        ),
        ("my_pkg:", {"my_pkg:strict", "my_pkg:stricter"}),
    ],
)
def test_an_entry_allows_exactly_what_it_says(
    entry: str, resolved: set[str], write_module: Callable[[str, str], None]
) -> None:
    write_module("my_pkg.evals", EVALS)
    write_module("my_pkg.deep.evals", EVALS)
    write_module("my_pkg.__init__", EVALS)
    write_module("my_pkgs.evals", EVALS)
    modules = ("my_pkg", "my_pkg.evals", "my_pkg.deep.evals", "my_pkgs.evals")
    found = set()
    for target in [f"{module}:{name}" for module in modules for name in ("strict", "stricter")]:
        try:
            Resolver(allow=(entry,)).resolve(Ref(target, call=False))
        except RefError:
            continue
        found.add(target)
    assert found == resolved


@pytest.mark.parametrize(
    "allow",
    [
        "my_pkg.evals:",
        ("my_pkg.evals",),
        ("",),
        (":",),
        (".",),
        ("my_pkg.*",),
        ("my_pkg.evals:_hidden",),
        ("my_pkg.evals:a.b",),
        ("__main__:",),
        ("__main__:f",),
        ("my_pkg.__main__:",),
        ("my_pkg:\n",),
        ("m\u0443_pkg:",),  # a Cyrillic letter
        (None,),
        (5,),
    ],
)
def test_an_entry_of_another_form_is_refused(allow: Any) -> None:
    with pytest.raises(RefError, match=r"allow|__main__"):
        Resolver(allow=allow)


def test_a_registered_target_resolves_to_what_it_makes() -> None:
    score = Resolver().resolve(Ref(SCORER, {"gold_key": "answer"}))
    assert score(Task("t", "", {"answer": "Yes"}), "yes").value == 1.0
    assert Resolver().resolve(Ref(SCORER, call=False)) is adescent.rewards.exact_match


def test_a_host_may_allow_what_is_not_registered_here() -> None:
    assert Resolver(allow=("adescent.refs:Ref",)).resolve(Ref("adescent.refs:Ref", call=False)) is Ref


def test_only_a_ref_resolves() -> None:
    with pytest.raises(RefError, match="a str was to be resolved"):
        Resolver().resolve("os:system")  # type: ignore[arg-type]


# --- making the object


def test_nested_refs_are_made_innermost_first_and_each_once(write_module: Callable[[str, str], None]) -> None:
    write_module(
        "built",
        """
order = []
class Part:
    def __init__(self, name, **parts):
        order.append(name)
        self.parts = parts
""",
    )
    inner = Ref("built:Part", {"name": "inner"})
    middle = Ref("built:Part", {"name": "middle", "given": {"deep": [inner, {"again": inner}]}})
    resolver = Resolver(allow=("built:Part",))
    outer = resolver.resolve(Ref("built:Part", {"name": "outer", "a": middle, "b": inner, "c": [middle]}))
    import built  # type: ignore[import-not-found]

    assert built.order == ["inner", "middle", "outer"]
    assert outer.parts["a"] is outer.parts["c"][0]
    assert outer.parts["a"].parts["given"]["deep"][1]["again"] is outer.parts["b"]
    assert resolver.resolve(Ref("built:Part", {"name": "inner"})) is outer.parts["b"]
    assert Resolver(allow=("built:Part",)).resolve(inner) is not outer.parts["b"]


def test_a_factory_gets_plain_values_of_its_own(write_module: Callable[[str, str], None]) -> None:
    write_module("plain", "def keep(**config): return config")
    ref = Ref("plain:keep", {"items": [1, {"a": (2,)}], "none": None})
    kept = Resolver(allow=("plain:",)).resolve(ref)
    assert kept == {"items": [1, {"a": [2]}], "none": None}
    kept["items"].append("changed")
    assert Resolver(allow=("plain:",)).resolve(ref) == {"items": [1, {"a": [2]}], "none": None}


def test_threads_share_one_object(write_module: Callable[[str, str], None], request: pytest.FixtureRequest) -> None:
    write_module("slow_client", "class Client:\n    def __init__(self): self.sum = sum(range(20_000))\n")
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # so that one thread is seldom done before another begins
    resolver, together = Resolver(allow=("slow_client:",)), threading.Barrier(8)
    resolver.resolve(Ref("slow_client:Client", call=False))
    found: list[Any] = []

    def resolve() -> None:
        together.wait(5)
        found.append(resolver.resolve(Ref("slow_client:Client")))

    threads = [threading.Thread(target=resolve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("score", {}, r"takes \(task, output\).*missing a required argument: 'task'.*call=False"),
        ("score", {"gold_key": "x"}, r"config keys \['gold_key'\].*call=False"),
        ("solve", {}, "async function.*call=False"),
        ("judge", {}, r"takes \(task, output\).*call=False"),
        ("strict", {"levle": 1}, r"takes \(level: 'int' = 1\)|takes \(level: int = 1\)"),
        ("Judge", {"label": "x"}, r"takes \(name, inner=None\)"),
        ("fails", {"text": "boom"}, "raised ValueError.*boom"),
        ("typed", {"number": "one"}, "raised TypeError"),
    ],
)
def test_a_call_that_does_not_fit_says_what_would(
    name: str, config: dict[str, Any], words: str, write_module: Callable[[str, str], None]
) -> None:
    write_module("my_evals", EVALS)
    with pytest.raises(RefError, match=f"(?s)my_evals:{name}.*{words}"):
        Resolver(allow=("my_evals:",)).resolve(Ref(f"my_evals:{name}", config))


@pytest.mark.parametrize(("name", "config"), [("strict", {"levle": 1}), ("Judge", {"name": "n", "iner": 1})])
def test_an_unknown_setting_of_a_factory_gets_no_advice_about_call(
    name: str, config: dict[str, Any], write_module: Callable[[str, str], None]
) -> None:
    write_module("my_evals", EVALS)
    with pytest.raises(RefError) as refusal:
        Resolver(allow=("my_evals:",)).resolve(Ref(f"my_evals:{name}", config))
    assert "call=False" not in str(refusal.value)


def test_an_object_that_cannot_be_called_is_named_with_call_false(write_module: Callable[[str, str], None]) -> None:
    write_module("ready_made", "class Table: pass\ntable = Table()")
    with pytest.raises(RefError, match=r"no callable.*call=False"):
        Resolver(allow=("ready_made:",)).resolve(Ref("ready_made:table"))


def test_a_refusal_of_the_factory_itself_passes_as_it_is() -> None:
    with pytest.raises(OptionError, match="rel_tol"):
        Resolver().resolve(Ref("adescent.rewards:numeric_close", {"rel_tol": -1}))


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise OSError('no device')", OSError),
        ("def f(:", SyntaxError),
        ("import sys; sys.exit(3)", SystemExit),
        ("import no_such_package_at_all", ModuleNotFoundError),
        (None, ModuleNotFoundError),
    ],
)
def test_a_failing_import_is_the_cause(
    source: str | None, cause: type[BaseException], write_module: Callable[[str, str], None]
) -> None:
    if source is not None:
        write_module("broken_evals", source)
    with pytest.raises(RefError, match="importing broken_evals failed") as refusal:
        Resolver(allow=("broken_evals:",)).resolve(Ref("broken_evals:f"))
    assert isinstance(refusal.value.__cause__, cause)


def test_what_failed_is_tried_again(write_module: Callable[[str, str], None]) -> None:
    write_module("recovering", "calls = []\ndef f():\n    calls.append(1)\n    return 1 // (len(calls) - 1)\n")
    resolver = Resolver(allow=("recovering:",))
    with pytest.raises(RefError, match="ZeroDivisionError"):
        resolver.resolve(Ref("recovering:f"))
    assert resolver.resolve(Ref("recovering:f")) == 1


# --- registering


def test_only_this_package_registers() -> None:
    def scorer() -> None: ...

    scorer.__qualname__ = "scorer"
    with pytest.raises(RefError, match="pass allow="):
        nameable(scorer)


@pytest.mark.parametrize("qualname", ["make.<locals>.scorer", "Judge.score", "_scorer", "__call__"])
def test_what_no_target_can_spell_is_not_registered(qualname: str) -> None:
    def scorer() -> None: ...

    scorer.__module__, scorer.__qualname__ = "adescent.rewards", qualname
    with pytest.raises(RefError, match="is no target"):
        nameable(scorer)


def test_a_registered_name_stays_usable_as_it_was() -> None:
    def scorer() -> str:
        return "made"

    scorer.__module__, scorer.__qualname__ = "adescent.rewards", "scorer_of_a_test"
    assert nameable(scorer) is scorer
    try:
        assert Resolver().resolve(Ref("adescent.rewards:scorer_of_a_test")) == "made"
    finally:
        del adescent.refs._registered["adescent.rewards:scorer_of_a_test"]


def test_errors_are_contract_errors() -> None:
    assert issubclass(RefError, ContractError)


def test_a_mapping_that_is_no_dict_is_a_config_too() -> None:
    class Settings(dict[str, Any]):
        pass

    assert Ref("a:b", Settings(x=1)) == Ref("a:b", {"x": 1})
    with pytest.raises(RefError, match="config must be a dict"):
        Ref("a:b", SimpleNamespace(x=1))

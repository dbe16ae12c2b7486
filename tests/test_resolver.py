"""Resolving Refs: no way out of the trust boundary, every Ref once, and refusals that say what would fit."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import adescent.rewards
from adescent.errors import ContractError, OptionError, RefError
from adescent.refs import Ref, Resolver, nameable
from adescent.tasks import Task

SCORER = "adescent.rewards:exact_match"


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


# --- the boundary

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


def test_the_boundary_can_be_checked_without_importing_anything(write_module: Callable[[str, str], None]) -> None:
    write_module("checked_evil", "raise SystemExit('imported')")
    resolver = Resolver(allow=["checked_evil:"])
    assert resolver.allow == ("checked_evil:",)
    resolver.check(Ref("checked_evil:f", {"parts": [Ref(SCORER)]}))
    with pytest.raises(RefError, match="os:system may not be resolved here"):
        resolver.check(Ref("checked_evil:f", {"parts": [Ref("os:system")]}))
    with pytest.raises(RefError, match="a str was to be resolved"):
        resolver.check("checked_evil:f")  # type: ignore[arg-type]
    assert "checked_evil" not in sys.modules


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


def test_a_factory_that_exits_is_named(write_module: Callable[[str, str], None]) -> None:
    write_module("leaving", "def f():\n    raise SystemExit(3)\n")
    with pytest.raises(RefError, match="leaving:f raised SystemExit when called with its config: 3"):
        Resolver(allow=("leaving:",)).resolve(Ref("leaving:f"))


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

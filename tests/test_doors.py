"""Packages that load what they name on first use: they name what there is, to people and to type checkers alike."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import adescent
import adescent.executors
import adescent.ledger
import adescent.sandbox

DOORS = (adescent, adescent.executors, adescent.ledger, adescent.sandbox)
each_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
each_name = pytest.mark.parametrize(
    ("door", "name"),
    [pytest.param(door, name, id=f"{door.__name__}.{name}") for door in DOORS for name in door.__all__],
)


def test_these_are_all() -> None:
    package = Path(adescent.__file__).parent
    users = {path for path in package.rglob("__init__.py") if "door(__name__" in path.read_text(encoding="utf-8")}
    assert users == {Path(str(door.__file__)) for door in DOORS}


@each_name
def test_a_name_is_what_its_module_defines(door: ModuleType, name: str) -> None:
    home = import_module(f"{door.__name__}.{door._HOMES[name]}")
    assert getattr(door, name) is getattr(home, name)
    assert name in home.__all__
    assert name in dir(door)


@each_door
def test_names_are_sorted(door: ModuleType) -> None:
    assert door.__all__ == sorted(door._HOMES)


@each_door
def test_type_checkers_see_the_same_names_from_the_same_modules(door: ModuleType) -> None:
    tree = ast.parse(Path(str(door.__file__)).read_text(encoding="utf-8"))
    seen = {
        alias.asname: (node.module or "").removeprefix(f"{door.__name__}.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert seen == door._HOMES


@each_door
def test_a_name_that_does_not_exist_is_an_attribute_error(door: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{door.__name__}' has no attribute 'evolv3'"):
        _ = door.evolv3
    assert "evolv3" not in dir(door)


@each_door
def test_a_door_names_all_and_loads_nothing_until_it_is_used(door: ModuleType) -> None:
    script = (
        f"import sys, {door.__name__} as door; "
        "loaded = {name for name in sys.modules if name.startswith('adescent')}; "
        "assert loaded == {'adescent', 'adescent.doors', door.__name__}, loaded; "
        "assert set(door.__all__) <= set(dir(door)) and not set(door.__all__) & set(vars(door)); "
        "name = door.__all__[-1]; found = getattr(door, name); assert vars(door)[name] is found"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

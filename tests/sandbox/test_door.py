"""The door of the room: what it names, and how little it loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import adescent.sandbox as door


@pytest.mark.parametrize("name", door.__all__)
def test_every_name_is_what_its_module_defines(name: str) -> None:
    home = import_module(f"adescent.sandbox.{door._HOMES[name]}")
    assert getattr(door, name) is getattr(home, name)
    assert name in home.__all__
    assert name in dir(door)


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    tree = ast.parse(Path(door.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname: (node.module or "").removeprefix("adescent.sandbox.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    assert seen == door._HOMES


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gaol'"):
        _ = door.gaol


def test_the_door_itself_loads_nothing() -> None:
    script = "import adescent.sandbox, sys; print(sorted(name for name in sys.modules if 'adescent.sandbox.' in name))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert ran.stdout.strip() == "[]"

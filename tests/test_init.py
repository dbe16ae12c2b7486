"""The door of the package: what it names, and how little it loads."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import adescent


def modules_loaded_by(statement: str) -> set[str]:
    """Return the modules a fresh interpreter loads for a statement, beyond those it starts with."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.split())


def test_all_names_every_error() -> None:
    assert set(import_module("adescent.errors").__all__) <= set(adescent.__all__)


def test_what_a_blocking_door_says_to_await_can_be_imported() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(adescent.__file__).parent.rglob("*.py")]
    named = {
        str(argument.value.value).partition("(")[0]
        for source in sources
        if "run_blocking(" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for argument in node.keywords
        if argument.arg == "instead" and isinstance(argument.value, ast.Constant)
    }
    assert "async_evolve" in named
    assert named <= set(adescent.__all__)


def test_so_can_what_a_public_record_or_executor_is_made_of() -> None:
    assert {"Actors", "Admission", "Figure", "Interval", "PoolStatistics", "Workspaces"} <= set(adescent.__all__)


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("import adescent")
    assert {name for name in loaded if name.startswith("adescent")} == {"adescent", "adescent.doors"}
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(
        {"anyio", "asyncio", "attrs", "cattrs", "pygit2", "trio"}
    )


def test_a_name_loads_only_what_it_needs() -> None:
    loaded = modules_loaded_by("from adescent import CASConflict")
    assert {name for name in loaded if name.startswith("adescent")} == {"adescent", "adescent.doors", "adescent.errors"}


def test_the_library_logs_without_a_word_of_its_own() -> None:
    handlers = logging.getLogger("adescent").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]

"""The architecture as data: what may import what, and how large a piece may get."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import adescent

PACKAGE = Path(adescent.__file__).parent
REPOSITORY = Path(__file__).parent.parent

# Lowest first. A room (a module or a folder of the package) imports from rows above its own in this table and from
# itself, and from nothing else of the package. A name without a room yet is a place that is kept for it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("doors", "errors", "version"),
    ("answers", "cancellation", "canonical", "checks", "own_thread", "sidebyside", "stats", "textmerge"),
    ("refs", "tasks"),
    ("budget", "evolvable", "telemetry", "workspec"),
    ("governance", "policies", "sandbox"),
    ("config",),
    (
        "agents",
        "aggregator",
        "executors",
        "ledger",
        "rewards",
        "scheduling",
        "selection",
        "strategies",
        "verifier",
    ),
    ("directory", "rundir"),
    ("runtime",),
    ("evolution", "recipes"),
    ("domains", "report"),
    ("orchestrator",),
    ("cli", "testing"),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

# The doors of the package: they name everything, and nothing may import them.
DOORS = ("adescent", "adescent.__main__")

# Foreign modules that stay out, and the modules of ours that may import them all the same.
BANNED: dict[str, tuple[str, ...]] = {
    "asyncio": (),  # everything runs on trio as well
    # Everything runs on asyncio as well, and it costs 180 ms to import.
    "trio": ("adescent.executors.child.copies",),
    "multiprocessing": (),  # never fork
    # The host's threads may all be waiting for us.
    "anyio.to_thread": ("adescent.own_thread",),
    "anyio.Path": (),
    "anyio.open_file": (),
}
# Foreign modules that stay out of one room.
BANNED_IN_ROOM: dict[str, tuple[str, ...]] = {
    "ledger": ("subprocess", "anyio.open_process", "anyio.run_process"),  # no git command on any path
}

LINES_PER_FILE = 500
LINES_PER_FUNCTION = 60


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def room_of(module: str) -> str:
    """Return the part of a dotted name below the package that is its room; the package itself is its own."""
    return module.split(".")[1] if "." in module else module


def imports(module: str, tree: ast.Module, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) for everything that is imported anywhere in a file, lazily and for types too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                origin = _origin(module, node, is_package=is_package)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
            case ast.Call(func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module")):
                match node.args:
                    case [ast.Constant(value=str(name)), *_]:
                        yield node.lineno, name


def _origin(module: str, node: ast.ImportFrom, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    above = module.split(".") if is_package else module.split(".")[:-1]
    base = above[: len(above) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def within(name: str, banned: str) -> bool:
    """Tell whether a dotted name is the banned one or below it."""
    return name == banned or name.startswith(f"{banned}.")


def faults(module: str, tree: ast.Module, *, is_package: bool = False) -> list[str]:
    """Return what a module imports and should not, one line each."""
    room = room_of(module)
    found = []
    for line, name in imports(module, tree, is_package=is_package):
        where = f"{module}:{line} imports {name}"
        if within(name, "adescent"):
            if fault := _floor_fault(room, name):
                found.append(f"{where}: {fault}")
        elif any(within(name, banned) and module not in allowed for banned, allowed in BANNED.items()):
            found.append(f"{where}: it stays out of the package")
        elif any(within(name, banned) for banned in BANNED_IN_ROOM.get(room, ())):
            found.append(f"{where}: it stays out of {room}")
    return found


def _floor_fault(room: str, name: str) -> str | None:
    other = room_of(name)
    if other not in FLOOR_OF:
        return "name the module that defines it, the package's doors are for its users"
    if other == room or FLOOR_OF[other] < FLOOR_OF[room]:
        return None
    if FLOOR_OF[other] == FLOOR_OF[room]:
        return f"{other} is another room of the same floor"
    return f"{other} is on a higher floor"


FILES = sorted(PACKAGE.rglob("*.py"))
INNER = [path for path in FILES if module_name(path) not in DOORS]
OURS = sorted({*FILES, *(path for folder in ("tests", "benchmarks") for path in (REPOSITORY / folder).rglob("*.py"))})


@pytest.mark.parametrize("path", INNER, ids=module_name)
def test_every_module_belongs_to_a_floor(path: Path) -> None:
    assert room_of(module_name(path)) in FLOOR_OF


@pytest.mark.parametrize("path", INNER, ids=module_name)
def test_imports_go_down(path: Path) -> None:
    assert faults(module_name(path), parsed(path), is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize("path", OURS, ids=lambda path: "/".join(path.parts[-2:]))
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_PER_FILE


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_functions_are_small(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= LINES_PER_FUNCTION, f"{node.name} has {lines} lines"


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("adescent.tasks", "from adescent.errors import ContractError", None),
        ("adescent.runtime.worker", "from adescent.runtime.heads import HeadCell", None),
        ("adescent.runtime.worker", "from .heads import HeadCell", None),
        ("adescent.runtime.worker", "from ..ledger import store", None),
        ("adescent.tasks", "from adescent.runtime.worker import Worker", "higher floor"),
        ("adescent.tasks", "import adescent.evolvable", "higher floor"),
        ("adescent.tasks", "from adescent import evolvable", "higher floor"),
        ("adescent.tasks", "def f():\n    from adescent.config import C", "higher floor"),
        ("adescent.tasks", "if TYPE_CHECKING:\n    from adescent.config import C", "higher floor"),
        ("adescent.tasks", "importlib.import_module('adescent.config')", "higher floor"),
        ("adescent.ledger.store", "from ..verifier import cache", "same floor"),
        ("adescent.ledger.store", "from adescent import CASConflict", "doors"),
        ("adescent.ledger.store", "import adescent", "doors"),
        ("adescent.ledger.store", "import subprocess", "out of ledger"),
        ("adescent.ledger.store", "from anyio import open_process", "out of ledger"),
        ("adescent.executors.process", "from anyio import open_process", None),
        ("adescent.runtime.engine", "import asyncio.tasks", "out of the package"),
        ("adescent.runtime.engine", "from multiprocessing import Pool", "out of the package"),
        ("adescent.runtime.engine", "from anyio.to_thread import run_sync", "out of the package"),
        ("adescent.runtime.engine", "from anyio import to_thread", "out of the package"),
        ("adescent.own_thread", "from anyio.to_thread import run_sync", None),
    ],
)
def test_the_rule_tells_good_from_bad(module: str, source: str, fault: str | None) -> None:
    found = faults(module, ast.parse(source))
    assert found == [] if fault is None else len(found) == 1 and fault in found[0]

"""How a package offers names that its modules hold, and loads such a module when a name of it is first used.

So a process that needs a few records does not load the engine, and one without a git repository no pygit2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["door"]


def door(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and the ``__dir__`` of a package, by its names and the modules below it that hold them.

    Not for type checkers, which get plain imports: one that saw these would believe in every misspelt name.
    """

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)  # the next use does not come here
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names

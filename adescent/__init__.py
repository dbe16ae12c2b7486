"""Improve the text that steers an agent: parallel workers propose, one aggregator measures, merges and keeps.

Every public name can be imported from here; the module that holds it is loaded when the name is first used, so that a
process which needs a few records does not load the engine. A new name takes one line in each of the two lists below.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adescent.errors import ActorsNeverWorked as ActorsNeverWorked
    from adescent.errors import AdescentError as AdescentError
    from adescent.errors import BudgetExhausted as BudgetExhausted
    from adescent.errors import CASConflict as CASConflict
    from adescent.errors import ContractError as ContractError
    from adescent.errors import GovernanceError as GovernanceError
    from adescent.errors import LedgerCorrupt as LedgerCorrupt
    from adescent.errors import LedgerError as LedgerError
    from adescent.errors import LoopRunning as LoopRunning
    from adescent.errors import OptionError as OptionError
    from adescent.errors import ProposalError as ProposalError
    from adescent.errors import RefError as RefError
    from adescent.errors import RunCancelled as RunCancelled
    from adescent.errors import RunDirError as RunDirError
    from adescent.errors import RunDirInUse as RunDirInUse
    from adescent.errors import RunDirMismatch as RunDirMismatch
    from adescent.errors import Transient as Transient
    from adescent.errors import UnknownArtifact as UnknownArtifact
    from adescent.errors import VoidScore as VoidScore
    from adescent.errors import WrongThread as WrongThread

    __version__: str

_HOMES = {
    "ActorsNeverWorked": "errors",
    "AdescentError": "errors",
    "BudgetExhausted": "errors",
    "CASConflict": "errors",
    "ContractError": "errors",
    "GovernanceError": "errors",
    "LedgerCorrupt": "errors",
    "LedgerError": "errors",
    "LoopRunning": "errors",
    "OptionError": "errors",
    "ProposalError": "errors",
    "RefError": "errors",
    "RunCancelled": "errors",
    "RunDirError": "errors",
    "RunDirInUse": "errors",
    "RunDirMismatch": "errors",
    "Transient": "errors",
    "UnknownArtifact": "errors",
    "VoidScore": "errors",
    "WrongThread": "errors",
}

__all__ = sorted([*_HOMES, "__version__"])

# The library never prints and configures no handler: a host that wants its log lines attaches its own.
logging.getLogger(__name__).addHandler(logging.NullHandler())


if not TYPE_CHECKING:  # a checker that saw this would believe in every misspelt name

    def __getattr__(name: str) -> object:
        """Load the module that holds ``name``, and keep what was found for the next use."""
        if name == "__version__":
            found: object = _installed_version()
        elif name in _HOMES:
            found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Name what can be imported, loaded or not."""
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(__name__)
    except PackageNotFoundError:  # a source tree on the path, never installed
        return "0+source"

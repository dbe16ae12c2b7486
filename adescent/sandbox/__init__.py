"""How a worker process is confined: the levels, what each takes away, and what is reached on this machine.

Names load on first use: a worker, which confines itself, loads no more than that takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adescent.doors import door

if TYPE_CHECKING:
    from adescent.sandbox.admission import Admission as Admission
    from adescent.sandbox.bubblewrap import bubblewrap_command as bubblewrap_command
    from adescent.sandbox.confinement import allow_cpu as allow_cpu
    from adescent.sandbox.confinement import confine as confine
    from adescent.sandbox.environment import environment_of as environment_of
    from adescent.sandbox.levels import LEVELS as LEVELS
    from adescent.sandbox.levels import Level as Level
    from adescent.sandbox.levels import isolates as isolates
    from adescent.sandbox.levels import reach as reach
    from adescent.sandbox.reading import interpreter_paths as interpreter_paths
    from adescent.sandbox.redaction import Redactor as Redactor
    from adescent.sandbox.workspaces import Workspaces as Workspaces

_HOMES = {
    "Admission": "admission",
    "LEVELS": "levels",
    "Level": "levels",
    "Redactor": "redaction",
    "Workspaces": "workspaces",
    "allow_cpu": "confinement",
    "bubblewrap_command": "bubblewrap",
    "confine": "confinement",
    "environment_of": "environment",
    "interpreter_paths": "reading",
    "isolates": "levels",
    "reach": "levels",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__, _HOMES)

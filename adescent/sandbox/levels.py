"""The levels of confinement, and which of them can be reached on this machine."""

from __future__ import annotations

from adescent.errors import SandboxUnavailable
from adescent.workspec import Level, SandboxSpec

__all__ = ["LEVELS", "Level", "isolates", "reach"]

LEVELS: tuple[Level, ...] = ("none", "limits", "landlock", "bubblewrap")
"""Weakest first; what each stops is in the documentation, as a table."""


def isolates(level: Level) -> bool:
    """Whether code is kept from what it was not given: then an interpreter serves one lease, and scorers another."""
    return level in ("landlock", "bubblewrap")


def reach(spec: SandboxSpec) -> Level:
    """The level that will be used here: the one ``spec`` asks for or, where that cannot be had, the next lower one.

    ``auto`` is the highest that works. What works is tried out, once a process, which takes up to a few seconds where
    something hangs. Raises SandboxUnavailable, naming what to install or enable, if ``spec.require``.
    """
    asked = LEVELS[-1] if spec.level == "auto" else spec.level
    wanting = ""
    for level in reversed(LEVELS[: LEVELS.index(asked) + 1]):
        missing = _missing(level, network=spec.network)
        if not missing:
            if wanting and spec.require and spec.level != "auto":
                raise SandboxUnavailable(asked, level, wanting)
            return level
        wanting = wanting or missing
    raise AssertionError(f"{LEVELS[0]} needs nothing, so it is always reached")


def _missing(level: Level, *, network: bool) -> str:
    """What ``level`` lacks here, in words; empty when it works."""
    if level == "landlock":
        from adescent.sandbox import landlock

        return landlock.missing()
    if level == "bubblewrap":
        from adescent.sandbox import bubblewrap

        return bubblewrap.missing(network=network)
    return ""

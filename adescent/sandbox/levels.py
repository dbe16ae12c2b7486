"""The levels of confinement, what each keeps code from, and which of them can be reached on this machine.

===================================  ==========  ============  ==============
code is kept from                    ``limits``  ``landlock``  ``bubblewrap``
===================================  ==========  ============  ==============
using more memory, more open files   yes (1)     yes (1)       yes (1)
reading the host's environment       no (2)      yes           yes
reading what it was not given        no          yes           yes
writing outside of its workspace     no          yes (3)       yes
filling the disk                     no          no            yes (4)
the network, programs beside it      no          yes (5)       yes (5)
signals to, tracing of other code    no          yes (6)       yes
having more than 512 processes       yes (7)     yes (7)       yes (8)
leaving its group, so as to live on  no          no            yes
===================================  ==========  ============  ==============

(1) Each process; memory that processes share is not counted, nor what many take together: where that matters, run the
host in a control group of its own. (2) It is not handed on, but /proc shows it. (3) Mode and times of files of the same
user can be changed. (4) It writes into memory, of bounded size; how many files there are is bounded by the deadline
only. (5) Where the spec allows the network, that is the internet's protocols, ports of this machine included.
(6) Signals from Linux 6.12 on. (7) On top of what runs; and not for root, whose processes the kernel does not count.
(8) For root only where all that is read can be read by everyone.
"""

from __future__ import annotations

from adescent.errors import SandboxUnavailable
from adescent.workspec import Level, SandboxSpec

__all__ = ["LEVELS", "Level", "isolates", "reach"]

LEVELS: tuple[Level, ...] = ("none", "limits", "landlock", "bubblewrap")
"""Weakest first."""


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

        try:
            return bubblewrap.missing(network=network)
        except OSError as error:  # not what it found, which is kept, but that it could not look
            return f"bubblewrap cannot be tried out ({error}): make room for temporary files."
    return ""

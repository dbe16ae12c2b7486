"""The environment of a worker: built from names, so that what nobody named does not get in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from adescent.workspec import Level, SandboxSpec

__all__ = ["environment_of"]

# How programs, shared libraries, texts and times are found and read: without these few, ordinary code fails.
PASSED = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ")
PASSED_PREFIX = "LC_"
OWN_PLACE = ("HOME", "TMPDIR")


def environment_of(
    spec: SandboxSpec, level: Level, workspace: str, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables a worker at ``level`` starts with.

    At ``none`` all of ``environ``. Else PATH, LD_LIBRARY_PATH, LANG, TZ, ``LC_*`` and those that ``spec.env`` names, as
    far as they are set; HOME and TMPDIR are the ``workspace``, unless they are named too.
    """
    if level == "none":
        return dict(environ)
    named = {*PASSED, *spec.env}
    passed = {name: value for name, value in environ.items() if name in named or name.startswith(PASSED_PREFIX)}
    return {**dict.fromkeys(OWN_PLACE, workspace), **passed}

"""What `multiprocessing` remembers between two rollouts of things that have ended with the first of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Any

__all__ = ["forget_helpers"]

HELPERS = (
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid", "_forkserver_alive_fd"),
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid", "_fd"),
)
"""Processes that it starts once and then takes to be there: module, object, and where that keeps pid and pipe."""


def forget_helpers(ended: Collection[int]) -> None:
    """Have it start anew, when it next needs them, those of its helpers that are among ``ended``, and its directory.

    It has no public way to be told. Where a release keeps them elsewhere, nothing happens.
    """
    if (process := sys.modules.get("multiprocessing.process")) is None:
        return
    for module, name, pid, pipe in HELPERS:
        helper: Any = getattr(sys.modules.get(module), name, None)
        if getattr(helper, pid, None) in ended:
            setattr(helper, pid, None)
            with suppress(OSError, TypeError, AttributeError):  # closed already, or none
                os.close(getattr(helper, pipe))
            setattr(helper, pipe, None)
    getattr(process.current_process(), "_config", {}).pop("tempdir", None)  # it lay in the workspace

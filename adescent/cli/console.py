"""The console that writes to stdout."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from rich.console import Console

__all__ = ["OutputConsole"]


class OutputConsole(Console):
    """Writes to stdout and leaves it to the command what becomes of a closed pipe; rich would end the process."""

    def on_broken_pipe(self) -> NoReturn:
        """Nobody reads any more."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

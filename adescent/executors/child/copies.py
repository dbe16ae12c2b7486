"""Copies of a worker, which code makes that forks: what they do there is theirs, but they do not go on as workers."""

from __future__ import annotations

import os

__all__ = ["Original"]


class Original:
    """The process in which this was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def end_copy(self) -> None:
        """End this process at once if it is another one: it has come back from what it was made for."""
        if os.getpid() != self._pid:
            os._exit(1)

"""The working directory of a worker, and how it is left to the next rollout."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["Workspace"]


class Workspace:
    """Where rollouts run. ``own``: nobody else works there, so that what a rollout left may be removed."""

    def __init__(self, path: Path, *, own: bool) -> None:
        self._path = path
        self._own = own

    def restore(self) -> None:
        """Make it as it was: empty if it is the worker's own, and the current directory.

        Raises OSError when that is not to be had.
        """
        if self._own:
            self._path.mkdir(parents=True, exist_ok=True)
        os.chdir(self._path)
        if self._own:
            self._empty()

    def _empty(self) -> None:
        with os.scandir(self._path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry)
                else:
                    Path(entry).unlink()

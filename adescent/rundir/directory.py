"""A run's directory: a lock, the identity of the run it belongs to, the ledger's place, and the last result."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from adescent.errors import RunDirError, RunDirInUse, RunDirMismatch

__all__ = ["RunDirectory"]

SCHEMA = 1

LOCK = "lock"
MANIFEST = "run.json"
RESULT = "result.json"
PARTIAL = ".partial"
"""What is being written has this suffix until it is complete."""


class RunDirectory:
    """Holds a run directory for as long as the ``with`` block lasts.

    ``identity`` is what must be the same for a run to continue there: artifact id, strategy, seed, digests of the
    splits. Entering raises RunDirInUse, RunDirMismatch, or RunDirError when the place cannot be used at all. The lock
    is the kernel's, so it ends with its process, however that ends.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self._identity = dict(identity)
        self._lock: FileIO | None = None
        self._given_back = False

    @property
    def ledger(self) -> Path:
        """Where the ledger's repository is."""
        return self.path / "ledger.git"

    def open(self) -> Self:
        """Take the directory, once; `close` gives it back, also when it is called from another thread meanwhile."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _refuse_foreign(self.path)
            self._lock = _locked(self.path / LOCK)
            self._check_identity()
        except OSError as error:
            self.close()
            raise RunDirError(f"run directory {self.path} cannot be used: {error}") from error
        except BaseException:
            self.close()
            raise
        if self._given_back:
            self.close()
        return self

    def close(self) -> None:
        """Let others have the directory. Idempotent."""
        self._given_back = True
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def save_result(self, text: str) -> None:
        """Keep the result of a run that ended. Raises RunDirError when it cannot be written."""
        result = self.path / RESULT
        try:
            _replace(result, text)
        except OSError as error:
            raise RunDirError(f"{result} cannot be written ({error}): free space or check permissions.") from error

    @classmethod
    def load_result(cls, path: Path) -> str | None:
        """The text that `save_result` kept, or None when no run has ended there. Raises RunDirError where none was."""
        if not (path / MANIFEST).is_file():
            raise RunDirError(f"{path} is no run directory: it holds no {MANIFEST}.")
        try:
            return (path / RESULT).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunDirError(f"the result in {path} cannot be read: {error}") from error

    def _check_identity(self) -> None:
        manifest = self.path / MANIFEST
        wanted = {"schema": SCHEMA, **self._identity}
        if not manifest.exists():
            _replace(manifest, json.dumps(wanted, indent=2, sort_keys=True) + "\n")
            return
        stored = _read_manifest(manifest)
        different = sorted(key for key in wanted.keys() | stored.keys() if wanted.get(key) != stored.get(key))
        if different:
            raise RunDirMismatch(str(self.path), "; ".join(_told(key, stored, wanted) for key in different))


def _told(key: str, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """A difference in words. Tasks are stored as digests, which tell a reader nothing."""
    if key.endswith("tasks"):
        return f"its {key} are others"
    return f"{key}: {stored.get(key)!r} there, {wanted.get(key)!r} here"


def _refuse_foreign(directory: Path) -> None:
    """A directory that holds anything and is not one of a run stays as it is: nothing in it is opened."""
    ours = {LOCK, MANIFEST + PARTIAL}
    others = sorted(entry.name for entry in directory.iterdir() if entry.name not in ours)
    if others and not (directory / MANIFEST).exists():
        raise RunDirError(f"{directory} holds other files ({', '.join(others[:3])}): choose an empty directory.")


def _locked(path: Path) -> FileIO:
    """Take the lock and leave a note of who holds it, for whoever is refused. It never outlives a failure to do so."""
    with ExitStack() as failing:
        # Unbuffered: what a full disk refused to take would be written again by closing, and refused again.
        lock = failing.enter_context(path.open("a+b", buffering=0))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RunDirInUse(str(path.parent), lock.read().decode(errors="replace").strip()) from None
        lock.truncate(0)
        lock.write(b"process %d\n" % os.getpid())
        failing.pop_all()
        return lock


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunDirError(f"{path} is not what a run wrote there ({error}): choose another directory.") from error
    if not isinstance(stored, dict):
        raise RunDirError(f"{path} is not what a run wrote there: choose another directory.")
    return stored


def _replace(path: Path, text: str) -> None:
    """Write all or nothing: a reader sees the old text or the new one."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)

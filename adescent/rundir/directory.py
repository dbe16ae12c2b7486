"""A run's directory: a lock, the identity of the run it belongs to, the ledger's place, and the last result."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from adescent.errors import RunDirError, RunDirInUse, RunDirMismatch

__all__ = ["RunDirectory"]

SCHEMA = 1


class RunDirectory:
    """Holds a run directory for as long as the ``with`` block lasts.

    ``identity`` is what must be the same for a run to continue there: artifact id, strategy, seed, digests of the
    splits. Entering raises RunDirInUse, RunDirMismatch, or RunDirError when the place cannot be used at all. The lock
    is the kernel's, so it ends with its process, however that ends.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self._identity = dict(identity)
        self._lock: IO[str] | None = None

    @property
    def ledger(self) -> Path:
        """Where the ledger's repository is."""
        return self.path / "ledger.git"

    @property
    def _manifest(self) -> Path:
        return self.path / "run.json"

    @property
    def _result(self) -> Path:
        return self.path / "result.json"

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.path)
            self._check_identity()
        except OSError as error:
            self._release()
            raise RunDirError(f"run directory {self.path} cannot be used: {error}") from error
        except RunDirError:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def save_result(self, text: str) -> None:
        """Keep the result of a run that ended. Raises RunDirError when it cannot be written."""
        try:
            _replace(self._result, text)
        except OSError as error:
            raise RunDirError(
                f"{self._result} cannot be written ({error}): free space or check permissions."
            ) from error

    @classmethod
    def load_result(cls, path: Path) -> str | None:
        """The text that `save_result` kept, or None when no run has ended there. Raises RunDirError where none was."""
        directory = cls(path, {})
        if not directory._manifest.is_file():
            raise RunDirError(f"{path} is no run directory: it holds no {directory._manifest.name}.")
        return directory._result.read_text() if directory._result.is_file() else None

    def _check_identity(self) -> None:
        if not self._manifest.exists():
            others = sorted(entry.name for entry in self.path.iterdir() if entry.name != LOCK)
            if others:
                raise RunDirError(
                    f"{self.path} holds other files ({', '.join(others[:3])}): choose an empty directory."
                )
            _replace(self._manifest, json.dumps({"schema": SCHEMA, **self._identity}, indent=2, sort_keys=True) + "\n")
            return
        stored = _read_manifest(self._manifest)
        wanted = {"schema": SCHEMA, **self._identity}
        different = sorted(key for key in wanted.keys() | stored.keys() if wanted.get(key) != stored.get(key))
        if different:
            told = (f"{key}: {stored.get(key)!r} there, {wanted.get(key)!r} here" for key in different)
            raise RunDirMismatch(str(self.path), "; ".join(told))

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


LOCK = "lock"


def _locked(directory: Path) -> IO[str]:
    lock = (directory / LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise RunDirInUse(str(directory), holder) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}\n")
    lock.flush()
    return lock


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
    except ValueError as error:
        raise RunDirError(f"{path} is not what a run wrote there ({error}): choose another directory.") from error
    if not isinstance(stored, dict):
        raise RunDirError(f"{path} is not what a run wrote there: choose another directory.")
    return stored


def _replace(path: Path, text: str) -> None:
    """Write all or nothing: a reader sees the old text or the new one."""
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)

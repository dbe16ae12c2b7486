"""Leases on disk: who holds a workspace, since when nobody has said so any more, and what goes with it.

A lease ``ID`` is the file ``ID.lease`` beside the workspace ``ID``. It is there before the workspace is and as long as
anything of it is left. Its holder keeps it locked, which the kernel ends with the process, and touches it every now and
then, which other hosts see that share the file system and not the locks.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from errno import ELOOP
from io import FileIO
from pathlib import Path
from typing import Any, Self

from adescent.checks import is_duration
from adescent.errors import ContractError
from adescent.sandbox.demolition import DIRECTORY, OURS, demolish

__all__ = ["Lease", "lease_ids", "lease_root", "renew_lease"]

SUFFIX = ".lease"
LONGEST_OWNER = 200
NOTE_BYTES = 4096
_LEASE = re.compile(r"([0-9a-f]{16})\.lease")


@contextmanager
def lease_root(path: Path) -> Iterator[int]:
    """The open directory of all leases, made if need be: this user's own, and nobody else can write to it.

    Raises ContractError when what is there is anything else: others could then have workspaces made or removed at
    places of their choice.
    """
    try:
        path.mkdir(OURS, parents=True, exist_ok=True)
        root = os.open(path, DIRECTORY)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise _unfit(path, error.strerror) from error
    except OSError as error:
        raise (_unfit(path, error.strerror) if error.errno == ELOOP else error) from error
    try:
        found = os.fstat(root)
        if found.st_uid != os.geteuid():
            raise _unfit(path, f"it belongs to user {found.st_uid}")
        if found.st_mode & 0o022:
            raise _unfit(path, "others may write to it")
        yield root
    finally:
        os.close(root)


def _unfit(path: Path, why: str | None) -> ContractError:
    return ContractError(
        f"{path} cannot hold workspaces ({why}): it must be a directory of this user alone and no link to one. "
        "Remove it, or name another one with Workspaces(root=…)."
    )


def lease_ids(root: int) -> list[str]:
    """The ids of all leases, held or not."""
    return [match[1] for match in map(_LEASE.fullmatch, os.listdir(root)) if match]


def renew_lease(root: int, id: str) -> None:
    """Say that the holder is alive. A lease that has been given back meanwhile stays gone."""
    try:
        os.utime(id + SUFFIX, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        pass


class Lease:
    """A lease that this object has locked, in order to hold it or to remove it."""

    def __init__(self, id: str, file: FileIO) -> None:
        self.id = id
        self._file = file

    @classmethod
    def take(cls, root: int, owner: str, ttl: float) -> Self:
        """A new lease with an empty workspace. Raises OSError when the disk refuses either."""
        note = {"owner": owner[:LONGEST_OWNER], "host": os.uname().nodename, "pid": os.getpid(), "ttl": ttl}
        while True:
            id = secrets.token_hex(8)
            lease = cls(id, _opened(root, id, os.O_CREAT | os.O_EXCL))
            try:
                if lease._lock(root):
                    lease._file.write(json.dumps(note).encode())
                    os.mkdir(id, OURS, dir_fd=root)
                    return lease
            except OSError:
                with closing(lease):
                    lease.remove(root, time.monotonic())
                raise
            lease.close()

    @classmethod
    def orphan(cls, root: int, id: str, ttl: float) -> Self | None:
        """The lease if it has expired and nobody holds it; ``ttl`` is for one whose holder did not get to say it."""
        try:
            lease = cls(id, _opened(root, id))
        except FileNotFoundError:
            return None
        if lease._expired(root, ttl) and lease._lock(root) and lease._expired(root, ttl):
            return lease
        lease.close()
        return None

    def _lock(self, root: int) -> bool:
        """Whether the lease is this object's now: not somebody else's, and not gone before it could be locked."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(self.id + SUFFIX, dir_fd=root, follow_symlinks=False)  # an id is never given again
        except (BlockingIOError, FileNotFoundError):
            return False
        return True

    def _expired(self, root: int, ttl: float) -> bool:
        # Both times are the file system's: hosts need not agree on theirs.
        os.utime(root)
        age = os.fstat(root).st_mtime - os.fstat(self._file.fileno()).st_mtime
        return age > self._ttl(ttl)

    def _ttl(self, otherwise: float) -> float:
        try:
            note: Any = json.loads(os.pread(self._file.fileno(), NOTE_BYTES, 0))
            ttl = note["ttl"]
        except (ValueError, TypeError, KeyError):  # the holder ended before it could write it
            return otherwise
        return ttl if is_duration(ttl) else otherwise

    def remove(self, root: int, until: float) -> bool:
        """Remove the workspace and then the lease, and tell whether both are gone.

        At ``until`` (seconds of `time.monotonic`) what is left stays for a further call, this object's or that of a
        reaper. Raises OSError when something cannot be removed.
        """
        if not demolish(root, self.id, self.id + ".gone", until):
            return False
        try:
            os.unlink(self.id + SUFFIX, dir_fd=root)
        except FileNotFoundError:  # somebody has cleared the whole root away
            pass
        return True

    def close(self) -> None:
        """End the lock. What has not been removed is for a reaper, once it has expired."""
        self._file.close()


def _opened(root: int, id: str, flags: int = 0) -> FileIO:
    access = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags
    return FileIO(os.open(id + SUFFIX, access, 0o600, dir_fd=root), "r+")

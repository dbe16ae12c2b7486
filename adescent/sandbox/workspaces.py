"""Directories for worker processes: leased on disk, renewed while their holder lives, reaped by a later run."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from anyio import CancelScope
from anyio.lowlevel import checkpoint

from adescent.checks import is_duration, shown
from adescent.errors import OptionError
from adescent.own_thread import in_own_thread
from adescent.sandbox.leases import Lease, lease_ids, lease_root, renew_lease
from adescent.workspec import Workspace

__all__ = ["Workspaces"]

logger = logging.getLogger("adescent")

SLICE_SECONDS = 0.2
"""How long a removal goes on before it looks whether it has been cancelled."""
SLICES = 300


class Workspaces:
    """A `SandboxProvider` that keeps its leases under one directory of this machine, or of several that share it.

    ``root`` defaults to a directory of this user's in the machine's place for temporary files. It is made if need be;
    one that others may write to, that belongs to somebody else or that is a link is refused with a ContractError by
    every call. A lease lasts ``ttl`` seconds without being renewed, and longer where the kernel can tell that its
    holder lives. A workspace that is not released, because its holder was killed, stays until then for `reap`.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, ttl: float = 60.0) -> None:
        if not is_duration(ttl):
            raise OptionError(f"Workspaces(ttl={shown(ttl)}) must be a number of seconds above 0.")
        self.ttl = ttl
        self.root = _own_root() if root is None else Path(root).absolute()
        self._held: dict[str, Lease] = {}

    async def acquire(self, owner: str) -> Workspace:
        """An empty directory that is nobody else's; ``owner`` is noted in the lease for people who look.

        Raises ContractError where the root may not be used, and OSError when the disk refuses.
        """
        lease = await in_own_thread(self._take, owner)
        self._held[lease.id] = lease
        return Workspace(str(self.root / lease.id), lease.id)

    async def release(self, workspace: Workspace) -> None:
        """Remove the directory, whatever is in it. Again, or of a workspace that is not held here, it does nothing.

        A cancelled release goes on for 0.2 s. What is left then, or cannot be removed, is left to a later `reap`.
        """
        lease = self._held.pop(workspace.id, None)
        if lease is not None:
            await self._remove(lease)

    async def renew(self) -> None:
        """Renew every lease that this object holds: to be called every third of ``ttl``."""
        if self._held:
            await in_own_thread(self._renew, tuple(self._held))

    async def reap(self) -> int:
        """Remove every workspace whose lease has expired and whose holder is gone; returns how many."""
        removed = 0
        for id in await in_own_thread(self._ids):
            orphan = await in_own_thread(self._orphan, id)
            if orphan is not None:
                removed += await self._remove(orphan)
        return removed

    async def _remove(self, lease: Lease) -> bool:
        try:
            for _ in range(SLICES):
                with CancelScope(shield=True):  # the slice is its deadline
                    if await in_own_thread(self._remove_some, lease):
                        return True
                await checkpoint()
            logger.warning("workspace %s is being written to: it is left to a later run.", self.root / lease.id)
        except OSError as error:
            logger.warning("workspace %s cannot be removed yet: %s", self.root / lease.id, error)
        finally:
            lease.close()
        return False

    # What follows runs in threads -----------------------------------------------------------------------------------

    def _take(self, owner: str) -> Lease:
        with lease_root(self.root) as root:
            return Lease.take(root, owner, self.ttl)

    def _renew(self, ids: Sequence[str]) -> None:
        with lease_root(self.root) as root:
            for id in ids:
                renew_lease(root, id)

    def _ids(self) -> list[str]:
        with lease_root(self.root) as root:
            return lease_ids(root)

    def _orphan(self, id: str) -> Lease | None:
        with lease_root(self.root) as root:
            return Lease.orphan(root, id, self.ttl)

    def _remove_some(self, lease: Lease) -> bool:
        with lease_root(self.root) as root:
            return lease.remove(root, time.monotonic() + SLICE_SECONDS)


def _own_root() -> Path:
    return Path(tempfile.gettempdir(), f"adescent-workspaces-{os.geteuid()}")

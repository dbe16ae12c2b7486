"""Giving up what root may do, for good."""

from __future__ import annotations

import os

from adescent.sandbox.syscalls import capset, prctl

__all__ = ["FIRST_UID", "UIDS", "drop_privileges", "leave_root"]

FIRST_UID, UIDS = 1_900_000_000, 1 << 24
"""User ids that no system gives to anyone; each sandbox draws one, so that the kernel counts its processes apart."""

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


def drop_privileges() -> None:
    """Give up every capability of this thread; no program it runs, whatever its mode bits, gives one back."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    capset(0, 0, 0)


def leave_root() -> None:
    """Become a user whom nothing belongs to. Raises OSError without the capabilities that takes."""
    nobody = FIRST_UID + int.from_bytes(os.urandom(8)) % UIDS
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)
    # Else what this process has in /proc would still be root's: it could not even read its own.
    prctl(_PR_SET_DUMPABLE, 1)

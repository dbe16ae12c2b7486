"""A run on disk: whose directory it is, who works in it, and what came of it so far."""

from __future__ import annotations

from adescent.rundir.directory import RunDirectory

__all__ = ["RunDirectory"]

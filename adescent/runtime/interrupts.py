"""Ctrl-C on its way out of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupts_bare"]


@contextmanager
def interrupts_bare() -> Iterator[None]:
    """Let Ctrl-C out of the block as a KeyboardInterrupt.

    trio raises it inside a task, and every task group on its way out would wrap it once more; asyncio cancels instead.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise KeyboardInterrupt from group

"""How a run behaves as a guest in its host's event loop."""

from __future__ import annotations

from anyio.lowlevel import checkpoint

__all__ = ["let_others_run"]

AT_ONCE = 32
"""Tasks that are started before the host gets a turn: each takes some 50 µs to make and to take its first step."""


async def let_others_run(number: int) -> None:
    """Called after each of many things that take a moment, counted from 0: the host gets a turn every so many."""
    if number % AT_ONCE == AT_ONCE - 1:
        await checkpoint()

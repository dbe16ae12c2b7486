"""A line that processes stand in, which the dead leave at once."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from adescent.sandbox.lockpipe import PipeWatch, hold_pipe, is_held

__all__ = ["Line"]

_TICKET = re.compile(r"[0-9]{12}-[0-9a-f]{8}")


class Line:
    """The line whose tickets lie in ``directory``: each is a pipe, held by who has drawn it.

    A ticket that nobody holds is one of the dead, and is removed by who comes across it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def tickets(self) -> list[str]:
        """All tickets, the first in line first."""
        return sorted(path.name for path in self._directory.iterdir() if _TICKET.fullmatch(path.name))

    @contextmanager
    def drawn(self) -> Iterator[str]:
        """A ticket at the end of the line, which is left with the block."""
        ticket, holding = self._draw()
        try:
            yield ticket
        finally:
            self._remove(ticket)
            os.close(holding)

    def before(self, ticket: str, watch: PipeWatch) -> list[int]:
        """Add all who are in front of that ticket to the watch, and return their pipes."""
        living = []
        for other in takewhile(ticket.__gt__, self.tickets()):
            try:
                pipe = watch.add(self._directory / other)
            except FileNotFoundError:  # has left the line meanwhile
                continue
            if is_held(pipe):
                living.append(pipe)
            else:
                self._remove(other)
        return living

    def _draw(self) -> tuple[str, int]:
        while True:
            last = max((int(ticket[:12]) for ticket in self.tickets()), default=0)
            ticket = f"{last + 1:012d}-{secrets.token_hex(4)}"  # never the name of another that was removed
            pipe = self._directory / ticket
            os.mkfifo(pipe, 0o600)
            try:
                holding = hold_pipe(pipe)
            except FileNotFoundError:  # it was taken for one of the dead before it was held
                continue
            assert holding is not None
            if pipe.exists():
                return ticket, holding
            os.close(holding)

    def _remove(self, ticket: str) -> None:
        try:
            (self._directory / ticket).unlink()
        except OSError:  # gone, or left to who finds that nobody holds it
            pass

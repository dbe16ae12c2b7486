"""A number of places that processes share: pipes in a directory, and the line of those who wait for one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from adescent.errors import ContractError
from adescent.sandbox.line import Line
from adescent.sandbox.lockpipe import PipeWatch, hold_pipe, is_held

__all__ = ["Places"]


class Places:
    """The ``n`` places of a directory, which is made if need be and belongs to that number from then on.

    A place is an open file: it is held until that is closed, by its process or by the kernel when that ends. Raises
    ContractError when the directory has another number of places, or cannot be used.
    """

    def __init__(self, directory: Path, n: int) -> None:
        self._line = Line(directory / "line")
        self._paths = [directory / f"place-{number}" for number in range(n)]
        self._likely = os.getpid() % n
        try:
            (directory / "line").mkdir(0o700, parents=True, exist_ok=True)
            found = _settled(directory / "ceiling", str(n))
            for path in self._paths if found == str(n) else ():
                _make_pipe(path)
        except OSError as error:
            raise ContractError(
                f"Admission(directory={str(directory)!r}) cannot be used ({error.strerror}): name a directory on a "
                "local disk that this user may write to."
            ) from error
        if found != str(n):
            raise ContractError(
                f"{directory} admits {found} at once, and n={n} was asked for: give the same n wherever it is shared, "
                "or name another directory."
            )

    def take_now(self) -> int | None:
        """A place, if there is one that nobody is waiting for."""
        if self._line.tickets():
            return None
        n = len(self._paths)
        return self._take((self._likely + step) % n for step in range(n))

    async def take(self) -> int:
        """A place, once more are free than others are in front.

        So one who is in front and does not come, its process being stopped, keeps one place back, and not all of them.
        """
        with self._line.drawn() as ticket, PipeWatch() as watch:
            places = [watch.add(path) for path in self._paths]
            before = self._line.before(ticket, watch)
            while True:
                free = [number for number, pipe in enumerate(places) if not is_held(pipe)]
                if len(free) > sum(map(is_held, before)):
                    place = self._take(free)
                    if place is not None:
                        return place
                await watch.change()

    def _take(self, numbers: Iterable[int]) -> int | None:
        for number in numbers:
            place = hold_pipe(self._paths[number])
            if place is not None:
                self._likely = number
                return place
        return None


def _settled(path: Path, wanted: str) -> str:
    """What the first to come has settled: a link comes into being with its text, and once."""
    try:
        path.symlink_to(wanted)
    except FileExistsError:
        pass
    return str(path.readlink())


def _make_pipe(path: Path) -> None:
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass

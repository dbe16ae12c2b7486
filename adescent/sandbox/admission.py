"""A ceiling on what is under way at once, shared by tasks, runs and processes."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import Lock, Semaphore

from adescent.checks import need_whole
from adescent.errors import OptionError, WrongThread
from adescent.sandbox.places import Places

__all__ = ["Admission"]


class Admission:
    """An `AdmissionControl` that lets at most ``n`` in at once, over all that share ``directory``.

    That may be any number of objects in any number of processes of this machine; without a directory it is this object
    alone. Tasks that use one object are let in in the order they came, objects that share a directory take turns, and
    what a killed process held is free at once. The directory is made if need be and is for one ``n`` only.

    Raises OptionError for an ``n`` that is not a whole number from 1 up, and ContractError for a directory that is in
    use with another ``n`` or cannot be used. While it is in use an object belongs to one event loop.
    """

    def __init__(self, n: int, directory: str | os.PathLike[str] | None = None) -> None:
        need_whole("n", n, 1, OptionError, of="Admission")
        self.n = n
        self._places = None if directory is None else Places(Path(directory).absolute(), n)
        self._users = 0

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """A block that is entered when there is a place, and gives it back when it is left.

        A wait that is cancelled takes no place. Raises WrongThread while another event loop uses this object.
        """
        place = await self._enter()
        try:
            yield
        finally:
            self._leave(place)

    async def _enter(self) -> int | None:
        if self._users == 0:
            self._begin()
        elif self._owner != threading.get_ident():
            raise WrongThread("an Admission in use")
        self._users += 1
        try:
            return await self._take()
        except BaseException:
            self._users -= 1
            raise

    def _begin(self) -> None:
        self._owner = threading.get_ident()
        # Of the loop that runs now: the next to use this object may run another.
        if self._places is None:
            self._free = Semaphore(self.n, fast_acquire=True)
        else:
            self._turn = Lock(fast_acquire=True)

    async def _take(self) -> int | None:
        if self._places is None:
            await self._free.acquire()
            return None
        async with self._turn:  # one of this object stands in line for a place, the others behind it
            place = self._places.take_now()
            return await self._places.take() if place is None else place

    def _leave(self, place: int | None) -> None:
        self._users -= 1
        if place is None:
            self._free.release()
        else:
            os.close(place)

"""Tasks that belong to a shared object and not to whoever opened it.

A task lives in a task group, and a task group ends with the block that opened it. An executor, though, may be entered
by several runs, and the first to enter need not be the last to leave. So everybody who enters brings a task group; a
service runs in one of them, and moves on to another when its own is left or cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

from anyio import create_task_group, get_cancelled_exc_class, get_current_task, move_on_after
from anyio.abc import TaskGroup
from attrs import define, field

from adescent.errors import ContractError, WrongThread

__all__ = ["Hosting"]


@define(eq=False)
class _Guest:
    """Somebody who has entered. ``leaving`` ones host nothing any more."""

    task: int
    group: TaskGroup
    leaving: bool = False


@define(eq=False)
class _Service:
    run: Callable[[], Awaitable[None]]
    name: str


@define(eq=False)
class Hosting:
    """Entered and left any number of times, by any tasks of one event loop; runs services as long as somebody is in.

    A service is restarted elsewhere when its host leaves in the middle of it, so it must be safe to cancel at each of
    its awaits and to begin again. It ends for good by returning.
    """

    what: str
    _guests: list[_Guest] = field(factory=list)
    _homeless: list[_Service] = field(factory=list)
    _thread: int = 0
    _inside: int = 0
    """Who has entered and not begun to leave: there are more guests than that while somebody closes."""

    @property
    def is_open(self) -> bool:
        """Whether anybody is in, and not about to go."""
        return self._inside > 0

    def check_open(self) -> None:
        """Raise ContractError when nobody is in, and WrongThread outside the thread of the event loop."""
        if not self.is_open:
            raise ContractError(f"{self.what} is not running: enter it with `async with` first.")
        self._check_thread()

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise WrongThread(f"{self.what}, once open,")

    async def enter(self) -> None:
        """Come in, from the task that will also leave."""
        if self._guests:
            self._check_thread()
        self._thread = threading.get_ident()
        await self._settle()
        self._inside += 1

    async def leave(self, close: Callable[[], Awaitable[None]], grace: float) -> None:
        """Go out. Whoever is the last has ``close()`` called first, shielded, for at most ``grace`` seconds.

        Raises ContractError in a task that has not entered.
        """
        task = get_current_task().id
        guest = next((each for each in reversed(self._guests) if each.task == task), None)
        if guest is None:
            raise ContractError(f"{self.what} is left by a task that has not entered it: do both in one.")
        self._inside -= 1
        try:
            if not self.is_open:
                await self._close(guest, close, grace)
        finally:
            await self._release(guest)

    def start(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a service until it returns."""
        self._house(_Service(run, name))

    async def _settle(self) -> _Guest:
        guest = _Guest(get_current_task().id, create_task_group())
        await guest.group.__aenter__()
        self._guests.append(guest)
        homeless, self._homeless = self._homeless, []
        for service in homeless:
            self._house(service)
        return guest

    async def _close(self, guest: _Guest, close: Callable[[], Awaitable[None]], grace: float) -> None:
        """Close with the services running: in a group that whatever has cancelled the guest does not reach."""
        with move_on_after(grace, shield=True):
            inner = await self._settle()
            self._vacate(guest)
            try:
                await close()
            finally:
                await self._release(inner)

    async def _release(self, guest: _Guest) -> None:
        self._vacate(guest)
        self._guests.remove(guest)
        # Never with the error of the block it belongs to: the group would wrap it, and its caller wants it bare.
        await guest.group.__aexit__(None, None, None)

    def _vacate(self, guest: _Guest) -> None:
        guest.leaving = True
        guest.group.cancel_scope.cancel()

    def _house(self, service: _Service) -> None:
        host = next((guest for guest in self._guests if not guest.leaving), None)
        if host is None:
            self._homeless.append(service)
        else:
            host.group.start_soon(self._serve, host, service, name=service.name)

    async def _serve(self, host: _Guest, service: _Service) -> None:
        try:
            await service.run()
        except get_cancelled_exc_class():
            host.leaving = True  # or a host that is being cancelled would get the service back for ever
            self._house(service)
            raise

"""Back-pressure: how many cards each worker may have unmerged."""

from __future__ import annotations

import anyio

__all__ = ["Credits"]


class Credits:
    """A worker takes a credit before a rollout; it comes back when its card is settled or when no card results.

    There are never more cards under way than credits, so a channel with as many places never blocks its senders.
    """

    def __init__(self, n_units: int, each: int) -> None:
        self.total = n_units * each
        self._free = [each] * n_units
        self._returned = [anyio.Event() for _ in range(n_units)]

    def try_take(self, unit: int) -> bool:
        """Take one of the unit's credits if it has any left."""
        if self._free[unit] == 0:
            return False
        self._free[unit] -= 1
        return True

    def give_back(self, unit: int) -> None:
        """Return one credit to the unit."""
        self._free[unit] += 1
        self._returned[unit].set()

    async def wait(self, unit: int) -> None:
        """Return once the unit has a credit. The event is renewed before the count is read, so none is missed."""
        while self._free[unit] == 0:
            self._returned[unit] = returned = anyio.Event()
            await returned.wait()

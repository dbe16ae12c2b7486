"""One score on its way: who pays for it, who waits for it, and what came of it."""

from __future__ import annotations

from anyio import CancelScope, Event
from attrs import define, field

from adescent.budget import Purpose, Reservation
from adescent.verifier.readings import Trial
from adescent.workspec import RolloutSpec

__all__ = ["Evaluation"]


@define(eq=False)
class Evaluation:
    """One score that is being bought. It goes on as long as someone is ``waiting``, whoever asked for it first.

    ``scope`` is there once it runs; before that it can be dropped without having cost anything.
    """

    key: str
    spec: RolloutSpec
    purpose: Purpose
    fresh: bool
    waiting: int = 0
    queued: bool = False
    reservation: Reservation = field(init=False)
    scope: CancelScope | None = field(default=None, init=False)
    trial: Trial | None = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)
    _settled: Event | None = field(default=None, init=False)

    @property
    def settled(self) -> bool:
        """Whether there is a trial or an error; neither changes any more."""
        return self.trial is not None or self.error is not None

    def settle(self, *, trial: Trial | None = None, error: Exception | None = None) -> None:
        """Tell everyone who waits. The first word stands."""
        if self.settled:
            return
        self.trial, self.error = trial, error
        if self._settled is not None:
            self._settled.set()

    async def answer(self) -> Trial:
        """Wait until it is settled. Raises the error where it ended in one."""
        if not self.settled:
            # Made by the first who has to wait: most evaluations of a batch are settled when their turn comes.
            event = self._settled = self._settled or Event()
            await event.wait()
        if self.error is not None:
            raise self.error
        assert self.trial is not None
        return self.trial

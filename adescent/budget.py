"""What a run may spend, and the account that holds it to that.

A hard budget is never overdrawn: whatever is about to be done reserves what it may need, all or nothing, without
waiting, and gives back what it did not use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from attrs import field, frozen

from adescent.checks import is_number, need_whole, shown
from adescent.errors import BudgetExhausted, ContractError

__all__ = ["Account", "Budget", "Purpose", "Reservation"]

Purpose = Literal[
    "seed",
    "noise",
    "rollout",
    "proposal",
    "self-verify",
    "rebase",
    "rule",
    "gate",
    "audit",
    "promotion",
    "final",
    "test",
]


def _count(_: Any, attribute: Any, value: int | None) -> None:
    if value is not None:
        need_whole(attribute.name, value, 1, ContractError, of="Budget", otherwise="; leave it out for no limit")


def _seconds(_: Any, attribute: Any, value: float | None) -> None:
    if value is not None and not (is_number(value) and value > 0):
        given = f"Budget({attribute.name}={shown(value)})"
        raise ContractError(f"{given} must be a number above 0; leave it out for no limit.")


@frozen
class Budget:
    """Hard limits of a run; None is no limit.

    ``rollouts`` counts the workers' leases, ``calls`` every invocation of run, propose and oracle for any purpose
    (retries count, scorers do not), ``seconds`` is wall time on the event loop's clock.
    """

    rollouts: int | None = field(default=None, validator=_count)
    calls: int | None = field(default=None, validator=_count)
    seconds: float | None = field(default=None, validator=_seconds)


class Account:
    """Spending against a `Budget`, metered by purpose. Belongs to one event loop; nothing here waits."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rollouts = 0
        self.calls = 0
        self.by_purpose: dict[Purpose, int] = {}
        self._reserved = 0
        self._set_aside: dict[Purpose, int] = {}
        self.refused: set[Purpose] = set()
        """Purposes for which what was asked for was not there."""

    def set_aside(self, purpose: Purpose, calls: int) -> None:
        """Keep ``calls`` for one purpose, out of reach of the others.

        Raises ContractError, and keeps nothing, when the budget cannot cover it: the run would have nothing to report.
        """
        kept = {**self._set_aside, purpose: self._set_aside.get(purpose, 0) + calls}
        limit = self.budget.calls
        if limit is not None and limit < self.calls + self._reserved + sum(kept.values()):
            needed = ", ".join(f"{amount} for {name}" for name, amount in kept.items())
            raise ContractError(
                f"Budget(calls={limit}) does not cover what every run measures ({needed}): raise it, "
                "or use fewer held-out or test tasks."
            )
        self._set_aside = kept

    def release(self, purpose: Purpose) -> None:
        """Give back what is still set aside for a purpose."""
        self._set_aside.pop(purpose, None)

    def left(self, purpose: Purpose) -> int | None:
        """Calls this purpose may still reserve, or None without a limit."""
        if self.budget.calls is None:
            return None
        others = sum(amount for name, amount in self._set_aside.items() if name != purpose)
        return max(0, self.budget.calls - self.calls - self._reserved - others)

    def take_leases(self, wanted: int, calls: int, spare: int = 0) -> tuple[int, str]:
        """Take up to ``wanted`` rollouts and hold the ``calls`` each may make.

        Returns how many the budget granted, and what ran out (``rollouts`` or ``calls``) where it granted fewer.
        ``spare`` calls are left over: what it takes to find out whether anything that the rollouts bring is any good.
        Each call is then paid with `spend_held`, and what a lease did not need goes back with `return_held`. Holding
        them from the start keeps what a lease may do independent of the order in which others finish.
        """
        granted, ran_out = wanted, ""
        if self.budget.rollouts is not None and self.budget.rollouts - self.rollouts < granted:
            granted, ran_out = self.budget.rollouts - self.rollouts, "rollouts"
        left = self.left("rollout")
        if left is not None and max(0, left - spare) // calls < granted:
            granted, ran_out = max(0, left - spare) // calls, "calls"
        self.rollouts += granted
        self._reserved += granted * calls
        self._take_from_own("rollout", granted * calls)
        return granted, ran_out

    def return_leases(self, number: int, calls: int) -> None:
        """Give back leases that were never begun, and the ``calls`` each of them holds."""
        self.return_held(number * calls)
        self.rollouts -= number

    def spend_held(self, purpose: Purpose) -> None:
        """One of a lease's calls is being made. Raises BudgetExhausted when nothing is held."""
        self.return_held(1)
        self.calls += 1
        self.by_purpose[purpose] = self.by_purpose.get(purpose, 0) + 1

    def return_held(self, calls: int) -> None:
        """A lease ends without having made ``calls`` of those it held. Raises BudgetExhausted when fewer are held."""
        if calls > self._reserved:
            raise BudgetExhausted("calls", calls, self._reserved)
        self._reserved -= calls

    def try_call(self, purpose: Purpose, calls: int = 1) -> bool:
        """Take ``calls`` at once; False (and `refused` set) when so many are not left."""
        left = self.left(purpose)
        if left is not None and left < calls:
            self.refused.add(purpose)
            return False
        self._spend(purpose, calls)
        return True

    def hold(self, purpose: Purpose, calls: int) -> Reservation:
        """Hold ``calls`` for a batch that outlives its caller, all or nothing; each is later spent or given back.

        Raises BudgetExhausted (and sets `refused`) when they are not there, before anything is spent.
        """
        left = self.left(purpose)
        if left is not None and left < calls:
            self.refused.add(purpose)
            raise BudgetExhausted("calls", calls, left)
        self._reserved += calls
        return Reservation(self, purpose, calls, self._take_from_own(purpose, calls))

    @contextmanager
    def reserve(self, purpose: Purpose, calls: int) -> Iterator[Reservation]:
        """`hold` for a batch that ends with the block; what it does not spend is given back at the end."""
        reservation = self.hold(purpose, calls)
        try:
            yield reservation
        finally:
            reservation.give_back(reservation.left)

    def return_to_own(self, purpose: Purpose, calls: int) -> None:
        """Set ``calls`` aside again, of those just given back, unless the purpose has been released meanwhile."""
        if purpose in self._set_aside:
            self._set_aside[purpose] += calls

    def _take_from_own(self, purpose: Purpose, calls: int) -> int:
        own = min(self._set_aside.get(purpose, 0), calls)
        if own:
            self._set_aside[purpose] -= own
        return own

    def _spend(self, purpose: Purpose, calls: int) -> None:
        self.calls += calls
        self.by_purpose[purpose] = self.by_purpose.get(purpose, 0) + calls
        if self._set_aside:
            self._take_from_own(purpose, calls)


class Reservation:
    """Calls held for one batch; ``own`` of them come out of what was set aside for its purpose."""

    def __init__(self, account: Account, purpose: Purpose, calls: int, own: int) -> None:
        self._account = account
        self._purpose: Purpose = purpose
        self._own = own
        self.left = calls

    def spend(self) -> None:
        """One call of the batch is being made. Raises BudgetExhausted when it holds none: a retry needs its own."""
        self._take(1)
        self._account.spend_held(self._purpose)

    def give_back(self, calls: int) -> None:
        """The batch will not make ``calls`` of those it holds. Raises BudgetExhausted when it holds fewer."""
        self._take(calls)
        self._account.return_held(calls)
        own = min(self._own, calls)
        self._own -= own
        self._account.return_to_own(self._purpose, own)

    def _take(self, calls: int) -> None:
        if calls > self.left:
            raise BudgetExhausted("calls", calls, self.left)
        self.left -= calls

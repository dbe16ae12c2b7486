from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from adescent.budget import Account, Budget, Purpose, Reservation
from adescent.errors import BudgetExhausted, ContractError

PURPOSES: st.SearchStrategy[Purpose] = st.sampled_from(["rollout", "gate", "final", "test"])
FEW = st.integers(0, 6)
LIMITS = st.none() | st.integers(1, 25)


class Spending(RuleBasedStateMachine):
    """Leases, batches and single calls in any interleaving; the test counts for itself what is spent and held."""

    batches = Bundle("batches")
    leases = Bundle("leases")

    @initialize(rollouts=LIMITS, calls=LIMITS)
    def open(self, rollouts: int | None, calls: int | None) -> None:
        self.account = Account(Budget(rollouts=rollouts, calls=calls))
        self.spent = 0
        self.held = 0
        self.open_batches: list[Reservation] = []
        self.open_leases: list[list[int]] = []

    def aside(self, purpose: Purpose) -> int:
        return self.account._set_aside.get(purpose, 0)

    @rule(purpose=PURPOSES, calls=FEW)
    def set_aside(self, purpose: Purpose, calls: int) -> None:
        free, before = self.account.left(purpose), self.aside(purpose)
        try:
            self.account.set_aside(purpose, calls)
        except ContractError:
            assert free is not None
            assert calls + before > free
            assert self.aside(purpose) == before
        else:
            assert self.aside(purpose) == before + calls

    @rule(purpose=PURPOSES)
    def release(self, purpose: Purpose) -> None:
        self.account.release(purpose)
        assert self.aside(purpose) == 0

    @rule(purpose=PURPOSES)
    def try_call(self, purpose: Purpose) -> None:
        left = self.account.left(purpose)
        if self.account.try_call(purpose):
            assert left != 0
            self.spent += 1
        else:
            assert left == 0
            assert purpose in self.account.refused

    @rule(target=leases, wanted=st.integers(1, 5), calls=st.integers(1, 3))
    def take_leases(self, wanted: int, calls: int) -> list[int]:
        granted, ran_out = self.account.take_leases(wanted, calls)
        assert bool(ran_out) == (granted < wanted)
        assert 0 <= granted <= wanted
        lease = [granted * calls]
        self.held += granted * calls
        self.open_leases.append(lease)
        return lease

    @rule(lease=leases, purpose=PURPOSES)
    def spend_of_a_lease(self, lease: list[int], purpose: Purpose) -> None:
        if lease[0]:
            self.account.spend_held(purpose)
            lease[0] -= 1
            self.held -= 1
            self.spent += 1

    @rule(lease=consumes(leases))
    def end_a_lease(self, lease: list[int]) -> None:
        self.account.return_held(lease[0])
        self.held -= lease[0]
        lease[0] = 0

    @rule(target=batches, purpose=PURPOSES, calls=FEW)
    def hold(self, purpose: Purpose, calls: int) -> Reservation | None:
        left = self.account.left(purpose)
        if left is not None and left < calls:
            with pytest.raises(BudgetExhausted, match=f"{left} left and {calls} were needed"):
                self.account.hold(purpose, calls)
            return None
        batch = self.account.hold(purpose, calls)
        assert batch.left == calls
        self.held += calls
        self.open_batches.append(batch)
        return batch

    @rule(batch=batches)
    def spend_of_a_batch(self, batch: Reservation | None) -> None:
        if batch is None:
            return
        if batch.left:
            batch.spend()
            self.held -= 1
            self.spent += 1
        else:
            with pytest.raises(BudgetExhausted):
                batch.spend()

    @rule(batch=batches, calls=FEW)
    def give_back(self, batch: Reservation | None, calls: int) -> None:
        if batch is None:
            return
        if calls <= batch.left:
            batch.give_back(calls)
            self.held -= calls
        else:
            with pytest.raises(BudgetExhausted):
                batch.give_back(calls)

    @invariant()
    def never_overdrawn(self) -> None:
        budget, account = self.account.budget, self.account
        assert account.calls == self.spent == sum(account.by_purpose.values())
        if budget.rollouts is not None:
            assert account.rollouts <= budget.rollouts
        if budget.calls is not None:
            assert self.spent + self.held + sum(account._set_aside.values()) <= budget.calls

    @invariant()
    def what_is_set_aside_can_be_had(self) -> None:
        for purpose, calls in self.account._set_aside.items():
            left = self.account.left(purpose)
            assert left is None or left >= calls

    def teardown(self) -> None:
        for batch in self.open_batches:
            batch.give_back(batch.left)
        for lease in self.open_leases:
            self.account.return_held(lease[0])
        for purpose in tuple(self.account._set_aside):
            self.account.release(purpose)
        if self.account.budget.calls is not None:
            assert self.account.left("rollout") == self.account.budget.calls - self.spent


TestSpending = Spending.TestCase
TestSpending.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_batch_is_all_or_nothing() -> None:
    account = Account(Budget(calls=25))
    with account.reserve("gate", 20) as batch:
        for _ in range(20):
            batch.spend()
    with pytest.raises(BudgetExhausted, match="5 left and 10 were needed"), account.reserve("gate", 10):
        pytest.fail("the batch was begun")
    assert (account.calls, account.refused) == (20, {"gate"})


def test_what_a_batch_does_not_spend_comes_back_even_when_it_fails() -> None:
    account = Account(Budget(calls=10))
    with pytest.raises(ValueError, match="no"), account.reserve("gate", 10) as batch:
        batch.spend()
        assert account.left("rollout") == 0
        raise ValueError("no")
    assert account.left("rollout") == 9
    with pytest.raises(BudgetExhausted):
        batch.spend()


def test_what_is_set_aside_is_out_of_reach_until_it_is_released() -> None:
    account = Account(Budget(calls=10))
    account.set_aside("final", 6)
    assert (account.left("gate"), account.left("final")) == (4, 10)
    with account.reserve("final", 6):
        account.release("final")
    assert account.left("gate") == 10


def test_a_budget_below_what_every_run_measures_is_refused() -> None:
    account = Account(Budget(calls=10))
    account.set_aside("seed", 6)
    with pytest.raises(ContractError, match="6 for seed, 6 for final"):
        account.set_aside("final", 6)
    assert account.left("gate") == 4


def test_rollouts_run_out_before_calls_or_after() -> None:
    account = Account(Budget(rollouts=3, calls=10))
    assert account.take_leases(2, 2) == (2, "")
    assert account.take_leases(2, 2) == (1, "rollouts")
    account = Account(Budget(rollouts=9, calls=5))
    assert account.take_leases(4, 2) == (2, "calls")
    assert not account.refused


def test_without_limits_nothing_is_refused() -> None:
    account = Account(Budget())
    assert account.left("gate") is None
    assert account.take_leases(1000, 3) == (1000, "")
    assert account.try_call("audit")
    assert account.by_purpose == {"audit": 1}


@pytest.mark.parametrize("option", ["rollouts", "calls", "seconds"])
@pytest.mark.parametrize("value", [0, -1, True, float("nan"), "10"])
def test_a_limit_is_a_number_above_0(option: str, value: Any) -> None:
    with pytest.raises(ContractError, match=f"{option}="):
        Budget(**{option: value})


def test_only_seconds_come_in_parts() -> None:
    assert Budget(seconds=0.5).seconds == 0.5
    for endless in (10**400, 10**5000):
        with pytest.raises(ContractError, match="seconds="):
            Budget(seconds=endless)
    with pytest.raises(ContractError, match="whole number"):
        Budget(calls=2.5)  # type: ignore[arg-type]

"""One turn of a worker: rollout, proposal, card. It holds a snapshot and never a ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from anyio.lowlevel import checkpoint

from adescent.budget import Account, Purpose
from adescent.errors import BudgetExhausted, ContractError, ProposalError
from adescent.evolvable import Diff, EvidenceCard, Trajectory
from adescent.policies import Evaluator, ProposalContext, ProposalPolicy, SettledCard, Strategy
from adescent.runtime.control import Control
from adescent.runtime.dispatch import Dispatch, ProposeFailed
from adescent.runtime.evidence import Evidence, evidence_of
from adescent.runtime.health import Health
from adescent.runtime.leases import Lease, Turn
from adescent.tasks import Score, Usage
from adescent.telemetry import Emit, RolloutFailed
from adescent.workspec import Failure, RolloutSpec

__all__ = ["DirectProposal", "Worker", "calls_per_lease"]


def calls_per_lease(self_verify: bool) -> int:
    """The calls a lease may make: run, propose, and run again on the candidate when workers verify themselves."""
    return 3 if self_verify else 2


class _Purse:
    """The calls a lease has been given. What it makes beyond them is paid out of what the budget has left."""

    def __init__(self, account: Account, calls: int) -> None:
        self._account = account
        self._held = calls
        self.paid = 0

    def pay(self, purpose: Purpose) -> None:
        """One call is being made. Raises BudgetExhausted when there is none left to make."""
        if self._held:
            self._held -= 1
            self._account.spend_held(purpose)
        elif not self._account.try_call(purpose):
            raise BudgetExhausted("calls", 1, 0)
        self.paid += 1

    def give_back(self) -> None:
        """The lease makes no further calls of those it was given."""
        self._account.return_held(self._held)
        self._held = 0


class DirectProposal:
    """Asks the proposer once about every task that was not solved."""

    async def propose(self, context: ProposalContext, ask: Callable[[ProposalContext], Awaitable[Any]]) -> Any:
        """What the proposer answers."""
        return await ask(context)


class Worker:
    """Does leases; one object serves every worker task, since all it knows about a lease is in the lease."""

    def __init__(
        self,
        *,
        dispatch: Dispatch,
        ask: Callable[[ProposalContext], Awaitable[Any]],
        proposal: ProposalPolicy,
        strategy: Strategy,
        evaluator: Evaluator | None,
        account: Account,
        control: Control,
        health: Health,
        emit: Emit,
        history: Callable[[str], Sequence[SettledCard]],
        count: Callable[[str], None],
        solved: float,
    ) -> None:
        self._dispatch = dispatch
        self._ask_proposer = ask
        self._proposal = proposal
        self._strategy = strategy
        self._verify_with = evaluator
        self._account = account
        self._control = control
        self._health = health
        self._emit = emit
        self._history = history
        self._count = count
        self._solved = solved
        self._calls = calls_per_lease(evaluator is not None)
        self.under_way: dict[str, str] = {}
        """Lease id → task id of what is being worked on."""
        self._begun = 0

    async def take(self, lease: Lease) -> Turn:
        """Do a lease. Failures of actors are counted and end in a turn without a score or without a card.

        A lease that is cancelled stays listed in ``under_way``: what was cut off is part of how a run ended.
        """
        self.under_way[lease.id] = lease.task.id
        self._begun = begun = self._begun + 1
        turn = await self._do(lease)
        if self._begun == begun:
            # Nobody else began a lease meanwhile, so perhaps no actor ever waited. Such a worker would do all the work
            # alone, starve the loop, and never notice that it was cancelled.
            await checkpoint()
        del self.under_way[lease.id]
        return turn

    def forget(self, lease: Lease) -> None:
        """A lease that was cut off is done with, since the run goes on without it."""
        self.under_way.pop(lease.id, None)

    async def _do(self, lease: Lease) -> Turn:
        purse = _Purse(self._account, self._calls)
        try:
            purse.pay("rollout")
            result = await self._dispatch.rollout(RolloutSpec(lease.snapshot.rendered, lease.task, lease_id=lease.id))
            if result.error is not None:
                self._failed(lease, result.error.stage, str(result.error))
            evidence = evidence_of(result)
            if evidence is None:
                return Turn(lease)
            score = evidence.score
            if score.value >= self._solved:
                return Turn(lease, score)
            diff = await self._propose(lease, purse, evidence)
            if diff is None:
                return Turn(lease, score)
            gain = 0.0
            if self._verify_with is not None:
                purse.give_back()  # the evaluator buys its own, or has the score already
                gain = await self._gain(self._verify_with, lease, diff, score)
                if gain < 0:
                    self._count("self_verify_rejected")
                    return Turn(lease, score)
            return Turn(lease, score, self._card(lease, diff, evidence, gain, purse.paid))
        finally:
            purse.give_back()

    async def _propose(self, lease: Lease, purse: _Purse, evidence: Evidence) -> Diff | None:
        artifact = lease.snapshot.artifact
        context = ProposalContext(
            lease.snapshot.rendered,
            artifact.state,
            lease.task,
            evidence.output,
            evidence.score,
            self._history(artifact.id),
        )

        async def ask(context: ProposalContext) -> Any:
            purse.pay("proposal")
            return await self._dispatch.propose(self._ask_proposer, context)

        try:
            proposal = await self._proposal.propose(context, ask)
        except BudgetExhausted:
            return None
        except ProposeFailed as failed:
            self._health.propose_failed(failed.failure)
            self._failed(lease, "propose", str(failed.failure))
            return None
        if proposal is None:
            self._health.proposed()
            return None
        return self._as_diff(lease, proposal)

    def _as_diff(self, lease: Lease, proposal: Any) -> Diff | None:
        artifact = lease.snapshot.artifact
        try:
            diff = self._strategy.to_diff(artifact.state, proposal, artifact.id)
            if not isinstance(diff, Diff):
                raise ContractError(f"strategy.to_diff returned a {type(diff).__name__}; it must return a Diff.")
            self._health.proposed()
            return diff
        except ProposalError as error:
            self._count("proposals_unreadable")
            self._health.propose_failed(Failure("model", "propose", "ProposalError", str(error), cause=error))
            self._failed(lease, "propose", str(error))
        except ContractError as error:
            self._control.fail(error)
        return None

    async def _gain(self, evaluator: Evaluator, lease: Lease, diff: Diff, before: Score) -> float:
        artifact = lease.snapshot.artifact
        candidate = artifact.apply(diff) if diff.target == artifact.id else artifact
        try:
            measured = await evaluator.measure(candidate, [lease.task], split="train", purpose="self-verify")
        except BudgetExhausted:
            return 0.0
        return 0.0 if measured.rate is None else measured.rate - before.value

    def _card(self, lease: Lease, diff: Diff, evidence: Evidence, gain: float, calls: int) -> EvidenceCard:
        artifact = lease.snapshot.artifact
        return EvidenceCard(
            diff,
            lease.snapshot.versions,
            {key: artifact.state.get(key) for key in diff.ops},
            (diff.target,),
            (Trajectory(lease.task, evidence.output, evidence.score),),
            gain,
            Usage(calls=calls),
        )

    def _failed(self, lease: Lease, stage: str, message: str) -> None:
        self._emit(lambda elapsed: RolloutFailed(elapsed=elapsed, task_id=lease.task.id, stage=stage, message=message))

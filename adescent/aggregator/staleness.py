"""Step 1: what becomes of a diff whose base lies behind the head."""

from __future__ import annotations

from attrs import frozen

from adescent.aggregator.ends import End
from adescent.errors import ContractError
from adescent.evolvable import EvidenceCard, Evolvable
from adescent.governance import Level, classify
from adescent.policies.keeping import StalenessAction, StalenessPolicy
from adescent.policies.records import Outcome

__all__ = ["FullStaleness", "GuardedStaleness", "ReflectiveStaleness", "brought_onto", "tolerated_lag"]

LAG = {Level.L1: 5, Level.L2: 1}
"""Versions a diff may lie behind: what reaches far is merged rarely, and costs more to propose again."""


@frozen
class FullStaleness:
    """Takes every diff as it is, however old, and leaves it to the gate; only a breaking one must be up to date."""

    def decide(self, eta: int, alpha: int, contract_breaking: bool) -> StalenessAction:
        """Accept, unless the diff breaks the contract of a version that is gone."""
        return "discard" if contract_breaking and eta > 0 else "accept"


@frozen
class GuardedStaleness:
    """Rebases what lies at most ``alpha`` versions behind and discards what is older."""

    def decide(self, eta: int, alpha: int, contract_breaking: bool) -> StalenessAction:
        """Accept at the head, rebase within ``alpha``, else discard."""
        if eta == 0:
            return "accept"
        return "rebase" if eta <= alpha and not contract_breaking else "discard"


@frozen
class ReflectiveStaleness:
    """Rebases everything that can be: what slow tasks taught comes late, and is not worth less for that."""

    def decide(self, eta: int, alpha: int, contract_breaking: bool) -> StalenessAction:
        """Accept at the head, else rebase; discard what breaks the contract of a version that is gone."""
        if eta == 0:
            return "accept"
        return "discard" if contract_breaking else "rebase"


def tolerated_lag(head: Evolvable, contract_breaking: bool, async_ratio: int | None = None) -> int:
    """α, the number of versions a diff for ``head`` may lie behind.

    0 for one that breaks the contract, else by the artifact's level; never more than ``async_ratio``, the lag the run
    lets its workers have. A lag beyond that would discard every card of a worker that is allowed to be so late.
    """
    if contract_breaking:
        return 0
    alpha = LAG[classify(head)]
    return alpha if async_ratio is None else min(async_ratio, alpha)


def brought_onto(
    head: Evolvable, card: EvidenceCard, eta: int, alpha: int, policy: StalenessPolicy, *, takes_rivals: bool
) -> EvidenceCard | End:
    """The card as a change to ``head``, ``eta`` versions after its base, or how it ended."""
    action = policy.decide(eta, alpha, card.diff.contract_breaking)
    if action == "discard":
        return End(Outcome.STALE, f"its base lies {eta} versions behind the head; {alpha} are tolerated.")
    if action == "rebase":
        card = card.rebased_onto(head)
    elif action != "accept":
        raise ContractError(
            f"{type(policy).__name__}.decide said {action!r}; it must say 'accept', 'rebase' or 'discard', at once."
        )
    if card.rival and not takes_rivals:
        keys = ", ".join(map(repr, card.rival_keys))
        return End(Outcome.STALE, f"the head has moved on in the same lines of {keys}.")
    if all(head.state.get(key) == value for key, value in card.diff.ops.items()):
        return End(Outcome.NO_OP, "the head already has what it changes.")
    if card.diff.contract_breaking:
        return End(Outcome.CONTRACT_REFUSED, "it breaks the artifact's contract: register the artifact again first.")
    return card

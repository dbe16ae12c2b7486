"""Step 4: the oracle's word on what reaches far or where cheap verdicts have been wrong, and the trust in those."""

from __future__ import annotations

from adescent.aggregator.ends import End
from adescent.errors import BudgetExhausted
from adescent.evolvable import Evolvable
from adescent.policies.measuring import Auditor, Verifier
from adescent.policies.records import AuditRequest, AuditVerdict, Outcome
from adescent.sidebyside import side_by_side

__all__ = ["audited", "ended_by", "weigh_trust"]


async def audited(auditor: Auditor, verifier: Verifier, base: Evolvable, candidate: Evolvable) -> AuditVerdict | None:
    """The oracle's word on a candidate that would be accepted, or None where it need not be heard."""
    if not auditor.required(base):
        return None
    try:
        uncertainty = (await verifier.learned(candidate)).sd if auditor.buys_cheap_verdicts(base) else 0.0
    except BudgetExhausted as spent:  # of this candidate alone: what comes after it may cost less
        return AuditVerdict("unavailable", str(spent))
    return await auditor.audit(AuditRequest(base, candidate, uncertainty))


def ended_by(verdict: AuditVerdict | None) -> End | None:
    """The end of a candidate the oracle did not let pass. Where it could not be had nothing cheaper stands in."""
    if verdict is None or verdict.decision == "passed":
        return None
    vetoed = verdict.decision == "rejected"
    return End(Outcome.ORACLE_REJECTED if vetoed else Outcome.AUDIT_UNAVAILABLE, verdict.reason)


async def weigh_trust(
    auditor: Auditor, verifier: Verifier, base: Evolvable, candidate: Evolvable, full_gain: float
) -> None:
    """Buy a cheap verdict where trust matters, and tell the auditor whether it agrees with the full one.

    ``full_gain`` in [-1, 1] is the candidate's rate less its base's on the held-out split, both measured completely.
    Where the budget does not cover it nothing is learnt: bookkeeping must not cost an accepted candidate its commit.
    """
    if not auditor.buys_cheap_verdicts(base):
        return
    try:
        before, after = await side_by_side(lambda: verifier.rule(base), lambda: verifier.rule(candidate))
    except BudgetExhausted:
        return
    if before.rate is not None and after.rate is not None:
        auditor.observe(base.id, after.rate - before.rate, full_gain)

"""What a search runs on while it goes on: the ledger's thread, evaluators, audit, aggregator."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from attrs import frozen

from adescent.aggregator import Merger
from adescent.evolvable import Evolvable
from adescent.executors.threads import ThreadPool
from adescent.ledger import MemoryLedger
from adescent.policies import Evaluator, EvaluatorFactory, Ledger
from adescent.runtime.ledger_thread import LedgerThread
from adescent.runtime.wiring import Wiring
from adescent.scheduling import AuditScheduler
from adescent.verifier import EvaluationGroup, LayeredVerifier

__all__ = ["Services", "open_ledger", "open_services"]


@frozen(eq=False)
class Services:
    """The open parts of a run that its schedule works with."""

    ledger: LedgerThread
    evaluator: Evaluator
    merger: Merger


@asynccontextmanager
async def open_ledger(
    wiring: Wiring, place: Path | None, published: Callable[[Evolvable], None]
) -> AsyncIterator[LedgerThread]:
    """The run's ledger behind its one thread: the one handed in, the one at ``place``, or one in memory.

    One that was handed in is borrowed; the others are closed at the end. Opening and closing happen in the thread,
    since both may wait for a disk.
    """
    handed_in = wiring.config.policies.ledger
    async with ThreadPool(1, grace=math.inf) as thread:
        ledger: Ledger
        if handed_in is not None:
            ledger = handed_in
        elif place is not None:
            ledger = await thread.run(_git_ledger, place)
        else:
            ledger = MemoryLedger()
        try:
            yield LedgerThread(ledger, thread, published)
        finally:
            if handed_in is None:
                with anyio.CancelScope(shield=True):  # no deadline: the thread finishes it whether we wait or not
                    await (thread.run(ledger.close) if ledger.blocking else _at_once(ledger.close))


def _git_ledger(place: Path) -> Ledger:
    from adescent.ledger import GitLedger  # loads pygit2, which a run in memory has no use for

    return GitLedger(place)


async def _at_once(close: Callable[[], None]) -> None:
    close()


@asynccontextmanager
async def open_services(wiring: Wiring, ledger: LedgerThread) -> AsyncIterator[Services]:
    """Evaluators, the audit's task and the aggregator over them."""
    config = wiring.config
    evaluator_factory = config.policies.evaluator or EvaluationGroup
    verifier_factory = config.policies.verifier or LayeredVerifier
    async with (
        evaluator_factory(wiring.evaluation_services(wiring.reward)) as evaluator,
        _oracle(wiring, evaluator_factory) as oracle,
    ):
        verifier = verifier_factory(wiring.verifier_services(evaluator, oracle))
        auditor = AuditScheduler(
            verifier,
            oracle_budget=config.oracle_budget,
            count=wiring.count,
            emit=wiring.hub.emit,
        )
        async with anyio.create_task_group() as services:
            await services.start(auditor.run, name="audit")
            yield Services(ledger, evaluator, wiring.merger(ledger, evaluator, auditor, verifier))
            services.cancel_scope.cancel()


@asynccontextmanager
async def _oracle(wiring: Wiring, evaluator_factory: EvaluatorFactory) -> AsyncIterator[Evaluator | None]:
    if wiring.oracle is None:
        yield None
        return
    async with evaluator_factory(wiring.evaluation_services(wiring.oracle)) as oracle:
        yield oracle

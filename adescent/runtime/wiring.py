"""From a configuration to the parts of a run: defaults filled in, everything checked, nothing started."""

from __future__ import annotations

import uuid
from collections import Counter
from functools import partial
from typing import Any

from attrs import frozen

from adescent.aggregator import (
    BetaAcceptance,
    ConfirmedPromotion,
    GuardedStaleness,
    KeepBetter,
    Merger,
    ReflectiveStaleness,
    UnionFusion,
)
from adescent.budget import Account, Purpose
from adescent.canonical import digest_of
from adescent.config import RunConfig
from adescent.evolvable import Evolvable
from adescent.executors.actors import Bound, bind
from adescent.executors.threads import ThreadPool
from adescent.governance import L1SerialGate
from adescent.policies import (
    Actors,
    EvaluationServices,
    Evaluator,
    Executor,
    ProposalContext,
    Strategy,
    VerifierServices,
)
from adescent.refs import Ref
from adescent.runtime.control import Control
from adescent.runtime.dispatch import Dispatch, Lanes
from adescent.runtime.heads import HeadCell, rendered_by, started_by
from adescent.runtime.health import Health
from adescent.runtime.leases import LeaseSource
from adescent.runtime.ledger_thread import LedgerThread
from adescent.runtime.measuring import set_aside_for_figures
from adescent.runtime.placement import placed
from adescent.runtime.progress import Progress
from adescent.runtime.rounds import Rounds
from adescent.runtime.stream import Stream
from adescent.runtime.worker import DirectProposal, Worker, calls_per_lease
from adescent.scheduling import AuditScheduler, DataParallel, RoundRobin
from adescent.strategies import AppendRules
from adescent.tasks import Splits
from adescent.telemetry import EventHub
from adescent.verifier import MemoryCache
from adescent.workspec import Result, RolloutSpec

__all__ = ["Wiring"]

ASYNC_RATIO = 3
"""Versions a worker may lag in stream, unless told otherwise."""

STALL = 3
"""Cards a worker in a row that are all too old, after which workers must take the newest head."""

CARDS_A_MERGE = 128
"""Cards one merge looks at in stream, where the others need not be brought onto a head they are not merged with: twice
what a union may change. (In rounds whatever waits over a round is late.)"""

WATCHING_GRACE = 0.2
"""Seconds a blocking ``on_event`` is waited for once it has been told that nobody waits any more."""

PROPOSE = "propose(rendered, task, output, score[, context])"


@frozen(eq=False)
class ScoringSide:
    """One scorer's way through the executor, and the name its figures go by: the reward's, or the oracle's."""

    dispatch: Dispatch
    identity: str
    calls_each: int

    async def evaluate(self, spec: RolloutSpec, purpose: Purpose) -> Result:
        """An evaluation by this scorer."""
        return await self.dispatch.evaluate(spec, purpose)


class Wiring:
    """The parts of one run.

    Making one starts and opens nothing. It raises ContractError, RefError or GovernanceError for whatever in the
    configuration cannot work.
    """

    def __init__(self, config: RunConfig, splits: Splits, hub: EventHub) -> None:
        self.config = config
        self.splits = splits
        self.hub = hub
        self.run_id = uuid.uuid4().hex[:12]
        self.strategy: Strategy = config.strategy or AppendRules()
        self.artifact = self._starting_artifact()
        self.counters: Counter[str] = Counter()
        self.control = Control()
        self.account = Account(config.budget)
        set_aside_for_figures(self.account, splits, repeats=config.eval_repeats, noisy=config.noisy)
        self.health = Health(self.control, patience=max(8, config.n_workers), strict=config.strict, count=self.count)
        self.rollouts_at_once = min(config.max_concurrency or config.n_workers, config.n_workers)
        self._resolver = config.resolver()
        self._placement = placed(config, self._resolver, self.rollouts_at_once + config.eval_concurrency)
        self.executor = self._placement.executor
        self._lanes = self._shared_lanes()
        self.threads: ThreadPool = getattr(self.executor, "threads", None) or ThreadPool(self.rollouts_at_once)
        self.reward = self._side(config.reward, self._attached(config.reward))
        self.oracle = None if config.oracle is None else self._oracle_side(config.oracle)
        self._propose = bind(
            config.propose,
            name=PROPOSE,
            arity=(4, 5),
            threads=self.threads,
            resolver=self._resolver,
            offered="context",
        )
        self.watching = ThreadPool(1, WATCHING_GRACE)
        self.on_event = None if config.on_event is None else self._watcher(config.on_event)
        self.leases = self._lease_source()
        self._executor_before = self._executor_counters()

    def counted(self) -> dict[str, int]:
        """The counters of the run, with what its executor (which other runs may share) counted since it began."""
        before = self._executor_before
        return {**self.counters, **{name: now - before[name] for name, now in self._executor_counters().items()}}

    def _executor_counters(self) -> dict[str, int]:
        counters = getattr(self.executor, "counters", None)
        return {} if counters is None else dict(counters())

    def count(self, name: str) -> None:
        """Add one to a counter of the run."""
        self.counters[name] += 1

    # Actors and executors ---------------------------------------------------------------------------------------------

    def _attached(self, scorer: Any) -> Executor:
        config = self.config
        return self.executor.attach_actors(Actors(config.run, scorer, config.hide, self._resolver))

    def _shared_lanes(self) -> Lanes | None:
        config, slots = self.config, self.executor.slots
        if slots is not None and slots < self.rollouts_at_once + config.eval_concurrency:
            return Lanes(slots, self.rollouts_at_once, config.eval_concurrency)
        if config.schedule == "stream" and self.rollouts_at_once < config.n_workers:
            at_once = self.rollouts_at_once + config.eval_concurrency
            return Lanes(at_once, self.rollouts_at_once, config.eval_concurrency)
        return None

    def _side(self, scorer: Any, executor: Executor, calls_each: int = 1) -> ScoringSide:
        dispatch = Dispatch(
            executor,
            account=self.account,
            health=self.health,
            lanes=self._lanes,
            timeout=self.config.rollout_timeout,
            count=self.count,
            seed=self.config.seed,
            calls_each=calls_each,
            sandbox=self._placement.sandbox,
        )
        actors = [self._name(self.config.run), self._name(scorer)]
        identity = digest_of([*actors, sorted(self.config.hide), self._placement.fingerprint])
        return ScoringSide(dispatch, identity, calls_each)

    def _oracle_side(self, oracle: Any) -> ScoringSide:
        if not isinstance(oracle, Ref):  # or what is wrong with it would be said of the reward
            bind(oracle, name="oracle(task, output)", arity=(2,), threads=self.threads)
        return self._side(oracle, self._attached(oracle), calls_each=2)  # run, and the oracle itself

    def _watcher(self, on_event: Any) -> Bound:
        # Not among the actors: a slow one would hold the slots they need, and their locks may wait for each other.
        return bind(on_event, name="on_event(event)", arity=(1,), threads=self.watching, resolver=self._resolver)

    def _name(self, actor: Any) -> str:
        """A Ref is the same actor in every run; a plain callable is known only within this one."""
        return actor.digest if isinstance(actor, Ref) else f"{self.run_id}:{id(actor)}"

    async def ask(self, context: ProposalContext) -> Any:
        """Call the proposer the run was given."""
        return await self._propose(context.rendered, context.task, context.output, context.score, context)

    # The artifact -----------------------------------------------------------------------------------------------------

    def _starting_artifact(self) -> Evolvable:
        config = self.config
        state = started_by(self.strategy, config.initial_state)
        artifact = Evolvable(config.artifact_id, state, blast_radius=config.blast_radius)
        rendered_by(self.strategy, artifact.state)
        return artifact

    # Services ---------------------------------------------------------------------------------------------------------

    def evaluation_services(self, side: ScoringSide) -> EvaluationServices:
        """What an evaluator for one scorer is built from."""
        policies = self.config.policies
        return EvaluationServices(
            rollout=side.evaluate,
            render=partial(rendered_by, self.strategy),
            account=self.account,
            identity=side.identity,
            concurrency=self.config.eval_concurrency,
            cache=MemoryCache() if policies.eval_cache is None else policies.eval_cache,
            count=self.count,
            calls_each=side.calls_each,
            in_waves=self._spending_decides,
        )

    @property
    def _spending_decides(self) -> bool:
        """Whether the calls that are left may decide what comes next in a schedule that promises to repeat itself."""
        repeats_itself = self.config.schedule == "rounds" or self.config.n_workers == 1
        return repeats_itself and self.config.budget.calls is not None

    def verifier_services(self, evaluator: Evaluator, oracle: Evaluator | None) -> VerifierServices:
        """What a verifier is built from."""
        config = self.config
        return VerifierServices(evaluator, oracle, self.splits, config.cheap_eval_tasks, config.seed)

    def merger(self, ledger: LedgerThread, evaluator: Evaluator, auditor: AuditScheduler, verifier: Any) -> Merger:
        """The aggregator with this run's policies."""
        config, policies = self.config, self.config.policies
        in_rounds = config.schedule == "rounds"
        return Merger(
            ledger=ledger,
            evaluator=evaluator,
            verifier=verifier,
            auditor=auditor,
            gate=L1SerialGate(),
            strategy=self.strategy,
            splits=self.splits,
            staleness=policies.staleness or (GuardedStaleness() if in_rounds else ReflectiveStaleness()),
            conflict=policies.conflict or KeepBetter(),
            fusion=policies.fusion or UnionFusion(),
            acceptance=policies.acceptance or BetaAcceptance(confirm_repeats=config.confirm_repeats),
            promotion=policies.promotion or ConfirmedPromotion(),
            count=self.count,
            emit=self.hub.emit,
            eval_repeats=config.eval_repeats,
            eval_concurrency=config.eval_concurrency,
            async_ratio=None if in_rounds else self.async_ratio,
        )

    @property
    def async_ratio(self) -> int:
        """Versions a worker may lag in stream."""
        return ASYNC_RATIO if self.config.async_ratio is None else self.config.async_ratio

    def progress(self, merger: Merger, head: HeadCell) -> Progress:
        """The bookkeeping both schedules share."""
        config = self.config
        return Progress(
            merger=merger,
            head=head,
            account=self.account,
            control=self.control,
            hub=self.hub,
            count=self.count,
            target=config.target_reward,
            patience=None if config.patience is None else config.patience * config.n_workers,
            stall=STALL * config.n_workers,
            cards_a_merge=None if config.schedule == "rounds" else CARDS_A_MERGE,
        )

    def worker(self, merger: Merger, evaluator: Evaluator) -> Worker:
        """What does a lease."""
        config = self.config
        return Worker(
            dispatch=self.reward.dispatch,
            ask=self.ask,
            proposal=config.policies.proposal or DirectProposal(),
            strategy=self.strategy,
            evaluator=evaluator if config.self_verify else None,
            account=self.account,
            control=self.control,
            health=self.health,
            emit=self.hub.emit,
            history=merger.history,
            count=self.count,
            solved=config.solved_threshold,
        )

    def _lease_source(self) -> LeaseSource:
        config = self.config
        plan = config.parallel or DataParallel()
        sampler = config.task_sampler or config.policies.task_sampler or RoundRobin()
        return LeaseSource(
            plan.begin(self.splits.train, config.n_workers, config.artifact_id, config.solved_threshold),
            sampler.begin(self.splits.train, config.seed),
            self.account,
            limit=config.total_rollouts,
            calls_each=calls_per_lease(config.self_verify),
            name=self.run_id,
        )

    def leave_for_a_gate(self, noisy: bool) -> None:
        """From now on grant no lease whose card could not be measured: with noise, a candidate is confirmed too."""
        measurements = 1 + 2 * self.config.confirm_repeats if noisy else 1
        self.leases.calls_of_a_gate = measurements * len(self.splits.held_out) * self.config.eval_repeats

    def schedule(self, worker: Worker, head: HeadCell, progress: Progress) -> Rounds | Stream:
        """The loop the run was asked for."""
        config = self.config
        if config.schedule == "rounds":
            return Rounds(
                worker=worker,
                source=self.leases,
                health=self.health,
                head=head,
                progress=progress,
                n_units=config.n_workers,
                concurrency=self.rollouts_at_once,
                refresh_interval=config.refresh_interval or 1,
                round_timeout=config.round_timeout,
            )
        return Stream(
            worker=worker,
            source=self.leases,
            health=self.health,
            head=head,
            progress=progress,
            n_units=config.n_workers,
            async_ratio=self.async_ratio,
            max_unmerged=config.max_unmerged or self.async_ratio + 1,  # one of them is the rollout under way
            resync=config.resync_on_commit is not False,
        )

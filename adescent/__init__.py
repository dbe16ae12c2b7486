"""Improve the text that steers an agent: parallel workers propose, one aggregator measures, merges and keeps.

Every public name can be imported from here; the module that holds it is loaded when the name is first used, so that a
process which needs a few records does not load the engine. A new name takes one line in each of the two lists below.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from adescent.doors import door

if TYPE_CHECKING:
    from adescent.aggregator import BetaAcceptance as BetaAcceptance
    from adescent.aggregator import ConfirmedPromotion as ConfirmedPromotion
    from adescent.aggregator import FullStaleness as FullStaleness
    from adescent.aggregator import GuardedStaleness as GuardedStaleness
    from adescent.aggregator import KeepBetter as KeepBetter
    from adescent.aggregator import ReflectiveStaleness as ReflectiveStaleness
    from adescent.aggregator import UnionFusion as UnionFusion
    from adescent.budget import Budget as Budget
    from adescent.config import RunConfig as RunConfig
    from adescent.errors import ActorsNeverWorked as ActorsNeverWorked
    from adescent.errors import AdescentError as AdescentError
    from adescent.errors import BudgetExhausted as BudgetExhausted
    from adescent.errors import CASConflict as CASConflict
    from adescent.errors import ContractError as ContractError
    from adescent.errors import GovernanceError as GovernanceError
    from adescent.errors import LedgerCorrupt as LedgerCorrupt
    from adescent.errors import LedgerError as LedgerError
    from adescent.errors import LoopRunning as LoopRunning
    from adescent.errors import OptionError as OptionError
    from adescent.errors import ProposalError as ProposalError
    from adescent.errors import RefError as RefError
    from adescent.errors import RunCancelled as RunCancelled
    from adescent.errors import RunDirError as RunDirError
    from adescent.errors import RunDirInUse as RunDirInUse
    from adescent.errors import RunDirMismatch as RunDirMismatch
    from adescent.errors import SandboxUnavailable as SandboxUnavailable
    from adescent.errors import Transient as Transient
    from adescent.errors import UnknownArtifact as UnknownArtifact
    from adescent.errors import VoidScore as VoidScore
    from adescent.errors import WireError as WireError
    from adescent.errors import WrongThread as WrongThread
    from adescent.evolution import Evolution as Evolution
    from adescent.evolution import async_evolve as async_evolve
    from adescent.evolution import evolve as evolve
    from adescent.evolvable import Contract as Contract
    from adescent.evolvable import Diff as Diff
    from adescent.evolvable import EvidenceCard as EvidenceCard
    from adescent.evolvable import Evolvable as Evolvable
    from adescent.evolvable import Trajectory as Trajectory
    from adescent.evolvable import VersionVector as VersionVector
    from adescent.executors import InlineExecutor as InlineExecutor
    from adescent.executors import PoolStatistics as PoolStatistics
    from adescent.executors import ProcessExecutor as ProcessExecutor
    from adescent.executors import RolloutContext as RolloutContext
    from adescent.executors import ThreadExecutor as ThreadExecutor
    from adescent.executors import collect_rollouts as collect_rollouts
    from adescent.executors import map_rollouts as map_rollouts
    from adescent.executors import run_rollouts as run_rollouts
    from adescent.ledger import GitLedger as GitLedger
    from adescent.ledger import MemoryLedger as MemoryLedger
    from adescent.orchestrator import AgentDescent as AgentDescent
    from adescent.orchestrator import AsyncAgentDescent as AsyncAgentDescent
    from adescent.orchestrator import ForkBaseline as ForkBaseline
    from adescent.orchestrator import async_run_fork_baseline as async_run_fork_baseline
    from adescent.orchestrator import run_fork_baseline as run_fork_baseline
    from adescent.policies import Actors as Actors
    from adescent.policies import Outcome as Outcome
    from adescent.policies import Policies as Policies
    from adescent.policies import ProposalContext as ProposalContext
    from adescent.policies import Strategy as Strategy
    from adescent.refs import Ref as Ref
    from adescent.refs import Resolver as Resolver
    from adescent.refs import nameable as nameable
    from adescent.runtime.reporting import RunStatus as RunStatus
    from adescent.runtime.result import EvolutionResult as EvolutionResult
    from adescent.runtime.result import Figure as Figure
    from adescent.runtime.result import RoundInfo as RoundInfo
    from adescent.sandbox import Admission as Admission
    from adescent.sandbox import Workspaces as Workspaces
    from adescent.scheduling import ClusterParallel as ClusterParallel
    from adescent.scheduling import DataParallel as DataParallel
    from adescent.scheduling import DifficultyWeighted as DifficultyWeighted
    from adescent.scheduling import RoundRobin as RoundRobin
    from adescent.stats import Interval as Interval
    from adescent.strategies import AppendRules as AppendRules
    from adescent.strategies import KeyedRules as KeyedRules
    from adescent.strategies import SingleSlot as SingleSlot
    from adescent.tasks import Score as Score
    from adescent.tasks import Splits as Splits
    from adescent.tasks import Task as Task
    from adescent.tasks import Usage as Usage
    from adescent.tasks import make_splits as make_splits
    from adescent.verifier import EvaluationGroup as EvaluationGroup
    from adescent.verifier import LayeredVerifier as LayeredVerifier
    from adescent.verifier import MemoryCache as MemoryCache
    from adescent.version import __version__ as __version__
    from adescent.workspec import Failure as Failure
    from adescent.workspec import Result as Result
    from adescent.workspec import RolloutSpec as RolloutSpec
    from adescent.workspec import SandboxSpec as SandboxSpec
    from adescent.workspec import Workspace as Workspace

_HOMES = {
    "Actors": "policies",
    "ActorsNeverWorked": "errors",
    "AdescentError": "errors",
    "Admission": "sandbox",
    "AgentDescent": "orchestrator",
    "AppendRules": "strategies",
    "AsyncAgentDescent": "orchestrator",
    "BetaAcceptance": "aggregator",
    "Budget": "budget",
    "BudgetExhausted": "errors",
    "CASConflict": "errors",
    "ClusterParallel": "scheduling",
    "ConfirmedPromotion": "aggregator",
    "Contract": "evolvable",
    "ContractError": "errors",
    "DataParallel": "scheduling",
    "Diff": "evolvable",
    "DifficultyWeighted": "scheduling",
    "EvaluationGroup": "verifier",
    "EvidenceCard": "evolvable",
    "Evolution": "evolution",
    "EvolutionResult": "runtime.result",
    "Evolvable": "evolvable",
    "Failure": "workspec",
    "Figure": "runtime.result",
    "ForkBaseline": "orchestrator",
    "FullStaleness": "aggregator",
    "GitLedger": "ledger",
    "GovernanceError": "errors",
    "GuardedStaleness": "aggregator",
    "InlineExecutor": "executors",
    "Interval": "stats",
    "KeepBetter": "aggregator",
    "KeyedRules": "strategies",
    "LayeredVerifier": "verifier",
    "LedgerCorrupt": "errors",
    "LedgerError": "errors",
    "LoopRunning": "errors",
    "MemoryCache": "verifier",
    "MemoryLedger": "ledger",
    "OptionError": "errors",
    "Outcome": "policies",
    "Policies": "policies",
    "PoolStatistics": "executors",
    "ProcessExecutor": "executors",
    "ProposalContext": "policies",
    "ProposalError": "errors",
    "Ref": "refs",
    "RefError": "errors",
    "ReflectiveStaleness": "aggregator",
    "Resolver": "refs",
    "Result": "workspec",
    "RolloutContext": "executors",
    "RolloutSpec": "workspec",
    "RoundInfo": "runtime.result",
    "RoundRobin": "scheduling",
    "RunCancelled": "errors",
    "RunConfig": "config",
    "RunDirError": "errors",
    "RunDirInUse": "errors",
    "RunDirMismatch": "errors",
    "RunStatus": "runtime.reporting",
    "SandboxSpec": "workspec",
    "SandboxUnavailable": "errors",
    "Score": "tasks",
    "SingleSlot": "strategies",
    "Splits": "tasks",
    "Strategy": "policies",
    "Task": "tasks",
    "ThreadExecutor": "executors",
    "Trajectory": "evolvable",
    "Transient": "errors",
    "UnionFusion": "aggregator",
    "UnknownArtifact": "errors",
    "Usage": "tasks",
    "VersionVector": "evolvable",
    "VoidScore": "errors",
    "WireError": "errors",
    "Workspace": "workspec",
    "Workspaces": "sandbox",
    "WrongThread": "errors",
    "__version__": "version",
    "async_evolve": "evolution",
    "async_run_fork_baseline": "orchestrator",
    "collect_rollouts": "executors",
    "evolve": "evolution",
    "make_splits": "tasks",
    "map_rollouts": "executors",
    "nameable": "refs",
    "run_fork_baseline": "orchestrator",
    "run_rollouts": "executors",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

# The library never prints and configures no handler: a host that wants its log lines attaches its own.
logging.getLogger(__name__).addHandler(logging.NullHandler())

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__, _HOMES)

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from attrs import evolve

from adescent.aggregator import (
    BetaAcceptance,
    ConfirmedPromotion,
    EvidenceBuffer,
    KeepBetter,
    Merger,
    ReflectiveStaleness,
    UnionFusion,
)
from adescent.errors import BudgetExhausted, CASConflict, UnknownArtifact
from adescent.evolvable import Diff, EvidenceCard, Evolvable, Trajectory, VersionVector
from adescent.governance import L1SerialGate, oracle_forced
from adescent.policies import AuditRequest, AuditVerdict, Estimate, Measurement, Reading, SettledCard
from adescent.tasks import Score, Splits, Task
from adescent.telemetry import Event

TRAIN = tuple(Task(f"t{number}", f"train {number}") for number in range(10))
HELD_OUT = tuple(Task(f"h{number}", f"held-out {number}") for number in range(10))


def solved(artifact: Evolvable, task: Task, repeat: int) -> float | None:
    """1.0 where a word ``+<number of the task>`` stands in the artifact and no ``-<number>``, else 0.0."""
    words = " ".join(artifact.state.values()).split()
    return float(f"+{task.id[1:]}" in words and f"-{task.id[1:]}" not in words)


class ScriptedEvaluator:
    """Scores by a function of (artifact, task, repeat), once each, out of a budget, and keeps a log of what it did."""

    def __init__(self) -> None:
        self.score: Callable[[Evolvable, Task, int], float | None] = solved
        self.before: Callable[[str], Any] = lambda purpose: None
        self.left: int | None = None
        self.refused = False
        self.log: list[tuple[str, str, int]] = []
        self.measured: list[tuple[str, Evolvable, range]] = []
        self.wave_tasks: list[tuple[str, ...]] = []
        self.environment = "here"
        self._known: dict[tuple[str, str, int], float] = {}

    async def measure(
        self,
        artifact: Evolvable,
        tasks: Sequence[Task],
        *,
        split: str,
        purpose: str,
        repeats: range = range(1),
        fresh: bool = False,
        still_open: Callable[[Measurement], bool] | None = None,
    ) -> Measurement:
        assert {*tasks} <= {*(TRAIN if split == "train" else HELD_OUT)}
        await checkpoint()
        self.before(purpose)
        wanted = [(artifact.digest, task.id, repeat) for task in tasks for repeat in repeats]
        cost = sum(key not in self._known for key in wanted)
        if self.left is not None:
            if cost > self.left:
                self.refused = True
                raise BudgetExhausted("calls", cost, self.left)
            self.left -= cost
        self.measured.append((purpose, artifact, repeats))
        if purpose == "rebase":
            self.wave_tasks.append(tuple(task.id for task in tasks))
        readings: list[Reading] = []
        for task in tasks:
            await checkpoint()
            readings.append(self._reading(artifact, task, repeats, purpose))
            prefix = Measurement(tuple(readings), self.environment, complete=False)
            if still_open is not None and len(readings) < len(tasks) and not still_open(prefix):
                return prefix
        return Measurement(tuple(readings), self.environment)

    def _reading(self, artifact: Evolvable, task: Task, repeats: range, purpose: str) -> Reading:
        scores = []
        for repeat in repeats:
            key = (artifact.digest, task.id, repeat)
            if key not in self._known:
                self.log.append((purpose, task.id, repeat))
                score = self.score(artifact, task, repeat)
                if score is None:
                    continue
                self._known[key] = score
            scores.append(self._known[key])
        return Reading(task.id, sum(scores), len(scores), missing="" if len(scores) == len(repeats) else "void")

    def unanswered(self, artifact: Evolvable, tasks: Sequence[Task], *, split: str, repeats: range = range(1)) -> int:
        return sum((artifact.digest, task.id, repeat) not in self._known for task in tasks for repeat in repeats)

    def purposes(self) -> Counter[str]:
        """How many measurements there were of each purpose."""
        return Counter(purpose for purpose, _, _ in self.measured)


class ScriptedVerifier:
    def __init__(self, evaluator: ScriptedEvaluator) -> None:
        self._evaluator = evaluator

    async def rule(self, artifact: Evolvable) -> Measurement:
        return await self._evaluator.measure(artifact, TRAIN[:8], split="train", purpose="rule")

    async def learned(self, artifact: Evolvable) -> Estimate:
        rate = (await self.rule(artifact)).rate
        return Estimate(0.5 if rate is None else rate, 0.1)

    async def oracle(self, artifact: Evolvable) -> Measurement:
        return await self._evaluator.measure(artifact, HELD_OUT, split="held_out", purpose="audit")

    def oracle_cost(self, artifact: Evolvable) -> int:
        return self._evaluator.unanswered(artifact, HELD_OUT, split="held_out")


class ScriptedAuditor:
    def __init__(self) -> None:
        self.trust = 1.0
        self.cheap = False
        self.verdict = AuditVerdict("passed")
        self.requests: list[AuditRequest] = []
        self.observed: list[tuple[float, float]] = []

    def required(self, artifact: Evolvable) -> bool:
        return oracle_forced(artifact.blast_radius, self.trust)

    def buys_cheap_verdicts(self, artifact: Evolvable) -> bool:
        return self.cheap

    def observe(self, artifact_id: str, cheap_gain: float, full_gain: float) -> None:
        self.observed.append((cheap_gain, full_gain))

    async def audit(self, request: AuditRequest) -> AuditVerdict:
        await checkpoint()
        self.requests.append(request)
        return self.verdict


class ScriptedLedger:
    """Every version of every artifact. ``before_commit`` is a hook for races and refusals."""

    def __init__(self) -> None:
        self.dev: dict[str, list[Evolvable]] = {}
        self.stable: dict[str, Evolvable] = {}
        self.decisions: list[Mapping[str, str]] = []
        self.before_commit: Callable[[], None] = lambda: None

    def register(self, artifact: Evolvable) -> Evolvable:
        first = evolve(artifact, version=1)
        self.dev[artifact.id] = [first]
        self.stable[artifact.id] = first
        return first

    def foreign(self, artifact_id: str, **state: str) -> Evolvable:
        """Somebody else's commit: these keys on top of the head."""
        head = self.dev[artifact_id][-1]
        newer = evolve(head, state={**head.state, **state}, version=head.version + 1)
        self.dev[artifact_id].append(newer)
        return newer

    async def head(self, artifact_id: str, branch: str = "dev") -> Evolvable:
        await checkpoint()
        if artifact_id not in self.dev:
            raise UnknownArtifact(artifact_id)
        return self.dev[artifact_id][-1] if branch == "dev" else self.stable[artifact_id]

    async def commit(
        self, artifact: Evolvable, base_version: int, *, message: str = "", decision: Mapping[str, str] | None = None
    ) -> Evolvable:
        await checkpoint()
        self.before_commit()
        found = self.dev[artifact.id][-1].version
        if found != base_version:
            raise CASConflict(artifact.id, base_version, found)
        committed = evolve(artifact, version=base_version + 1)
        self.dev[artifact.id].append(committed)
        self.decisions.append(decision or {})
        return committed

    async def promote(self, artifact_id: str, version: int) -> Evolvable:
        await checkpoint()
        [found] = [artifact for artifact in self.dev[artifact_id] if artifact.version == version]
        self.stable[artifact_id] = found
        return found


class Rules:
    """A strategy without a mind of its own. A state with the word ``forbidden`` in it is invalid."""

    def __init__(self, takes_rivals: bool = True) -> None:
        self.takes_rivals = takes_rivals

    def initial(self, initial_state: Mapping[str, str] | str | None) -> Mapping[str, str]:
        raise NotImplementedError

    def render(self, state: Mapping[str, str]) -> str:
        return "\n".join(state.values())

    def to_diff(self, state: Mapping[str, str], proposal: Any, target: str) -> Diff:
        raise NotImplementedError

    def violation(self, state: Mapping[str, str]) -> str:
        return "it says what is forbidden." if "forbidden" in " ".join(state.values()) else ""


class ScriptedRun:
    """A merger over scripted services, and short ways to make cards and read how they ended."""

    def __init__(self) -> None:
        self.evaluator = ScriptedEvaluator()
        self.verifier = ScriptedVerifier(self.evaluator)
        self.auditor = ScriptedAuditor()
        self.ledger = ScriptedLedger()
        self.counted: Counter[str] = Counter()
        self.events: list[Event] = []
        self.buffer = EvidenceBuffer()
        self.settled: list[SettledCard] = []
        self.held_out = HELD_OUT
        self.merger: Merger
        self._turn = 0

    async def start(
        self, blast_radius: float = 0.2, opened: bool = True, noisy: bool = False, **options: Any
    ) -> Evolvable:
        """A merger, and an artifact ``a`` whose one rule solves tasks 0 to 4; its version is 1."""
        defaults: dict[str, Any] = {
            "strategy": Rules(),
            "staleness": ReflectiveStaleness(),
            "conflict": KeepBetter(),
            "fusion": UnionFusion(),
            "acceptance": BetaAcceptance(),
            "promotion": ConfirmedPromotion(),
        }
        self.merger = Merger(
            ledger=self.ledger,
            evaluator=self.evaluator,
            verifier=self.verifier,
            auditor=self.auditor,
            gate=L1SerialGate(),
            splits=Splits(TRAIN, HELD_OUT),
            count=self._count,
            emit=lambda make: self.events.append(make(0.0)),
            **{**defaults, **options},
        )
        seed = self.ledger.register(Evolvable("a", {"seed": "+0 +1 +2 +3 +4"}, blast_radius=blast_radius))
        if opened:
            repeats = range(options.get("eval_repeats", 1))
            measured = await self.evaluator.measure(seed, HELD_OUT, split="held_out", purpose="seed", repeats=repeats)
            self.merger.open(seed, measured, noisy=noisy)
        return seed

    def _count(self, name: str) -> None:
        self.counted[name] += 1

    @property
    def head(self) -> Evolvable:
        return self.ledger.dev["a"][-1]

    def card(self, base: Evolvable, learnt_from: str = "", delta: float = 0.0, **ops: str | None) -> EvidenceCard:
        """Evidence for ``ops`` on ``base``, learnt from train tasks named by their numbers."""
        return EvidenceCard(
            Diff(base.id, ops),
            VersionVector({base.id: base.version}),
            base_values={key: base.state.get(key) for key in ops},
            touched=(base.id,),
            trajectories=tuple(Trajectory(TRAIN[int(number)], "", Score(0.0)) for number in learnt_from.split()),
            before_after_delta=delta,
        )

    async def merge(self, *cards: EvidenceCard, artifact_id: str = "a") -> Any:
        """Ingest the cards, in order, and merge what waits. Returns what the merge left."""
        self._turn += 1
        for unit, card in enumerate(cards):
            self.buffer.ingest(card, (self._turn, unit))
        with anyio.fail_after(5):
            merged = await self.merger.merge(artifact_id, self.buffer.drain(artifact_id))
            self.buffer.put_back(merged.leftover)
            self.settled.extend(merged.report.settled)
            await self.merger.promote_due(artifact_id)
        return merged

    async def outcomes(self, *cards: EvidenceCard) -> list[str]:
        """How the cards of one merge ended, in order."""
        merged = await self.merge(*cards)
        return [settled.outcome.value for settled in merged.report.settled]


@pytest.fixture
def run() -> ScriptedRun:
    return ScriptedRun()


@pytest.fixture(scope="module")
def new_run() -> Callable[[], ScriptedRun]:
    """For tests that need several, or one for each example."""
    return ScriptedRun


@pytest.fixture(scope="module")
def card() -> Callable[..., EvidenceCard]:
    """A card for artifact ``a`` by ops, on a base that has the texts in ``base``."""
    return _card


def _card(base: Mapping[str, str] | None = None, version: int = 1, learnt_from: str = "", **ops: Any) -> Any:
    artifact = Evolvable("a", base or {}, version=version)
    return ScriptedRun().card(artifact, learnt_from, **ops)


@pytest.fixture(scope="module")
def rules() -> type[Rules]:
    """The strategy of these tests, for those that want it otherwise."""
    return Rules

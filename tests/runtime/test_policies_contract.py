"""Every option and every policy does something: setting it changes what can be seen of a run, or it is refused by name.

A new field without an entry in one of the tables fails here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import field, fields, frozen

from adescent.budget import Budget
from adescent.config import ROUNDS_ONLY, STREAM_ONLY, Options, RunConfig
from adescent.errors import OptionError
from adescent.evolution import async_evolve
from adescent.evolvable import Evolvable
from adescent.executors import InlineExecutor
from adescent.ledger import MemoryLedger
from adescent.policies import (
    Assignment,
    Estimate,
    Measurement,
    Outcome,
    Policies,
    Reading,
    Resolution,
    TaskDraw,
    Verdict,
)
from adescent.refs import Ref
from adescent.runtime.result import EvolutionResult
from adescent.strategies import AppendRules
from adescent.tasks import Score, Task
from adescent.workspec import SandboxSpec

LESSONS = 6
ROWS = [
    {"id": f"t{number}", "prompt": f"lesson-{number % LESSONS}", "gold": "yes", "cluster": f"c{number % 2}"}
    for number in range(30)
]
EXTRA = [{"id": f"x{number}", "prompt": f"lesson-{number % LESSONS}"} for number in range(7)]
DROPPED = object()


class Watched:
    """A run of the little world on a clock of its own, and all that can be seen of it from outside."""

    def __init__(self) -> None:
        self.result: EvolutionResult | None = None
        self.error: Exception | None = None
        self.events: list[Any] = []
        self.trained: list[str] = []
        self.texts: list[str] = []
        self.keys: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._at_once: Counter[str] = Counter()
        self._held_out: set[str] = set()

    async def run(self, rendered: str, task: Task) -> bool:
        lane = "evaluation" if task.id in self._held_out else "rollout"
        if lane == "rollout":
            self.trained.append(task.id)
            self.texts.append(rendered)
        self.keys.update(task.meta)
        self._at_once[lane] += 1
        self.most[lane] = max(self.most[lane], self._at_once[lane])
        await trio.sleep(1.0)
        self._at_once[lane] -= 1
        return task.prompt in rendered.split()

    async def reward(self, task: Task, output: Any) -> float:
        return float(output is True)

    async def propose(self, rendered: str, task: Task, output: Any, score: Score) -> str:
        self.asked["propose"] += 1
        return task.prompt

    async def on_event(self, event: Any) -> None:
        self.events.append(event)

    async def watch(self, options: dict[str, Any]) -> Watched:
        given = {
            "tasks": ROWS,
            "reward": self.reward,
            "run": self.run,
            "propose": self.propose,
            "on_event": self.on_event,
            "schedule": "rounds",
            "rounds": 4,
            "noise": "no",
            **options,
        }
        given = {name: value for name, value in given.items() if value is not DROPPED}
        tasks, reward = given.pop("tasks"), given.pop("reward")
        try:
            config = RunConfig.from_options(tasks, reward, given, "rounds")
            self._held_out = {task.id for task in config.splits().held_out}
            self.result = await async_evolve(tasks, reward, **given)
        except Exception as error:  # noqa: BLE001 - part of what is seen
            self.error = error
        return self

    @property
    def started(self) -> Any:
        return next(event for event in self.events if type(event).__name__ == "RunStarted")

    def named(self, name: str) -> Any:
        """A part of the result by its name; of a mapping in it, ``part.key``."""
        part, _, key = name.partition(".")
        assert self.result is not None, self.error
        value = getattr(self.result, part)
        value = value() if callable(value) else value
        return value.get(key, 0) if key else value


Look = Callable[[Watched], Any]


@frozen
class Change:
    """What is set, where it can be seen, and what else both runs need for it to matter."""

    option: Any
    look: Look
    base: dict[str, Any] = field(factory=dict)


def shown(name: str) -> Look:
    return lambda watched: watched.named(name)


async def half(task: Any, output: Any) -> float:
    return 0.5


async def never(task: Any, output: Any) -> float:
    return 0.0


async def sometimes_void(task: Any, output: Any) -> float:
    return math.nan if task.id == "t0" else float(output)


class Solver:
    async def solve(self, rendered: str, task: Any) -> bool:
        return True

    async def propose(self, rendered: str, task: Any, output: Any, score: Any) -> None:
        return None


async def always(rendered: str, task: Any) -> bool:
    return True


async def chatter(rendered: str, task: Any, output: Any, score: Any) -> str:
    return "something else"


class FirstOnly:
    """A plan in which everybody works on the first task."""

    def begin(self, tasks: Any, n_units: int, artifact_id: str, solved_threshold: float) -> Any:
        self._only = Assignment(tuple(tasks[:1]))
        return self

    def assign(self, turn: int, unit: int) -> Assignment:
        return self._only


class LastFirst:
    """Draws the last task of every assignment."""

    def begin(self, tasks: Any, seed: int) -> TaskDraw:
        return self

    def draw(self, assignment: Assignment, turn: int) -> Task:
        return assignment.tasks[-1]

    def observe(self, task: Task, score: Score) -> None:
        pass


class Reject:
    def decide(self, *_: Any) -> Any:
        return Verdict("reject", Outcome.BELOW_THRESHOLD)

    def can_still_accept(self, evidence: Any) -> bool:
        return True


class DiscardAll:
    def decide(self, eta: int, alpha: int, contract_breaking: bool) -> Any:
        return "discard"


class DropAll:
    def contested(self, cards: Any) -> Any:
        return ()

    def resolve(self, cards: Any, scores: Any) -> Resolution:
        return Resolution(())


class NoCandidates:
    tournament = False

    def candidates(self, cards: Any, scores: Any) -> Any:
        return ()


class AtOnce:
    def due(self, quiet_sweeps: int) -> bool:
        return True


class Silent:
    async def propose(self, context: Any, ask: Any) -> None:
        return None


class Doubting:
    """A verifier whose oracle finds every candidate as good as every other."""

    async def rule(self, artifact: Evolvable) -> Measurement:
        return Measurement((Reading("t0", 0.5, 1),))

    async def learned(self, artifact: Evolvable) -> Any:
        return Estimate(0.5, 0.1)

    oracle = rule

    def oracle_cost(self, artifact: Evolvable) -> int:
        return 0


class KnowsAll:
    """A cache that has every score already."""

    def get(self, key: str) -> Score | None:
        return Score(0.25)

    def put(self, key: str, score: Score) -> None:
        pass


class Guessing:
    """An evaluator that measures nothing and says what it likes."""

    async def measure(self, artifact: Evolvable, tasks: Any, **_: Any) -> Measurement:
        return Measurement(tuple(Reading(task.id, 0.75, 1) for task in tasks))

    def unanswered(self, artifact: Evolvable, tasks: Any, **_: Any) -> int:
        return 0


@asynccontextmanager
async def guessing(services: Any) -> AsyncIterator[Any]:
    yield Guessing()


class Doubling(InlineExecutor):
    """Runs everything twice, as who buys a service by the call would notice."""

    def attach_actors(self, actors: Any) -> Any:
        inner = super().attach_actors(actors)
        once = inner.rollout

        async def twice(spec: Any) -> Any:
            await once(spec)
            return await once(spec)

        inner.rollout = twice  # type: ignore[method-assign]
        return inner


def filled_ledger() -> MemoryLedger:
    ledger = MemoryLedger()
    ledger.register(Evolvable("artifact", AppendRules().initial("lesson-0")))
    return ledger


WIDE = {"blast_radius": 0.9}
STREAM = {"schedule": "stream"}

POLICIES: dict[str, Change] = {
    "executor": Change(Doubling(), lambda seen: len(seen.trained)),
    "sandbox": Change(SandboxSpec(), lambda seen: type(seen.error)),
    "task_sampler": Change(LastFirst(), lambda seen: sorted(seen.trained)),
    "staleness": Change(DiscardAll(), shown("outcomes.stale")),
    "conflict": Change(DropAll(), shown("outcomes.conflict-dropped")),
    "fusion": Change(NoCandidates(), shown("outcomes.fusion-lost")),
    "acceptance": Change(Reject(), shown("outcomes.below-threshold")),
    "promotion": Change(AtOnce(), shown("counters.promotions")),
    "proposal": Change(Silent(), lambda seen: seen.asked["propose"]),
    "verifier": Change(lambda services: Doubting(), shown("outcomes.oracle-rejected"), WIDE),
    "ledger": Change(filled_ledger(), shown("resumed_from")),
    "eval_cache": Change(KnowsAll(), shown("seed_reward")),
    "evaluator": Change(guessing, shown("seed_reward")),
}

OPTIONS: dict[str, Change] = {
    "tasks": Change(ROWS[:20], lambda seen: seen.started.tasks),
    "reward": Change(half, shown("seed_reward")),
    "agent": Change(Solver(), shown("seed_reward")),
    "run": Change(always, shown("seed_reward")),
    "propose": Change(chatter, shown("state")),
    "hide": Change(("gold", "cluster"), lambda seen: seen.keys),
    "strategy": Change(AppendRules(header="Know this:"), shown("rendered")),
    "initial_state": Change("lesson-0", shown("seed_reward")),
    "artifact_id": Change("manual", shown("artifact_id")),
    "blast_radius": Change(0.9, shown("counters.audits_passed")),
    "schedule": Change("stream", lambda seen: seen.started.schedule),
    "n_workers": Change(2, shown("rollouts")),
    "rounds": Change(2, shown("rollouts")),
    "parallel": Change(FirstOnly(), lambda seen: sorted(seen.trained)),
    "task_sampler": Change(LastFirst(), lambda seen: sorted(seen.trained)),
    "max_concurrency": Change(2, lambda seen: seen.most["rollout"]),
    "eval_concurrency": Change(2, lambda seen: seen.most["evaluation"]),
    "async_ratio": Change(0, lambda seen: len(set(seen.texts)), {**STREAM, "resync_on_commit": False, "rounds": 9}),
    "max_unmerged": Change(1, lambda seen: seen.named("history")[0].rollouts, {**STREAM, "eval_concurrency": 1}),
    "resync_on_commit": Change(False, lambda seen: len(set(seen.texts)), {**STREAM, "async_ratio": 50, "rounds": 9}),
    "refresh_interval": Change(4, lambda seen: sorted(seen.texts)),
    "budget": Change(Budget(rollouts=5), shown("stop_reason")),
    "target_reward": Change(0.1, shown("stop_reason")),
    "patience": Change(1, shown("stop_reason"), {"propose": chatter}),
    "rollout_timeout": Change(0.5, shown("counters.rollouts_timed_out")),
    "round_timeout": Change(0.5, shown("counters.rollouts_cut_by_round_timeout")),
    "held_out_frac": Change(0.5, lambda seen: seen.started.tasks),
    "held_out": Change(EXTRA, lambda seen: seen.started.tasks),
    "test_frac": Change(0.2, lambda seen: seen.started.tasks),
    "test": Change(EXTRA, shown("test_reward")),
    "seed": Change(1, lambda seen: sorted(set(seen.trained))),
    "cheap_eval_tasks": Change(2, shown("calls_by_purpose.rule"), {"oracle": never}),
    "eval_repeats": Change(2, lambda seen: seen.named("seed").trials, {"noise": "yes"}),
    "confirm_repeats": Change(5, shown("calls_by_purpose.gate"), {"noise": "yes"}),
    "noise": Change("yes", shown("noisy")),
    "oracle": Change(never, shown("outcomes.oracle-rejected"), WIDE),
    "oracle_budget": Change(1, shown("outcomes.audit-unavailable"), {**WIDE, "oracle": never}),
    "self_verify": Change(True, shown("calls_by_purpose.self-verify")),
    "solved_threshold": Change(0.0, lambda seen: seen.asked["propose"]),
    "policies": Change(Policies(acceptance=Reject()), shown("version")),
    "run_dir": Change(Path("run"), shown("ledger")),
    "on_event": Change(DROPPED, lambda seen: bool(seen.events)),
    "strict": Change(True, lambda seen: type(seen.error), {"reward": sometimes_void}),
    "allow": Change("textwrap:", lambda seen: type(seen.error), {"run": Ref("textwrap:indent", call=False)}),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", OPTIONS)
async def test_option_changes_what_can_be_seen(name: str, autojump_clock: Any, tmp_path: Path) -> None:
    change = OPTIONS[name]
    option = {"run": DROPPED, "propose": DROPPED, name: change.option} if name == "agent" else {name: change.option}
    if name == "run_dir":
        option = {name: tmp_path / change.option}
    before = change.look(await Watched().watch(change.base))
    after = change.look(await Watched().watch({**change.base, **option}))
    assert before != after


@pytest.mark.trio
@pytest.mark.parametrize("name", POLICIES)
async def test_policy_changes_what_can_be_seen(name: str, autojump_clock: Any) -> None:
    change = POLICIES[name]
    policies = Policies(**{name: change.option})
    before = change.look(await Watched().watch(change.base))
    after = change.look(await Watched().watch({**change.base, "policies": policies}))
    assert before != after


@pytest.mark.trio
@pytest.mark.parametrize("name", [name for name, change in OPTIONS.items() if not change.base and name != "on_event"])
async def test_the_same_run_twice_shows_the_same(name: str, autojump_clock: Any) -> None:
    """Else a difference would prove nothing."""
    if name in ("run_dir", "policies"):
        return
    look = OPTIONS[name].look
    assert look(await Watched().watch({})) == look(await Watched().watch({}))


@pytest.mark.trio
@pytest.mark.parametrize(("schedule", "foreign"), [("rounds", STREAM_ONLY), ("stream", ROUNDS_ONLY)])
async def test_option_of_the_other_schedule_is_refused_by_name(schedule: str, foreign: dict[str, str]) -> None:
    for name, instead in foreign.items():
        seen = await Watched().watch({"schedule": schedule, name: OPTIONS[name].option})
        assert isinstance(seen.error, OptionError)
        assert f"{name}=" in str(seen.error)
        assert instead in str(seen.error)


def test_no_option_and_no_policy_is_left_out() -> None:
    assert OPTIONS.keys() == {each.name for each in fields(RunConfig)}
    assert POLICIES.keys() == {each.name for each in fields(Policies)}
    assert Options.__annotations__.keys() == OPTIONS.keys() - {"tasks", "reward"} | {"asynchronous"}

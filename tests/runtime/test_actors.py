"""Who may solve, score, propose and watch, in whatever form, and what each of them gets to see."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.evolution import async_evolve
from adescent.executors import InlineExecutor, ThreadExecutor
from adescent.policies import Policies, ProposalContext
from adescent.refs import Ref
from adescent.runtime.result import EvolutionResult
from adescent.tasks import Score, Task
from adescent.telemetry import RunFinished, RunStarted

pytestmark = pytest.mark.anyio

BOUND = 60.0

# Forms ----------------------------------------------------------------------------------------------------------------


def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*args: Any) -> Any:
        return function(*args)

    return awaited


def as_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args)


def as_plain_that_returns_an_awaitable(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: as_coroutine(function)(*args)


class Called:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    async def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def as_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(lambda _, *args: function(*args), None)


FORMS = [as_coroutine, as_plain, as_plain_that_returns_an_awaitable, Called, as_partial]


def solve(rendered: str, task: Task) -> bool:
    return task.prompt in rendered


def score(task: Task, output: Any) -> float:
    return float(output)


def teach(rendered: str, task: Task, output: Any, score: Score) -> str:
    return f"know {task.prompt}"


ROWS = [{"id": f"t{at}", "prompt": f"lesson-{at % 4}", "gold": "secret", "hint": "h"} for at in range(16)]


async def run(schedule: str, **options: Any) -> EvolutionResult:
    actors = {"reward": score, "run": solve, "propose": teach, "rounds": 6, "n_workers": 3}
    options = {**actors, "schedule": schedule, **options}
    with anyio.fail_after(BOUND):
        return await async_evolve(options.pop("tasks", ROWS), options.pop("reward"), **options)


@pytest.mark.parametrize("forms", [*product(FORMS[:3], repeat=3), (Called, Called, Called), (as_partial,) * 3])
async def test_any_mix_of_forms_does(forms: Any, schedule: str, anyio_backend: Any) -> None:
    solving, scoring, teaching = (form(actor) for form, actor in zip(forms, (solve, score, teach), strict=True))
    result = await run(schedule, run=solving, reward=scoring, propose=teaching)
    assert result.final_reward == 1.0
    scored = {"evaluations", "cache_hits", "evaluations_joined"}
    assert result.counters.keys() <= {*scored, "candidates_measured", "candidates_stopped_early", "promotions"}


@pytest.mark.parametrize("executor", [InlineExecutor, functools.partial(ThreadExecutor, 2)])
@pytest.mark.parametrize("form", FORMS)
async def test_any_form_does_on_any_executor(
    form: Any, executor: Callable[[], Any], schedule: str, anyio_backend: Any
) -> None:
    result = await run(schedule, run=form(solve), policies=Policies(executor=executor()))
    assert result.final_reward == 1.0


async def test_plain_functions_leave_the_hosts_thread(schedule: str, anyio_backend: Any) -> None:
    where: dict[str, set[bool]] = {"run": set(), "reward": set(), "propose": set(), "on_event": set(), "async": set()}
    host = threading.get_ident()

    def seen(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            where[name].add(threading.get_ident() == host)
            return function(*args)

        return noted

    await run(
        schedule,
        run=seen("run", solve),
        reward=seen("reward", score),
        propose=seen("propose", teach),
        on_event=seen("on_event", lambda event: None),
    )
    await run(schedule, run=as_coroutine(seen("async", solve)))
    assert where == {name: {name == "async"} for name in where}


async def test_actors_may_be_refs(schedule: str, anyio_backend: Any) -> None:
    rows = [{"prompt": f"word{at % 3} here", "gold": "x"} for at in range(12)]
    result = await run(
        schedule,
        tasks=rows,
        run=Ref("adescent.domains.router:router_run"),
        reward=Ref("adescent.rewards:exact_match"),
        propose=lambda rendered, task, output, score: f"{task.prompt.split()[0]}: x",
        strategy=None,
    )
    assert result.final_reward == 1.0


async def test_an_agent_solves_and_proposes(schedule: str, anyio_backend: Any) -> None:
    class Agent:
        def __init__(self) -> None:
            self.contexts: list[ProposalContext] = []

        async def solve(self, rendered: str, task: Task) -> bool:
            return solve(rendered, task)

        def propose(self, rendered: str, task: Task, output: Any, score: Score, context: ProposalContext) -> str:
            self.contexts.append(context)
            return teach(rendered, task, output, score)

    agent = Agent()
    result = await run(schedule, agent=agent, run=None, propose=None)
    assert result.final_reward == 1.0
    assert agent.contexts
    for context in agent.contexts:
        assert (context.output, context.score.value) == (False, 0.0)
        assert context.task.prompt not in context.rendered


# What they see --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hide", "seen"), [(None, {"hint"}), (("hint", "gold"), set()), ("hint", {"gold"}), ((), {"gold", "hint"})]
)
async def test_run_never_sees_what_is_hidden_and_the_others_do(
    hide: Any, seen: set[str], schedule: str, anyio_backend: Any
) -> None:
    keys: dict[str, set[frozenset[str]]] = {"run": set(), "reward": set(), "propose": set(), "oracle": set()}

    def noting(name: str, function: Callable[..., Any], place: int) -> Callable[..., Any]:
        async def noted(*args: Any) -> Any:
            keys[name].add(frozenset(args[place].meta))
            return function(*args)

        async def with_two(one: Any, two: Any) -> Any:
            return await noted(one, two)

        async def with_four(one: Any, two: Any, three: Any, four: Any) -> Any:
            return await noted(one, two, three, four)

        return with_four if name == "propose" else with_two

    await run(
        schedule,
        run=noting("run", solve, 1),
        reward=noting("reward", score, 0),
        propose=noting("propose", teach, 1),
        oracle=noting("oracle", score, 0),
        blast_radius=0.5,
        self_verify=True,
        test_frac=0.2,
        **({} if hide is None else {"hide": hide}),
    )
    everything = {frozenset({"gold", "hint"})}
    assert keys == {"run": {frozenset(seen)}, "reward": everything, "propose": everything, "oracle": everything}


async def test_what_the_scorer_says_reaches_the_proposer(schedule: str, anyio_backend: Any) -> None:
    heard: list[Score] = []

    def judge(task: Task, output: Any) -> Score:
        return Score(float(output), f"{task.id} needs {task.prompt}", {"length": 3.0})

    def listen(rendered: str, task: Task, output: Any, score: Score) -> str:
        heard.append(score)
        assert score.feedback == f"{task.id} needs {task.prompt}"
        return score.feedback.rpartition(" ")[2]

    result = await run(schedule, reward=judge, propose=listen)
    assert result.final_reward == 1.0
    assert all(dict(score.metrics) == {"length": 3.0} for score in heard)


async def test_the_proposer_hears_how_earlier_proposals_ended(schedule: str, anyio_backend: Any) -> None:
    seen: list[tuple[str, str]] = []

    def learn(rendered: str, task: Task, output: Any, score: Score, context: ProposalContext) -> str:
        seen.extend((settled.outcome.value, settled.reason) for settled in context.history)
        return "nothing of use"

    await run(schedule, propose=learn, n_workers=1, rounds=9)
    assert {outcome for outcome, _ in seen} >= {"tie", "duplicate"}
    assert all(reason for _, reason in seen)


async def test_nothing_is_proposed_for_what_is_solved(schedule: str, anyio_backend: Any) -> None:
    def never(*_: Any) -> str:
        raise AssertionError("it was good enough")

    def propose(rendered: str, task: Task, output: Any, score: Score) -> str:
        return str(never())

    result = await run(schedule, reward=lambda task, output: 0.7, propose=propose, solved_threshold=0.7)
    assert (result.error, result.outcomes()) == ("", {})


# Who watches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [as_coroutine, as_plain, as_plain_that_returns_an_awaitable])
async def test_a_watcher_is_told_everything_in_order(form: Any, schedule: str, anyio_backend: Any) -> None:
    events: list[Any] = []
    result = await run(schedule, on_event=lambda event: form(events.append)(event))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].final_reward == result.final_reward
    assert [event.elapsed for event in events] == sorted(event.elapsed for event in events)


@pytest.mark.parametrize("form", [as_coroutine, as_plain])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
async def test_a_watcher_that_raises_is_counted_and_logged(
    form: Any, error: type[BaseException], schedule: str, caplog: pytest.LogCaptureFixture, anyio_backend: Any
) -> None:
    told: list[Any] = []

    def fail(event: Any) -> None:
        told.append(event)
        raise error("not today")

    async def propose(*args: Any) -> str:
        while not caplog.records:  # so that the run does not end before the first failure is counted
            await checkpoint()
        return teach(*args)

    result = await run(schedule, propose=propose, on_event=lambda event: form(fail)(event))
    assert result.final_reward == 1.0
    assert 0 < result.counters["on_event_failed"] < len(told)  # what is told at the end comes after the result
    assert isinstance(told[-1], RunFinished)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == len(told)
    assert "on_event raised for RunStarted" in failures[0].getMessage()


async def test_a_watcher_that_hangs_holds_nothing_up(
    schedule: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    monkeypatch.setattr("adescent.runtime.engine.WATCHER_GRACE", 0.01)

    async def hang(event: Any) -> None:
        await anyio.sleep_forever()

    assert (await run(schedule, on_event=hang)).final_reward == 1.0


@pytest.mark.parametrize("actors", [as_plain, as_coroutine])
async def test_a_watcher_that_blocks_takes_no_thread_of_the_actors(
    actors: Any,
    schedule: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    anyio_backend: Any,
) -> None:
    monkeypatch.setattr("adescent.runtime.engine.WATCHER_GRACE", 0.01)
    over = threading.Event()
    told: list[Any] = []

    def block(event: Any) -> None:
        told.append(event)
        over.wait(BOUND)

    forms = {"run": actors(solve), "reward": actors(score), "propose": as_plain(teach)}
    try:
        result = await run(schedule, on_event=block, policies=Policies(executor=ThreadExecutor(1)), **forms)
    finally:
        over.set()
    assert result.final_reward == 1.0
    assert [type(event) for event in told] == [RunStarted]
    assert "on_event was not done" in caplog.text

"""Where code is isolated: a worker runs one rollout and no more, and what it says is scored where none has ever run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from adescent.executors import ProcessExecutor, collect_rollouts
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.sandbox import Level, reach
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.mainly("trio"),
    pytest.mark.usefixtures("importable", "anyio_backend"),
]

BOUND = 30.0
TASK = Task("t1", "What is 1 + 1?", {"gold": "2", "cluster": "sums"})


def ref(name: str, **config: Any) -> Ref:
    return Ref(f"process_actors:{name}", config, call=bool(config))


def actors(run: str, reward: str = "full", **more: Any) -> Actors:
    return Actors(ref(run), ref(reward), resolver=Resolver(("process_actors:",)), **more)


def spec_of(rendered: str = "rules", task: Task = TASK, **more: Any) -> RolloutSpec:
    return RolloutSpec(rendered, task, **more)


def failure_of(result: Result) -> Failure:
    assert result.error is not None
    return result.error


@pytest.fixture(params=["landlock", pytest.param("bubblewrap", marks=pytest.mark.slow)])
def level(request: pytest.FixtureRequest) -> Level:
    wanted: Level = request.param
    if reach(SandboxSpec(level=wanted)) != wanted:
        pytest.skip(f"there is no {wanted} on this machine")
    return wanted


Apart = Callable[[int, Actors], AbstractAsyncContextManager[ProcessExecutor]]


@pytest.fixture
def apart(level: Level) -> Apart:
    """A maker of executors that isolate, open in a block."""

    @asynccontextmanager
    async def opened(n: int, cast: Actors) -> AsyncIterator[ProcessExecutor]:
        with anyio.fail_after(BOUND):
            async with ProcessExecutor(n, sandbox=SandboxSpec(level=level)).attach_actors(cast) as view:
                yield view

    return opened


async def test_nobody_runs_where_another_has_run_and_nobody_is_scored_there(apart: Apart, level: Level) -> None:
    async with apart(2, actors("place", "by_whom")) as view:
        results = await collect_rollouts(view, [spec_of(lease_id=str(number)) for number in range(6)])
        counters = view.counters()
    assert {(result.kind, result.level) for result in results} == {("ok", level)}
    assert [result.lease_id for result in results] == list("012345")
    runners = [result.output for result in results]
    scorers = {(result.score or Score(0.0)).feedback for result in results}
    assert len(set(runners)) == 6
    assert scorers.isdisjoint(runners)
    assert len(scorers) <= 2
    assert counters["workers_lost"] == 0


async def test_a_result_is_of_both_and_the_scorer_sees_what_was_hidden(apart: Apart) -> None:
    async with apart(1, actors("telling", "scoring")) as view:
        (result,) = await collect_rollouts(view, [spec_of(attempt=2, resume_state={"before": 1})])
    assert result.output == {"meta": {"cluster": "sums"}, "resumed": {"before": 1}}
    assert result.score == Score(1.0, "2", {"seen": 2.0})
    assert result.log == "run prints\nreward prints\n"
    assert (result.attempt, result.deaths, result.checkpoint) == (2, (), {"kept": True})
    assert result.seconds > 0


async def test_async_actors_run_there_too(apart: Apart) -> None:
    async with apart(2, actors("pid_async", "full_async")) as view:
        results = await collect_rollouts(view, [spec_of()] * 3)
    assert {result.kind for result in results} == {"ok"}


async def test_failures_are_told_as_everywhere(apart: Apart) -> None:
    specs = [
        spec_of(run=ref("unspeakable")),
        spec_of(reward=ref("unscored")),
        spec_of(run=ref("giving", output="a set")),
        spec_of(run=ref("missing")),
        spec_of(reward=ref("missing")),
        spec_of(run=Ref("os:getcwd", call=False)),
    ]
    async with apart(2, actors("pid")) as view:
        results = await collect_rollouts(view, specs)
    assert [(result.kind, failure_of(result).stage, failure_of(result).type) for result in results] == [
        ("model", "run", "ValueError"),
        ("caller", "reward", "ContractError"),
        ("model", "run", "ContractError"),
        ("caller", "worker", "RefError"),
        ("caller", "worker", "RefError"),
        ("caller", "worker", "RefError"),
    ]
    assert isinstance(results[1].output, int)  # what was run stays told


async def test_deaths_of_candidates_count_and_those_of_scorers_do_not(apart: Apart) -> None:
    async with apart(2, actors("doomed")) as view:
        doomed, unlucky, fine = await collect_rollouts(
            view, [spec_of(), spec_of(run=ref("pid"), reward=ref("deadly")), spec_of(run=ref("pid"))]
        )
    assert doomed.died_every_time
    assert doomed.deaths == ("killed by SIGSEGV",) * 3
    assert doomed.checkpoint == {"attempt after": {"attempt after": {"attempt after": None}}}
    assert failure_of(unlucky).type == "WorkerLost"
    assert not unlucky.died_every_time
    assert (unlucky.deaths, unlucky.attempt) == ((), 0)
    assert isinstance(unlucky.output, int)
    assert fine.kind == "ok"


async def test_after_a_death_the_next_attempt_goes_on(apart: Apart) -> None:
    async with apart(1, actors("dying")) as view:
        (result,) = await collect_rollouts(view, [spec_of("1 3")])
    assert (result.kind, result.output, result.attempt) == ("ok", [0, "died", 2, "died", 4], 2)
    assert result.deaths == ("exited with code 1", "exited with code 3")


async def test_workers_are_warm_before_there_is_anything_to_do(apart: Apart) -> None:
    async with apart(2, actors("pid")) as view:
        assert view.statistics().starting + view.statistics().idle == 2  # the spares
        assert (await view.rollout(spec_of())).kind == "ok"


async def test_cancelling_ends_a_candidate_and_a_scorer(apart: Apart, line: Any) -> None:
    """Candidates cannot reach the test's pipes, so it is the scorer that says when it has begun."""
    async with apart(2, actors("pid", "stuck")) as view, anyio.create_task_group() as group:
        group.start_soon(view.rollout, spec_of(task=Task("t1", line.path)))
        scorer = await line.begun()
        group.cancel_scope.cancel()
    with anyio.fail_after(BOUND):
        await gone(scorer)


async def gone(pid: int) -> None:
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(ended)
    finally:
        os.close(ended)


async def test_time_counts_for_each_of_both(apart: Apart, level: Level) -> None:
    late = SandboxSpec(level=level, timeout_s=1.0)
    async with apart(2, actors("hanging")) as view:
        hung, scored = await collect_rollouts(
            view, [spec_of("spin", run=ref("busy"), sandbox=late), spec_of(run=ref("pid"), sandbox=late)]
        )
    assert (failure_of(hung).type, hung.deaths) == ("RolloutTimeout", ("no answer within 1 s",))
    assert scored.kind == "ok"

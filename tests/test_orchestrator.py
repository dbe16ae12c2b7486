from __future__ import annotations

import asyncio
import json
import subprocess
from contextvars import copy_context
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import attrs
import pytest

from adescent.budget import Budget
from adescent.domains import Domain, router_domain
from adescent.errors import ContractError, LoopRunning, OptionError
from adescent.evolution import async_evolve, evolve
from adescent.orchestrator import (
    AgentDescent,
    AsyncAgentDescent,
    ForkBaseline,
    async_run_fork_baseline,
    run_fork_baseline,
)
from adescent.runtime.result import EvolutionResult
from adescent.tasks import Task, make_splits

ROUTER = router_domain(n_clusters=3, tasks_per_cluster=20, noise=0.0, seed=3)


def watching(domain: Domain) -> tuple[Domain, list[tuple[str, str]]]:
    """The domain, and a list that fills with (rendered, task id) of every rollout."""
    seen: list[tuple[str, str]] = []

    async def run(rendered: str, task: Task) -> Any:
        seen.append((rendered, task.id))
        return await domain.run(rendered, task)

    return attrs.evolve(domain, run=run), seen


def clusters_learnt(fork: EvolutionResult) -> set[str]:
    """The clusters whose keywords a fork has rules for: without noise nothing else gets one."""
    learnt = set(fork.state) - set(ROUTER.initial_state or ())
    return {task.cluster for task in ROUTER.tasks if not learnt.isdisjoint(task.prompt.split())}


# The reference runtimes -----------------------------------------------------------------------------------------------


def test_rounds_are_what_evolve_does_with_the_same_words() -> None:
    adapted = AgentDescent(ROUTER, n_workers=3, rounds=6, seed=5).run()
    plain = evolve(
        ROUTER.tasks,
        ROUTER.reward,
        run=ROUTER.run,
        propose=ROUTER.propose,
        strategy=ROUTER.strategy,
        initial_state=ROUTER.initial_state,
        n_workers=3,
        rounds=6,
        seed=5,
    )
    assert adapted.version > 1
    assert (adapted.state, adapted.history[-1].rollouts) == (plain.state, 18)
    assert [commit.tree for commit in adapted.log] == [commit.tree for commit in plain.log]


@pytest.mark.anyio
async def test_without_a_barrier_it_is_what_async_evolve_does() -> None:
    options: dict[str, Any] = {"n_workers": 1, "max_unmerged": 1, "rounds": 12}
    with anyio.fail_after(20):
        adapted = await AsyncAgentDescent(ROUTER, **options).run()
        plain = await async_evolve(
            ROUTER.tasks,
            ROUTER.reward,
            run=ROUTER.run,
            propose=ROUTER.propose,
            strategy=ROUTER.strategy,
            initial_state=ROUTER.initial_state,
            **options,
        )
    assert adapted.version > 1
    assert adapted.state == plain.state


@pytest.mark.parametrize(
    ("runtime", "options", "other"),
    [
        (AgentDescent, {"schedule": "stream"}, "AsyncAgentDescent"),
        (AgentDescent, {"asynchronous": True}, "AsyncAgentDescent"),
        (AsyncAgentDescent, {"schedule": "rounds"}, "AgentDescent"),
        (AsyncAgentDescent, {"asynchronous": False}, "AgentDescent"),
    ],
)
def test_a_runtime_has_its_one_schedule(runtime: Any, options: dict[str, Any], other: str) -> None:
    with pytest.raises(OptionError, match=f"use {other}"):
        runtime(ROUTER, **options)


@pytest.mark.parametrize("name", ["agent", "run", "propose", "strategy", "initial_state"])
def test_what_the_domain_brings_is_not_given_twice(name: str) -> None:
    options: dict[str, Any] = {name: None}
    for make in (AgentDescent, AsyncAgentDescent, run_fork_baseline):
        with pytest.raises(OptionError, match=f"{name}: the domain brings that"):
            make(ROUTER, **options)


def test_what_is_stable_can_be_read_with_plain_git(tmp_path: Path) -> None:
    result = AgentDescent(ROUTER, n_workers=3, rounds=20, noise="no", run_dir=tmp_path / "run").run()

    def git(*arguments: str) -> str:
        command = ["git", "-C", result.ledger, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def stored(branch: str) -> Any:
        (name,) = git("ls-tree", "-r", "--name-only", branch).splitlines()
        return json.loads(git("show", f"{branch}:{name}"))

    assert stored("stable")["version"] == result.stable_version > 1
    assert stored("dev")["version"] == result.version
    assert stored("dev")["state"] == result.state
    assert result.stable_reward == result.final_reward
    assert git("rev-list", "--count", "dev").strip() == str(len(result.log))


# Forks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_fork_sees_its_own_clusters_and_is_measured_on_all() -> None:
    with anyio.fail_after(20):
        baseline = await async_run_fork_baseline(ROUTER, n_workers=2, rounds=20, noise="no", seed=1)
    assert [clusters_learnt(fork) for fork in baseline.forks] == [{"c0", "c2"}, {"c1"}]
    held_out = make_splits(ROUTER.tasks, seed=1).held_out
    assert {task.cluster for task in held_out} == {"c0", "c1", "c2"}
    assert [fork.final.trials for fork in baseline.forks] == [len(held_out)] * 2


@pytest.mark.anyio
async def test_a_fork_that_sees_all_clusters_begins_where_no_other_does() -> None:
    domain, seen = watching(ROUTER)
    with anyio.fail_after(20):
        await async_run_fork_baseline(domain, n_workers=3, see="all", rounds=1, noise="no", seed=1)
    train = [task.id for task in make_splits(ROUTER.tasks, seed=1).train]
    drawn = [name for _, name in seen if name in train]
    assert sorted(drawn) == sorted([train[0], train[len(train) // 3], train[2 * len(train) // 3]])


@pytest.mark.anyio
async def test_the_budget_is_that_of_all_forks_together() -> None:
    with anyio.fail_after(20):
        few = await async_run_fork_baseline(ROUTER, n_workers=3, budget=Budget(rollouts=11))
        dear = await async_run_fork_baseline(ROUTER, n_workers=3, budget=Budget(calls=400))
    assert [fork.rollouts for fork in few.forks] == [4, 4, 3]
    assert few.rollouts == 11
    assert 200 < dear.calls <= 400
    assert dear.calls == sum(fork.calls for fork in dear.forks)


@pytest.mark.anyio
async def test_the_best_fork_is_reported_and_the_mean_beside_it() -> None:
    with anyio.fail_after(20):
        baseline = await async_run_fork_baseline(ROUTER, n_workers=3, rounds=20, test_frac=0.2)
    figures = [fork.final_reward or 0.0 for fork in baseline.forks]
    assert baseline.held_out_reward == max(figures)
    assert baseline.test_reward == baseline.best.test_reward
    assert baseline.test_reward is not None
    assert baseline.mean_reward == pytest.approx(sum(figures) / 3)
    assert baseline.error == ""
    assert baseline.elapsed > 0.0


def test_the_same_from_a_script_in_rounds() -> None:
    once, again = (run_fork_baseline(ROUTER, n_workers=2, rounds=8) for _ in range(2))
    assert [fork.state for fork in once.forks] == [fork.state for fork in again.forks]
    assert len(once.best.history) == 8


def test_merging_beats_working_apart_at_equal_calls() -> None:
    options: dict[str, Any] = {"n_workers": 3, "budget": Budget(calls=1500), "noise": "no"}
    merged = AgentDescent(ROUTER, **options).run()
    apart = run_fork_baseline(ROUTER, **options)
    assert merged.final_reward is not None
    assert apart.held_out_reward is not None
    assert merged.final_reward > apart.held_out_reward + 0.2


@pytest.mark.anyio
async def test_each_fork_keeps_a_ledger_of_its_own(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        baseline = await async_run_fork_baseline(ROUTER, n_workers=2, rounds=4, run_dir=tmp_path)
    assert [fork.artifact_id for fork in baseline.forks] == ["fork-0", "fork-1"]
    assert [Path(fork.ledger).parent for fork in baseline.forks] == [tmp_path / "fork-0", tmp_path / "fork-1"]


@pytest.mark.anyio
async def test_it_is_not_for_use_inside_a_loop_unless_awaited() -> None:
    with pytest.raises(LoopRunning, match="await async_run_fork_baseline"):
        run_fork_baseline(ROUTER)


def test_a_callback_of_a_loop_is_inside_it() -> None:
    raised: list[BaseException] = []

    def call() -> None:
        try:
            run_fork_baseline(ROUTER)
        except LoopRunning as error:
            raised.append(error)

    async def host() -> None:
        asyncio.get_running_loop().call_soon(call)
        await anyio.lowlevel.checkpoint()

    asyncio.run(host())
    assert len(raised) == 1


@pytest.mark.anyio
async def test_a_thread_with_the_hosts_context_is_not() -> None:
    ended: list[ForkBaseline] = []
    inherited = copy_context()
    thread = Thread(target=lambda: ended.append(inherited.run(run_fork_baseline, ROUTER, n_workers=1, rounds=1)))
    with anyio.fail_after(20):
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
    assert [baseline.rollouts for baseline in ended] == [1]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"see": "some"}, "see='some'"),
        ({"artifact_id": "mine"}, "named by number"),
        ({"max_concurrency": 2}, "one worker each"),
        ({"n_workers": 0}, "n_workers=0"),
        ({"budget": Budget(rollouts=2), "n_workers": 3}, "rollouts=0"),
    ],
)
async def test_what_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        await async_run_fork_baseline(ROUTER, **options)


@pytest.mark.anyio
async def test_clusters_need_names_to_be_kept_apart_by() -> None:
    plain = attrs.evolve(ROUTER, tasks=[task.without(["cluster"]) for task in ROUTER.tasks])
    with pytest.raises(ContractError, match="see='all'"):
        await async_run_fork_baseline(plain)
    with anyio.fail_after(20):
        assert (await async_run_fork_baseline(plain, see="all", rounds=1)).error == ""


@pytest.mark.anyio
async def test_an_error_of_the_callers_comes_out_bare_and_ends_all() -> None:
    def broken(task: Task, output: Any) -> str:
        return "no number"

    domain = attrs.evolve(ROUTER, reward=broken)
    with anyio.fail_after(20), pytest.raises(ContractError):
        await async_run_fork_baseline(domain, n_workers=3, strict=True)


@pytest.mark.anyio
async def test_a_deadline_around_it_is_the_callers_own() -> None:
    slow = router_domain(n_clusters=3, delay=0.02)
    with pytest.raises(TimeoutError), anyio.fail_after(0.2):
        await async_run_fork_baseline(slow, n_workers=3, budget=Budget(seconds=60))

"""The same seed gives the same ledger, whatever the machinery does."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from adescent.budget import Budget
from adescent.domains import Domain, router_domain
from adescent.evolution import async_evolve
from adescent.executors import InlineExecutor, ThreadExecutor
from adescent.policies import Policies
from adescent.runtime.result import EvolutionResult
from adescent.scheduling import ClusterParallel, DifficultyWeighted
from adescent.strategies import AppendRules

BOUND = 60.0
UNITS = 6
LOOPS = ("asyncio", "trio")

Options = dict[str, Any]

VARIANTS: dict[str, Options] = {
    "plain": {},
    "clusters": {"parallel": ClusterParallel()},
    "difficulty": {"task_sampler": DifficultyWeighted()},
    "stale snapshots": {"refresh_interval": 3},
    "verified by workers": {"self_verify": True},
    "a calls budget": {"rounds": None, "budget": Budget(calls=171)},
    "verified within a budget": {"rounds": None, "budget": Budget(calls=243), "self_verify": True},
    "several": {
        "parallel": ClusterParallel(),
        "task_sampler": DifficultyWeighted(),
        "refresh_interval": 2,
        "patience": 4,
    },
    "noise": {"noise": "yes", "confirm_repeats": 1},
    "audits": {"blast_radius": 0.5},
}


def spent(result: EvolutionResult) -> tuple[Any, ...]:
    """All that a run decided, and what it spent on the way, which under a budget decides what comes next."""
    calls = result.calls_by_purpose
    return *decided(result), [calls.get(purpose, 0) for purpose in ("rollout", "proposal", "gate")]


def decided(result: EvolutionResult) -> tuple[Any, ...]:
    """All that a run decided, the ledger's trees first."""
    rewards = [row.held_out_reward for row in result.history]
    ends = (result.outcomes(), rewards, result.rollouts, result.version, result.stable_version, result.stop_reason)
    return [commit.tree for commit in result.log], *ends


def of_the_router(**options: Any) -> Options:
    """Contradictions, wrong proposals and clusters; its actors never wait."""
    domain = router()
    return {
        "tasks": domain.tasks,
        "reward": domain.reward,
        "run": domain.run,
        "propose": domain.propose,
        "strategy": domain.strategy,
        "initial_state": domain.initial_state,
        "n_workers": UNITS,
        "rounds": 6,
        **options,
    }


def router(seed: int = 5) -> Domain:
    return router_domain(n_clusters=3, tasks_per_cluster=12, noise=0.3, contradictions=0.5, seed=seed)


def of_rules(wait: Callable[[], Any] = checkpoint, **options: Any) -> Options:
    """Rules that are added. How often an actor waits hangs on the task: what began first need not come back first."""

    async def run(rendered: str, task: Any) -> bool:
        for _ in range(sum(task.id.encode()) % 7):
            await wait()
        return task.prompt in rendered

    async def propose(rendered: str, task: Any, output: object, score: object) -> str:
        for _ in range(sum(task.id.encode()) % 5):
            await wait()
        return f"know {task.prompt}"

    async def reward(task: Any, output: object) -> float:
        return float(output is True)

    return {**_RULES, "run": run, "propose": propose, "reward": reward, **options}


def of_plain_rules(**options: Any) -> Options:
    """The same with plain functions, which run in threads."""

    def run(rendered: str, task: Any) -> bool:
        return task.prompt in rendered

    def propose(rendered: str, task: Any, output: object, score: object) -> str:
        return f"know {task.prompt}"

    def reward(task: Any, output: object) -> float:
        return float(output is True)

    return {**_RULES, "run": run, "propose": propose, "reward": reward, **options}


_RULES: Options = {
    "tasks": [
        {"id": f"t{number}", "prompt": f"lesson-{number % 9}", "cluster": f"c{number % 3}"} for number in range(36)
    ],
    "strategy": AppendRules(),
    "n_workers": UNITS,
    "rounds": 5,
}


async def evolved(options: Options, **changes: Any) -> EvolutionResult:
    options = {**options, **changes}
    with anyio.fail_after(BOUND):
        return await async_evolve(options.pop("tasks"), options.pop("reward"), **options)


def on(loop: str, options: Options, **changes: Any) -> EvolutionResult:
    return anyio.run(partial(evolved, options, **changes), backend=loop)


@pytest.mark.anyio
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("world", [of_the_router, of_rules])
async def test_rounds_do_not_depend_on_how_many_tasks_do_the_work(
    variant: str, world: Callable[..., Options], anyio_backend: Any
) -> None:
    options = world(schedule="rounds", seed=3, **VARIANTS[variant])
    alone = await evolved(options, max_concurrency=1)
    assert alone.version > 1, "nothing was committed: nothing is compared"
    look = spent if "budget" in options else decided
    for width in (4, 64):
        assert look(await evolved(options, max_concurrency=width)) == look(alone)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rounds_do_not_depend_on_the_loop(variant: str) -> None:
    options = of_the_router(schedule="rounds", seed=4, **VARIANTS[variant])
    one, other = (on(loop, options) for loop in LOOPS)
    assert one.version > 1
    look = spent if "budget" in options else decided
    assert look(one) == look(other)


@pytest.mark.parametrize("variant", ["plain", "verified by workers", "a calls budget", "several"])
def test_rounds_do_not_depend_on_the_executor(variant: str) -> None:
    settings = {"schedule": "rounds", "seed": 1, **VARIANTS[variant]}
    inline = on("asyncio", of_rules(**settings))
    assert inline.version > 1
    for make in (InlineExecutor, partial(ThreadExecutor, 3), partial(ThreadExecutor, 16)):
        in_threads = on("asyncio", of_plain_rules(**settings), policies=Policies(executor=make()))
        look = spent if "budget" in settings else decided
        assert look(in_threads) == look(inline)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ("stale snapshots", "several")])
@pytest.mark.parametrize("world", [of_the_router, of_rules])
def test_a_stream_in_lockstep_repeats_itself(variant: str, world: Callable[..., Options]) -> None:
    options = world(schedule="stream", seed=2, **{"rounds": 30, **VARIANTS[variant]})
    options |= {"n_workers": 1, "max_unmerged": 1}
    one, other = (on(loop, options) for loop in LOOPS)
    assert one.version > 1
    look = spent if "budget" in options else decided
    assert look(one) == look(other)


def test_another_seed_gives_another_run() -> None:
    options = of_the_router(schedule="rounds")
    assert decided(on("asyncio", options, seed=1)) != decided(on("asyncio", options, seed=2))


@pytest.mark.anyio
@settings(max_examples=25)
@given(
    seed=st.integers(0, 99),
    units=st.integers(1, 9),
    widths=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    patience=st.none() | st.integers(1, 3),
    calls=st.none() | st.integers(60, 300),
    refresh=st.integers(1, 4),
    evaluations=st.sampled_from([1, 3, 8]),
    clusters=st.booleans(),
    verify=st.booleans(),
)
async def test_only_the_number_of_tasks_that_work_differs_and_nothing_is_decided_otherwise(
    anyio_backend: Any,
    seed: int,
    units: int,
    widths: tuple[int, int],
    patience: int | None,
    calls: int | None,
    refresh: int,
    evaluations: int,
    clusters: bool,
    verify: bool,
) -> None:
    options = of_the_router(
        schedule="rounds",
        seed=seed,
        n_workers=units,
        patience=patience,
        budget=Budget(calls=calls),
        refresh_interval=refresh,
        eval_concurrency=evaluations,
        parallel=ClusterParallel() if clusters else None,
        self_verify=verify,
    )
    one, other = [await evolved(options, max_concurrency=width) for width in widths]
    look = decided if calls is None else spent
    assert look(one) == look(other)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_waiting_times_decide_nothing(seed: int) -> None:
    """With actors that take real time by chance, a different one in every run."""

    async def wait() -> None:
        await anyio.sleep(random.SystemRandom().random() / 500)

    for variant in ("plain", "a calls budget", "several"):
        options = of_rules(wait, schedule="rounds", seed=seed, **VARIANTS[variant])
        one, other = (on(loop, options, max_concurrency=width) for loop, width in zip(LOOPS, (2, 6), strict=True))
        assert decided(one) == decided(other)


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [6, 10])
async def test_who_never_works_does_not_depend_on_who_came_back_first(anyio_backend: Any, bad: int) -> None:
    async def run(rendered: str, task: Any) -> str:
        if task.prompt == "bad":
            raise ValueError("always")
        await checkpoint()
        return "yes" if "x" in rendered else "no"

    async def reward(task: Any, output: str) -> float:
        return float(output == "yes")

    async def propose(*_: Any) -> str:
        return "x"

    ends = set()
    for executor in (InlineExecutor(), ThreadExecutor(1), ThreadExecutor(8)):
        for order in (1, -1):
            held_out = [{"id": f"h{n}", "prompt": "bad" if n < bad else "ok"} for n in range(12)][::order]
            result = await async_evolve(
                [{"prompt": f"{n}"} for n in range(6)], reward, run=run, propose=propose, held_out=held_out,
                schedule="rounds", rounds=2, noise="no", policies=Policies(executor=executor),
            )  # fmt: skip
            ends.add((order, result.error, tuple(commit.tree for commit in result.log)))
    assert len(ends) == 2
    assert {error for order, error, _ in ends if order == -1} == {""}
    assert any(error for order, error, _ in ends if order == 1) == (bad >= 8)

"""What executors in this process do besides: actors that are functions of the host's, with all that hangs on them."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError, OptionError, RefError
from adescent.executors import collect_rollouts
from adescent.executors.local import LocalExecutor
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task
from adescent.workspec import RolloutSpec, SandboxSpec

pytestmark = pytest.mark.anyio

BOUND = 10.0
TASK = Task("t1", "What is 1 + 1?", {"gold": "2", "cluster": "sums"})


def spec_of(rendered: str = "rules", task: Task = TASK, **more: Any) -> RolloutSpec:
    return RolloutSpec(rendered, task, **more)


def echo(rendered: str, task: Task) -> str:
    return f"{rendered}:{task.id}"


async def echo_async(rendered: str, task: Task) -> str:
    await checkpoint()
    return f"{rendered}:{task.id}"


def full(task: Task, output: object) -> float:
    return 1.0


async def full_async(task: Task, output: object) -> Score:
    await checkpoint()
    return Score(1.0, "fine")


async def test_what_are_no_actors_is_refused(local_executor: LocalExecutor) -> None:
    for wrong in (3, (echo, full), Ref("adescent.rewards:exact_match"), Actors):
        with pytest.raises(OptionError, match=r"actors=.*Actors\("):
            local_executor.attach_actors(wrong)  # type: ignore[arg-type]


# Side by side ---------------------------------------------------------------------------------------------------------


async def test_async_actors_overlap_on_the_loop(local_executor: LocalExecutor) -> None:
    arrived: list[str] = []
    everybody = anyio.Event()

    async def run(rendered: str, task: Task) -> str:
        arrived.append(rendered)
        if len(arrived) == 50:
            everybody.set()
        await everybody.wait()
        return rendered

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full_async)) as view:
            results = await collect_rollouts(view, [spec_of(str(n)) for n in range(50)], concurrency=50)
    assert {result.kind for result in results} == {"ok"}


async def test_blocking_actors_overlap_in_threads(local_executor: LocalExecutor) -> None:
    width = local_executor.threads.size
    together = threading.Barrier(width)

    def run(rendered: str, task: Task) -> int:
        return together.wait(BOUND)

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            results = await collect_rollouts(view, [spec_of()] * width, concurrency=width)
    assert sorted(result.output for result in results) == list(range(width))


async def test_threads_are_closed_with_the_last_of_the_runs_that_share_them(local_executor: LocalExecutor) -> None:
    async def one_run() -> None:
        async with local_executor.attach_actors(Actors(echo, full)) as view:
            await collect_rollouts(view, [spec_of()] * 40)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(one_run)
    assert local_executor.threads.statistics().idle == 0


# The host's own objects -----------------------------------------------------------------------------------------------


async def test_run_gets_the_same_task_every_time_and_the_scorer_the_same_output(local_executor: LocalExecutor) -> None:
    seen: list[Task] = []
    output = object()  # no JSON, and nobody minds

    async def run(rendered: str, task: Task) -> object:
        seen.append(task)
        return output

    async def reward(task: Task, made: object) -> float:
        return float(task is TASK and made is output)

    with anyio.fail_after(BOUND):
        async with local_executor:
            gold = local_executor.attach_actors(Actors(run, reward))
            both = local_executor.attach_actors(Actors(run, reward, hide=("gold", "cluster")))
            results = [await view.rollout(spec_of()) for view in (gold, gold, both)]
    assert [dict(task.meta) for task in seen] == [{"cluster": "sums"}, {"cluster": "sums"}, {}]
    assert seen[0] is seen[1]
    assert [float(result.score or 0) for result in results] == [1.0] * 3
    assert {result.output for result in results} == {output}


async def test_context_variables_of_the_host_reach_the_actors(local_executor: LocalExecutor) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    def run(rendered: str, task: Task) -> str:
        return tenant.get()

    async def reward(task: Task, output: str) -> float:
        return float(output == tenant.get())

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, reward)) as view:
            for name in ("ada", "grace"):
                tenant.set(name)
                result = await view.rollout(spec_of())
                assert (result.output, float(result.score or 0)) == (name, 1.0)


async def test_a_blocking_actor_may_run_a_loop_of_its_own(local_executor: LocalExecutor) -> None:
    def run(rendered: str, task: Task) -> str:
        return anyio.run(echo_async, rendered, task)

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as view:
            assert (await view.rollout(spec_of("own"))).output == "own:t1"


async def test_a_rollout_may_drive_another_one(local_executor: LocalExecutor) -> None:
    inner = local_executor.attach_actors(Actors(echo, full))

    async def run(rendered: str, task: Task) -> str:
        return f"[{(await inner.rollout(spec_of(rendered))).output}]"

    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(run, full)) as outer:
            assert (await outer.rollout(spec_of("r"))).output == "[r:t1]"


@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("error", [ValueError("no"), MemoryError(), SystemExit(3)], ids=repr)
async def test_a_failure_holds_the_very_exception(
    local_executor: LocalExecutor, error: BaseException, blocking: bool
) -> None:
    def sync(*_: object) -> Any:
        raise error.with_traceback(None)

    async def on_loop(*_: object) -> Any:
        await checkpoint()
        raise error.with_traceback(None)

    broken = sync if blocking else on_loop
    with anyio.fail_after(BOUND):
        async with local_executor:
            of_run = await local_executor.attach_actors(Actors(broken, full)).rollout(spec_of())
            of_reward = await local_executor.attach_actors(Actors(echo, broken)).rollout(spec_of())
    for result in (of_run, of_reward):
        assert result.error is not None
        assert result.error.cause is error


# What is refused ------------------------------------------------------------------------------------------------------


async def test_a_spec_that_requires_a_sandbox_is_refused(local_executor: LocalExecutor) -> None:
    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(echo, full)) as view:
            result = await view.rollout(spec_of(sandbox=SandboxSpec(require=True)))
    assert result.error is not None
    assert (result.kind, result.error.stage) == ("caller", "worker")
    assert "sandbox" in result.error.message


@pytest.mark.parametrize(
    ("actors", "word"),
    [
        (
            Actors(lambda rendered: "", full),
            r"<lambda>\(rendered\), which cannot be called as run\(rendered, task\[, ctx\]\)",
        ),
        (Actors(echo, lambda task, output, more: 1.0), r"reward is .*<lambda>\(task, output, more\)"),
        (Actors("echo", full), r"run is a str: give a function run\(rendered, task\[, ctx\]\)"),
        (Actors(echo, None), "reward is a NoneType"),
        (Actors(echo, lambda *, task, output: 1.0), "cannot be called as reward"),
    ],
    ids=["too few", "too many", "text", "nothing", "keywords"],
)
async def test_actors_that_cannot_be_called_are_refused_before_any_rollout(
    local_executor: LocalExecutor, actors: Actors, word: str
) -> None:
    with pytest.raises(ContractError, match=word):
        local_executor.attach_actors(actors)


# Actors by name -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("importable")
async def test_attached_refs_are_resolved_when_they_are_attached(
    local_executor: LocalExecutor, ref: Callable[..., Ref]
) -> None:
    resolver = Resolver(("behaviour_actors:",))
    with pytest.raises(RefError, match="defines no 'missing'"):
        local_executor.attach_actors(Actors(ref("missing"), full, resolver=resolver))
    with pytest.raises(ContractError, match="greedy"):
        local_executor.attach_actors(Actors(ref("greedy"), full, resolver=resolver))


@pytest.mark.usefixtures("importable")
async def test_names_and_functions_mix(local_executor: LocalExecutor, ref: Callable[..., Ref]) -> None:
    resolver = Resolver(("behaviour_actors:",))
    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(echo, full, resolver=resolver)) as view:
            run = await view.rollout(spec_of("Both", run=ref("whisper")))
            reward = await view.rollout(spec_of("Both", reward=ref("fixed", value=0.5)))
    assert (run.output, float(run.score or 0)) == ("both", 1.0)
    assert (reward.output, float(reward.score or 0)) == ("Both:t1", 0.5)


async def test_the_refs_of_specs_are_resolved_once(local_executor: LocalExecutor) -> None:
    asked: list[Ref] = []

    class Counting(Resolver):
        def resolve(self, ref: Ref) -> Any:
            asked.append(ref)
            return full

    reward = Ref("adescent.rewards:exact_match")
    with anyio.fail_after(BOUND):
        async with local_executor.attach_actors(Actors(echo, full, resolver=Counting())) as view:
            for _ in range(3):
                assert (await view.rollout(spec_of(reward=reward))).kind == "ok"
    assert asked == [reward]

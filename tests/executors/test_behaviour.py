"""What every executor does, whoever is behind the seam."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError, RefError, Transient
from adescent.executors import InlineExecutor, ThreadExecutor, collect_rollouts
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


ACTORS = pytest.mark.parametrize(
    ("run", "reward"),
    [(echo, full), (echo_async, full), (echo, full_async), (echo_async, full_async)],
    ids=["sync-sync", "async-sync", "sync-async", "async-async"],
)


@ACTORS
async def test_a_result_carries_output_score_and_whose_it_is(
    executor: LocalExecutor, run: Callable[..., Any], reward: Callable[..., Any]
) -> None:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, reward)) as view:
            result = await view.rollout(spec_of("r", lease_id="lease 7", attempt=2))
    assert (result.kind, result.output, result.task_id) == ("ok", "r:t1", "t1")
    assert (result.lease_id, result.attempt) == ("lease 7", 2)
    assert result.score is not None
    assert result.score.value == 1.0
    assert result.error is None
    assert result.seconds > 0


@ACTORS
async def test_a_thousand_rollouts_at_once(
    executor: LocalExecutor, run: Callable[..., Any], reward: Callable[..., Any]
) -> None:
    specs = [spec_of(str(number)) for number in range(1000)]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, reward)) as view:
            results = await collect_rollouts(view, specs, concurrency=1000)
    assert [result.output for result in results] == [f"{number}:t1" for number in range(1000)]
    assert {result.kind for result in results} == {"ok"}


async def test_async_actors_overlap_on_the_loop(executor: LocalExecutor) -> None:
    arrived: list[str] = []
    everybody = anyio.Event()

    async def run(rendered: str, task: Task) -> str:
        arrived.append(rendered)
        if len(arrived) == 50:
            everybody.set()
        await everybody.wait()
        return rendered

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, full_async)) as view:
            results = await collect_rollouts(view, [spec_of(str(n)) for n in range(50)], concurrency=50)
    assert {result.kind for result in results} == {"ok"}


async def test_blocking_actors_overlap_in_threads(executor: LocalExecutor) -> None:
    together = threading.Barrier(executor.threads.size)

    def run(rendered: str, task: Task) -> int:
        return together.wait(BOUND)

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, full)) as view:
            width = executor.threads.size
            results = await collect_rollouts(view, [spec_of()] * width, concurrency=width)
    assert sorted(result.output for result in results) == list(range(executor.threads.size))


# What run gets to see -------------------------------------------------------------------------------------------------


async def test_run_does_not_see_what_is_hidden_and_the_scorer_does(executor: LocalExecutor) -> None:
    seen: list[Task] = []

    async def run(rendered: str, task: Task) -> str:
        seen.append(task)
        return "2"

    async def reward(task: Task, output: str) -> float:
        return float(task.meta["gold"] == output)

    with anyio.fail_after(BOUND):
        async with executor:
            gold = executor.attach_actors(Actors(run, reward))
            both = executor.attach_actors(Actors(run, reward, hide=("gold", "cluster")))
            results = [await view.rollout(spec_of()) for view in (gold, gold, both)]
    assert [dict(task.meta) for task in seen] == [{"cluster": "sums"}, {"cluster": "sums"}, {}]
    assert seen[0] is seen[1]
    assert [result.kind for result in results] == ["ok"] * 3


async def test_context_variables_of_the_host_reach_the_actors(executor: LocalExecutor) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    def run(rendered: str, task: Task) -> str:
        return tenant.get()

    async def reward(task: Task, output: str) -> float:
        return float(output == tenant.get())

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, reward)) as view:
            for name in ("ada", "grace"):
                tenant.set(name)
                result = await view.rollout(spec_of())
                assert (result.output, float(result.score or 0)) == (name, 1.0)


async def test_a_blocking_actor_may_run_a_loop_of_its_own(executor: LocalExecutor) -> None:
    def run(rendered: str, task: Task) -> str:
        return anyio.run(echo_async, rendered, task)

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, full)) as view:
            assert (await view.rollout(spec_of("own"))).output == "own:t1"


# What goes wrong ------------------------------------------------------------------------------------------------------


def raising(error: BaseException, *, blocking: bool) -> Callable[..., Any]:
    def sync(*_: object) -> Any:
        raise error.with_traceback(None)

    async def on_loop(*_: object) -> Any:
        await checkpoint()
        raise error.with_traceback(None)

    return sync if blocking else on_loop


@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("error", "transient", "retry_after"),
    [
        (ValueError("no"), False, None),
        (Transient("busy", 1.5), True, 1.5),
        (Transient(), True, None),
        (ConnectionResetError("gone"), True, None),
        (TimeoutError("late"), True, None),
        (PermissionError("no"), False, None),
        (ExceptionGroup("all pass", [Transient("a", 2.0), ConnectionError()]), True, 2.0),
        (ExceptionGroup("one stays", [Transient("a", 2.0), ValueError()]), False, 2.0),
        (SystemExit(3), False, None),
        (StopAsyncIteration(), False, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
async def test_what_an_actor_raises_is_in_the_result(
    executor: LocalExecutor, error: BaseException, transient: bool, retry_after: float | None, blocking: bool
) -> None:
    broken = raising(error, blocking=blocking)
    with anyio.fail_after(BOUND):
        async with executor:
            of_run = await executor.attach_actors(Actors(broken, full)).rollout(spec_of())
            of_reward = await executor.attach_actors(Actors(echo, broken)).rollout(spec_of())
    for result, kind, stage in ((of_run, "model", "run"), (of_reward, "caller", "reward")):
        assert result.error is not None
        assert (result.kind, result.error.stage, result.error.type) == (kind, stage, type(error).__name__)
        assert (result.error.transient, result.error.retry_after) == (transient, retry_after)
        assert result.error.cause is error
        assert result.score is None
        assert type(error).__name__ in result.traceback
        assert "adescent/executors/" not in result.traceback
    assert of_run.output is None
    assert of_reward.output == "rules:t1"


@pytest.mark.parametrize("raw", [float("nan"), float("inf"), -0.1, 1e308, True, "0.9", None, Score(2.0)], ids=str)
async def test_a_void_score_is_the_callers(executor: LocalExecutor, raw: object) -> None:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(echo_async, lambda task, output: raw)) as view:
            result = await view.rollout(spec_of())
    assert result.error is not None
    assert (result.kind, result.error.stage, result.error.type) == ("caller", "reward", "VoidScore")
    assert result.output == "rules:t1"
    assert not result.error.transient


async def test_one_bad_rollout_leaves_its_neighbours_alone(executor: LocalExecutor) -> None:
    def run(rendered: str, task: Task) -> str:
        if rendered == "3":
            raise ValueError(rendered)
        return rendered

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, full)) as view:
            results = await collect_rollouts(view, [spec_of(str(n)) for n in range(8)])
    assert [result.kind for result in results] == ["ok"] * 3 + ["model"] + ["ok"] * 4


async def test_a_spec_nobody_can_run_is_the_callers(executor: LocalExecutor) -> None:
    closed = await executor.attach_actors(Actors(echo, full)).rollout(spec_of())
    with anyio.fail_after(BOUND):
        async with executor:
            bare = await executor.rollout(spec_of())
            confined = await executor.attach_actors(Actors(echo, full)).rollout(
                spec_of(sandbox=SandboxSpec(require=True))
            )
    for result, word in ((closed, "async with"), (bare, "attach_actors"), (confined, "sandbox")):
        assert result.error is not None
        assert (result.kind, result.error.stage) == ("caller", "worker")
        assert word in result.error.message


# Actors by name -------------------------------------------------------------------------------------------------------

NAMED = """
calls = []

def shout(rendered, task):
    return rendered.upper()

async def whisper(rendered, task):
    return rendered.lower()

def fixed(value):
    return lambda task, output: value

def broken():
    raise SystemExit(4)
"""


@pytest.fixture
def named_actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolver:
    (tmp_path / "named_for_executors.py").write_text(NAMED, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return Resolver(allow=("named_for_executors:",))


def named(attribute: str, **config: Any) -> Ref:
    return Ref(f"named_for_executors:{attribute}", config, call=bool(config))


async def test_attached_refs_are_resolved_once_and_early(executor: LocalExecutor, named_actors: Resolver) -> None:
    with anyio.fail_after(BOUND):
        async with executor:
            actors = Actors(named("shout"), named("fixed", value=0.25), resolver=named_actors)
            result = await executor.attach_actors(actors).rollout(spec_of())
    assert (result.output, float(result.score or 0)) == ("RULES", 0.25)
    with pytest.raises(RefError, match="allow="):
        executor.attach_actors(Actors(named("shout"), full))


async def test_the_refs_of_a_spec_win_over_attached_actors(executor: LocalExecutor, named_actors: Resolver) -> None:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(echo, full, resolver=named_actors)) as view:
            run = await view.rollout(spec_of("Both", run=named("whisper")))
            reward = await view.rollout(spec_of("Both", reward=named("fixed", value=0.5)))
            again = await view.rollout(spec_of("More", run=named("whisper"), reward=named("fixed", value=0.5)))
    assert (run.output, float(run.score or 0)) == ("both", 1.0)
    assert (reward.output, float(reward.score or 0)) == ("Both:t1", 0.5)
    assert (again.output, float(again.score or 0)) == ("more", 0.5)


async def test_the_refs_of_specs_are_resolved_once(executor: LocalExecutor) -> None:
    asked: list[Ref] = []

    class Counting(Resolver):
        def resolve(self, ref: Ref) -> Any:
            asked.append(ref)
            return full

    reward = Ref("adescent.rewards:exact_match")
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(echo, full, resolver=Counting())) as view:
            for _ in range(3):
                assert (await view.rollout(spec_of(reward=reward))).kind == "ok"
    assert asked == [reward]


@pytest.mark.parametrize(
    ("ref", "type_"),
    [
        (Ref("named_for_executors:missing", call=False), "RefError"),
        (Ref("os:getcwd", call=False), "RefError"),
        (Ref("named_for_executors:broken"), "SystemExit"),
        (Ref("named_for_executors:fixed", call=False), "ContractError"),
    ],
    ids=["missing", "not allowed", "exits", "arity"],
)
async def test_a_ref_that_cannot_be_called_is_the_callers(
    executor: LocalExecutor, named_actors: Resolver, ref: Ref, type_: str
) -> None:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(echo, full, resolver=named_actors)) as view:
            result = await view.rollout(spec_of(run=ref))
            assert (await view.rollout(spec_of())).kind == "ok"
    assert result.error is not None
    assert (result.kind, result.error.stage, result.error.type) == ("caller", "worker", type_)


# Sharing --------------------------------------------------------------------------------------------------------------


async def test_runs_share_an_executor_with_actors_of_their_own(executor: LocalExecutor) -> None:
    def answering(word: str) -> Callable[..., str]:
        return lambda rendered, task: word

    outputs: dict[str, set[str]] = {}

    async def one_run(word: str) -> None:
        async with executor.attach_actors(Actors(answering(word), full)) as view:
            results = await collect_rollouts(view, [spec_of()] * 40)
            outputs[word] = {result.output for result in results}

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            for word in ("left", "right"):
                group.start_soon(one_run, word)
    assert outputs == {"left": {"left"}, "right": {"right"}}
    assert executor.threads.statistics().idle == 0


async def test_the_first_to_enter_opens_and_the_last_to_leave_closes(executor: LocalExecutor) -> None:
    view = executor.attach_actors(Actors(echo, full))
    with anyio.fail_after(BOUND):
        for _ in range(2):
            async with executor:
                async with view:
                    assert (await view.rollout(spec_of())).kind == "ok"
                assert (await view.rollout(spec_of())).kind == "ok"
            assert (await view.rollout(spec_of())).kind == "caller"


async def test_a_rollout_may_drive_another_one(executor: LocalExecutor) -> None:
    inner = executor.attach_actors(Actors(echo, full))

    async def run(rendered: str, task: Task) -> str:
        return f"[{(await inner.rollout(spec_of(rendered))).output}]"

    with anyio.fail_after(BOUND):
        async with executor.attach_actors(Actors(run, full)) as outer:
            assert (await outer.rollout(spec_of("r"))).output == "[r:t1]"


@pytest.mark.parametrize("kind", [InlineExecutor, functools.partial(ThreadExecutor, 2)], ids=["inline", "thread"])
async def test_actors_given_at_the_start_are_replaced_by_attached_ones(kind: Callable[..., LocalExecutor]) -> None:
    with anyio.fail_after(BOUND):
        async with kind(actors=Actors(echo, full)) as executor:
            view = executor.attach_actors(Actors(lambda rendered, task: "attached", full))
            outputs = [(await each.rollout(spec_of())).output for each in (executor, view)]
    assert outputs == ["rules:t1", "attached"]


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
    executor: LocalExecutor, actors: Actors, word: str
) -> None:
    with pytest.raises(ContractError, match=word):
        executor.attach_actors(actors)

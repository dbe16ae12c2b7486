"""What every executor does, whoever is behind the seam: actors by name, in this process and in others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import CancelScope

from adescent.errors import RefError
from adescent.executors import InlineExecutor, collect_rollouts, map_rollouts
from adescent.policies import Actors, Executor
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec

pytestmark = pytest.mark.anyio

BOUND = 30.0
TASK = Task("t1", "What is 1 + 1?", {"gold": "2", "cluster": "sums"})
CASTS = pytest.mark.parametrize(
    ("run", "reward"),
    [("echo", "graded"), ("echo_async", "graded"), ("echo", "graded_async"), ("echo_async", "graded_async")],
    ids=["sync-sync", "async-sync", "sync-async", "async-async"],
)

Cast = Callable[..., Actors]


def spec_of(rendered: str = "rules", task: Task = TASK, **more: Any) -> RolloutSpec:
    return RolloutSpec(rendered, task, **more)


async def rolled_out(executor: Executor, actors: Actors, *specs: RolloutSpec) -> list[Result]:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors) as view:
            return await collect_rollouts(view, specs or [spec_of()])


def failure_of(result: Result) -> Failure:
    assert result.error is not None
    return result.error


# What a result carries ------------------------------------------------------------------------------------------------


@CASTS
async def test_a_result_carries_what_came_of_it_and_whose_it_is(
    executor: Executor, actors: Cast, run: str, reward: str
) -> None:
    cast = actors(run, reward)
    (result,) = await rolled_out(executor, cast, spec_of("r", lease_id="lease 7", attempt=2))
    assert (result.kind, result.output, result.task_id) == ("ok", "r:t1", "t1")
    assert result.score == Score(0.5, "half of r:t1", {"length": 4.0, "count": 2})
    assert (result.lease_id, result.attempt, result.deaths) == ("lease 7", 2, ())
    assert (result.error, result.traceback, result.checkpoint) == (None, "", None)
    assert 0 < result.seconds < BOUND


@CASTS
async def test_a_thousand_rollouts_at_once(executor: Executor, actors: Cast, run: str, reward: str) -> None:
    specs = [spec_of(str(number)) for number in range(1000)]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors(run, reward)) as view:
            results = await collect_rollouts(view, specs, concurrency=1000)
    assert [result.output for result in results] == [f"{number}:t1" for number in range(1000)]
    assert {result.kind for result in results} == {"ok"}


@pytest.mark.parametrize("run", ["echo_later", "Echo", "own_loop"])
async def test_actors_of_other_shapes(executor: Executor, actors: Cast, ref: Callable[..., Ref], run: str) -> None:
    cast = actors(Ref("behaviour_actors:Echo") if run == "Echo" else run)
    assert [result.output for result in await rolled_out(executor, cast, spec_of("a"), spec_of("b"))] == [
        "a:t1",
        "b:t1",
    ]


async def test_the_scorers_of_this_package_have_names_everywhere(executor: Executor, ref: Callable[..., Ref]) -> None:
    cast = Actors(ref("answering", word="2"), Ref("adescent.rewards:exact_match"), resolver=Resolver(MINE))
    right, wrong = await rolled_out(executor, cast, spec_of(), spec_of(task=Task("t2", "?", {"gold": "3"})))
    assert [float(result.score or -1) for result in (right, wrong)] == [1.0, 0.0]


async def test_texts_numbers_and_documents_come_back_as_they_were(executor: Executor, actors: Cast) -> None:
    (result,) = await rolled_out(executor, actors("documents"))
    text = "ä\U0001f600\x00\u2028"
    numbers = [1, -(2**63), 1.5, 1e-300]
    assert result.output == {"text": text, "numbers": numbers, "nothing": None, "deep": [[[{}]]]}
    assert list(map(type, result.output["numbers"])) == [int, int, float, float]
    assert list(result.output) == ["text", "numbers", "nothing", "deep"]


@pytest.mark.parametrize("rendered", ["", "ä\n\x00", "x" * 3_000_000], ids=["nothing", "odd", "3 MB"])
async def test_an_artifact_arrives_as_it_is(executor: Executor, actors: Cast, rendered: str) -> None:
    results = await rolled_out(executor, actors("size"), *[spec_of(rendered)] * 5)
    assert [result.output for result in results] == [len(rendered)] * 5


async def test_many_artifacts_in_turn(executor: Executor, actors: Cast) -> None:
    """More than a worker remembers, each of them more than once."""
    texts = [f"rules {number}" for number in range(25)] * 3
    results = await rolled_out(executor, actors("echo"), *map(spec_of, texts))
    assert [result.output for result in results] == [f"{text}:t1" for text in texts]


# What run gets to see -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["seeing", "seeing_async"])
async def test_run_does_not_see_what_is_hidden_and_the_scorer_does(executor: Executor, actors: Cast, run: str) -> None:
    (gold,) = await rolled_out(executor, actors(run, "as_golden"))
    (both,) = await rolled_out(executor, actors(run, "as_golden", hide=("gold", "cluster")))
    (none,) = await rolled_out(executor, actors(run, "as_golden", hide=()))
    assert gold.output == {"prompt": TASK.prompt, "cluster": "sums"}
    assert both.output == {"prompt": TASK.prompt}
    assert none.output == {"prompt": TASK.prompt, **TASK.meta}
    assert [float(result.score or 0) for result in (gold, both, none)] == [1.0] * 3


# What goes wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("error", "type_", "message", "transient", "retry_after"),
    [
        ("ValueError", "ValueError", "no", False, None),
        ("ContractError", "ContractError", "not like that", False, None),
        ("Transient", "Transient", "busy", True, 1.5),
        ("Transient, without a word", "Transient", "a passing failure", True, None),
        ("ConnectionResetError", "ConnectionResetError", "gone", True, None),
        ("TimeoutError", "TimeoutError", "late", True, None),
        ("PermissionError", "PermissionError", "no", False, None),
        ("a group that may pass", "ExceptionGroup", "all pass (2 sub-exceptions)", True, 2.0),
        ("a group that stays", "ExceptionGroup", "one stays (2 sub-exceptions)", False, 2.0),
        ("SystemExit", "SystemExit", "3", False, None),
        ("StopAsyncIteration", "StopAsyncIteration", "", False, None),
        ("RecursionError", "RecursionError", "deep", False, None),
        ("Wordless", "Wordless", "(no message: its __str__ raised ValueError)", False, None),
    ],
    ids=str,
)
async def test_what_an_actor_raises_is_in_the_result(
    executor: Executor,
    actors: Cast,
    ref: Callable[..., Ref],
    error: str,
    type_: str,
    message: str,
    transient: bool,
    retry_after: float | None,
    waits: bool,
) -> None:
    broken = ref("raising", error=error, waits=waits)
    (of_run,) = await rolled_out(executor, actors(broken, "full"))
    (of_reward,) = await rolled_out(executor, actors("echo", broken))
    for result, kind, stage in ((of_run, "model", "run"), (of_reward, "caller", "reward")):
        failure = failure_of(result)
        assert (failure.kind, failure.stage, failure.type, failure.message) == (kind, stage, type_, message)
        assert (failure.transient, failure.retry_after) == (transient, retry_after)
        assert result.score is None
        assert type_ in result.traceback
        assert "adescent/executors/" not in result.traceback
    assert (of_run.output, of_reward.output) == (None, "rules:t1")


@pytest.mark.parametrize("waits", [False, True], ids=["sync", "async"])
async def test_a_traceback_begins_where_the_actor_does(
    executor: Executor, actors: Cast, ref: Callable[..., Ref], waits: bool
) -> None:
    (result,) = await rolled_out(executor, actors(ref("raising", error="ValueError", waits=waits)))
    first, second, *_, last = result.traceback.splitlines()
    assert first == "Traceback (most recent call last):"
    assert "behaviour_actors.py" in second
    assert last == "ValueError: no"


async def test_a_long_message_is_cut_and_so_is_its_traceback(
    executor: Executor, actors: Cast, ref: Callable[..., Ref]
) -> None:
    (result,) = await rolled_out(executor, actors(ref("raising", error="a long message")))
    assert failure_of(result).message == "x" * 2000
    assert result.traceback == "x" * 8191 + "\n"


@pytest.mark.parametrize("score", ["NaN", "inf", "-0.1", "1e308", "True", "text", "None", "a Score"])
async def test_a_void_score_is_the_callers(
    executor: Executor, actors: Cast, ref: Callable[..., Ref], score: str
) -> None:
    (result,) = await rolled_out(executor, actors("echo_async", ref("void", score=score)))
    failure = failure_of(result)
    assert (result.kind, failure.stage, failure.type) == ("caller", "reward", "VoidScore")
    assert "[0, 1]" in failure.message
    assert (result.output, result.score, failure.transient) == ("rules:t1", None, False)


async def test_one_bad_rollout_leaves_its_neighbours_alone(
    executor: Executor, actors: Cast, ref: Callable[..., Ref]
) -> None:
    cast = actors(ref("failing_on", number="3"))
    results = await rolled_out(executor, cast, *[spec_of(str(number)) for number in range(8)])
    assert [result.kind for result in results] == ["ok"] * 3 + ["model"] + ["ok"] * 4


async def test_a_spec_nobody_can_run_is_the_callers(
    executor: Executor, fresh: Callable[..., Executor], actors: Cast
) -> None:
    closed = await fresh().attach_actors(actors("echo")).rollout(spec_of(lease_id="lease", attempt=1))
    with anyio.fail_after(BOUND):
        async with executor:
            bare = await executor.rollout(spec_of(lease_id="lease", attempt=1))
    for result, word in ((closed, "async with"), (bare, "there is no run: put a Ref in the spec")):
        failure = failure_of(result)
        assert (result.kind, failure.stage, failure.type) == ("caller", "worker", "ContractError")
        assert word in failure.message
        assert (result.lease_id, result.attempt, result.task_id) == ("lease", 1, "t1")


async def test_an_open_executor_belongs_to_one_thread(executor: Executor, actors: Cast) -> None:
    strays: list[Result] = []
    async with executor.attach_actors(actors("echo")) as view:
        other = threading.Thread(target=lambda: strays.append(anyio.run(view.rollout, spec_of())))
        other.start()
        other.join(BOUND)
    (stray,) = strays
    assert (stray.kind, failure_of(stray).type) == ("caller", "WrongThread")


# Actors by name -------------------------------------------------------------------------------------------------------

MINE = ("behaviour_actors:",)


async def test_the_refs_of_a_spec_win_over_attached_actors(
    executor: Executor, actors: Cast, ref: Callable[..., Ref]
) -> None:
    half = ref("fixed", value=0.5)
    run, reward, both, none = await rolled_out(
        executor,
        actors("echo"),
        spec_of("Both", run=ref("whisper")),
        spec_of("Both", reward=half),
        spec_of("More", run=ref("shout"), reward=half),
        spec_of("None"),
    )
    assert [result.output for result in (run, reward, both, none)] == ["both", "Both:t1", "MORE", "None:t1"]
    assert [float(result.score or 0) for result in (run, reward, both, none)] == [1.0, 0.5, 0.5, 1.0]


async def test_specs_may_name_all_their_actors(executor: Executor, ref: Callable[..., Ref]) -> None:
    builtin = Ref("adescent.rewards:exact_match")
    with anyio.fail_after(BOUND):
        async with executor:
            result = await executor.rollout(spec_of(run=ref("echo"), reward=builtin))
    assert (result.kind, failure_of(result).type) == ("caller", "RefError")
    assert "allow=('behaviour_actors:',)" in failure_of(result).message


async def test_an_attached_ref_that_may_not_resolve_is_refused_at_once(
    executor: Executor, ref: Callable[..., Ref]
) -> None:
    with pytest.raises(RefError, match="allow="):
        executor.attach_actors(Actors(ref("shout"), ref("full")))
    with pytest.raises(RefError, match="os:getcwd may not be resolved here"):
        executor.attach_actors(Actors(ref("shout"), Ref("os:getcwd", call=False), resolver=Resolver(MINE)))


@pytest.mark.parametrize("role", ["run", "reward"])
@pytest.mark.parametrize(
    ("target", "config", "call", "type_", "word"),
    [
        ("behaviour_actors:missing", {}, False, "RefError", "behaviour_actors defines no 'missing'"),
        ("behaviour_actors:checkpoint", {}, False, "RefError", "is not defined in behaviour_actors"),
        ("behaviour_actors:full", {}, True, "RefError", "call=False"),
        ("behaviour_actors:fixed", {"values": 1}, True, "RefError", "cannot be called with the config keys"),
        ("os:getcwd", {}, False, "RefError", "may not be resolved here"),
        ("adescent.executors.child:main", {}, False, "RefError", "is not registered to be named"),
        ("behaviour_actors:exiting_factory", {}, True, "RefError", "raised SystemExit when called with its config: 4"),
        ("behaviour_actors:greedy", {}, False, "ContractError", "greedy(rendered"),
        ("behaviour_actors:ERRORS", {}, False, "RefError", "behaviour_actors"),
        ("exiting_actors:run", {}, False, "RefError", "importing exiting_actors failed with SystemExit: 4"),
    ],
    ids=[
        "missing",
        "imported",
        "no factory",
        "config",
        "not allowed",
        "ours",
        "exits",
        "arity",
        "no callable",
        "import",
    ],
)
async def test_a_ref_that_cannot_be_called_is_the_callers(
    executor: Executor, actors: Cast, role: str, target: str, config: dict[str, Any], call: bool, type_: str, word: str
) -> None:
    named = Ref(target, config, call)
    spec = spec_of(run=named) if role == "run" else spec_of(reward=named)
    broken, fine = await rolled_out(executor, actors("echo"), spec, spec_of())
    failure = failure_of(broken)
    assert (broken.kind, failure.stage, failure.type) == ("caller", "worker", type_)
    assert word in failure.message
    assert (broken.output, broken.score) == (None, None)
    assert fine.kind == "ok"


async def test_what_one_executor_says_the_others_say(executor: Executor, actors: Cast, ref: Callable[..., Ref]) -> None:
    """Word for word, whatever there is in a result that does not tell where it came from."""
    errors = [
        ref("raising", error=name, waits=waits)
        for name in ("ValueError", "a group that may pass", "SystemExit", "Wordless", "a long message")
        for waits in (False, True)
    ]
    specs = [spec_of("r", run=run, lease_id=str(number)) for number, run in enumerate(errors)]
    specs += [spec_of("r", reward=reward, attempt=1) for reward in errors]
    specs += [spec_of("r", run=Ref(f"behaviour_actors:{name}")) for name in ("missing", "echo", "answering")]
    here = await rolled_out(InlineExecutor(), actors("echo", "graded"), *specs)
    there = await rolled_out(executor, actors("echo", "graded"), *specs)
    assert list(map(told, there)) == list(map(told, here))
    assert {failure_of(result).stage for result in here} == {"run", "reward", "worker"}


def told(result: Result) -> tuple[Any, ...]:
    error = failure_of(result)
    said = (error.kind, error.stage, error.type, error.message, error.transient, error.retry_after)
    return (*said, result.lease_id, result.task_id, result.attempt, result.output, result.score, result.traceback)


# Sharing --------------------------------------------------------------------------------------------------------------


async def test_runs_share_an_executor_with_actors_of_their_own(
    executor: Executor, actors: Cast, ref: Callable[..., Ref]
) -> None:
    outputs: dict[str, set[str]] = {}

    async def one_run(word: str) -> None:
        results = await rolled_out(executor, actors(ref("answering", word=word)), *[spec_of()] * 40)
        outputs[word] = {result.output for result in results}

    async with anyio.create_task_group() as group:
        for word in ("left", "right"):
            group.start_soon(one_run, word)
    assert outputs == {"left": {"left"}, "right": {"right"}}


async def test_actors_given_at_the_start_are_replaced_by_attached_ones(
    fresh: Callable[..., Executor], actors: Cast, ref: Callable[..., Ref]
) -> None:
    executor = fresh(actors=actors("echo"))
    view = executor.attach_actors(actors(ref("answering", word="attached")))
    with anyio.fail_after(BOUND):
        async with executor:
            outputs = [(await each.rollout(spec_of())).output for each in (executor, view)]
    assert outputs == ["rules:t1", "attached"]


async def test_the_first_to_enter_opens_and_the_last_to_leave_closes(
    fresh: Callable[..., Executor], actors: Cast
) -> None:
    executor = fresh()
    view = executor.attach_actors(actors("echo"))
    with anyio.fail_after(BOUND):
        for _ in range(2):
            async with executor:
                async with view:
                    assert (await view.rollout(spec_of())).kind == "ok"
                assert (await view.rollout(spec_of())).kind == "ok"
            assert (await view.rollout(spec_of())).kind == "caller"


async def test_whoever_opened_it_may_leave_before_the_others(fresh: Callable[..., Executor], actors: Cast) -> None:
    view = fresh().attach_actors(actors("echo"))
    first_is_in, others_are_in, first_is_out = anyio.Event(), anyio.Event(), anyio.Event()

    async def first() -> None:
        async with view:
            first_is_in.set()
            await others_are_in.wait()
            assert (await view.rollout(spec_of())).kind == "ok"
        first_is_out.set()

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            group.start_soon(first)
            await first_is_in.wait()
            async with view:
                others_are_in.set()
                await first_is_out.wait()
                results = await collect_rollouts(view, [spec_of()] * 20)
        assert {result.kind for result in results} == {"ok"}
        assert (await view.rollout(spec_of())).kind == "caller"


# Cancelling -----------------------------------------------------------------------------------------------------------


async def test_one_rollout_among_many_is_cancelled_alone(
    fresh: Callable[..., Executor], actors: Cast, line: Any
) -> None:
    view = fresh().attach_actors(actors("never"))
    others: list[Result] = []
    ended: list[bool] = []
    scope = CancelScope()

    async def endless() -> None:
        with scope:
            await view.rollout(spec_of("for ever", Task("t1", line.path)))
        ended.append(scope.cancelled_caught)

    async def many() -> None:
        others.extend(await collect_rollouts(view, map(spec_of, "abcdef"), concurrency=2))

    with anyio.fail_after(BOUND):
        async with view, anyio.create_task_group() as group:
            group.start_soon(endless)
            await line.begun()
            group.start_soon(many)
            scope.cancel()
    assert ended == [True]
    assert [(result.kind, result.output) for result in others] == [("ok", letter) for letter in "abcdef"]


async def test_the_callers_timeout_is_raised(fresh: Callable[..., Executor], actors: Cast, line: Any) -> None:
    spec = spec_of("for ever", Task("t1", line.path))
    with anyio.fail_after(BOUND):
        with pytest.raises(TimeoutError), anyio.fail_after(0.05):
            async with fresh().attach_actors(actors("never")) as view:
                await view.rollout(spec)
        async with fresh().attach_actors(actors("never")) as view, anyio.create_task_group() as group:
            group.start_soon(view.rollout, spec)
            await line.begun()
            group.cancel_scope.cancel()


async def test_what_the_block_raises_comes_out_bare(fresh: Callable[..., Executor], actors: Cast) -> None:
    with anyio.fail_after(BOUND), pytest.raises(LookupError):
        async with fresh().attach_actors(actors("echo")) as view:
            assert (await view.rollout(spec_of())).kind == "ok"
            raise LookupError


# Driving --------------------------------------------------------------------------------------------------------------


async def test_results_come_in_the_order_in_which_they_complete(executor: Executor, actors: Cast, line: Any) -> None:
    task = Task("t1", line.path)
    specs = [spec_of("first", task), *[spec_of(str(number), task, run=MANY) for number in range(5)]]
    came: list[str] = []
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("gate")) as view, map_rollouts(view, specs) as results:
            async for result in results:
                came.append(result.output)
                if len(came) == 5:
                    line.go()
    assert sorted(came[:5]) == [f"{number}:t1" for number in range(5)]
    assert came[5:] == ["first"]


MANY = Ref("behaviour_actors:echo", call=False)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"])
async def test_leaving_early_cancels_the_rest(fresh: Callable[..., Executor], actors: Cast) -> None:
    endless = iter(partial(spec_of, "again"), None)
    with anyio.fail_after(BOUND):
        async with fresh().attach_actors(actors("echo")) as view:
            async with map_rollouts(view, endless, concurrency=8) as results:
                for _ in range(20):
                    assert (await results.receive()).kind == "ok"
            assert (await view.rollout(spec_of())).kind == "ok"

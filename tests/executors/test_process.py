"""What is said of rollouts in worker processes alone; what all executors do is in the behaviour suite."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.errors import ContractError, OptionError, SandboxUnavailable, WrongThread
from adescent.executors import ProcessExecutor, collect_rollouts, plane
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.sandbox import Workspaces
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

pytestmark = pytest.mark.usefixtures("importable")

BOUND = 30.0
TASK = Task("t1", "?")
RESOLVER = Resolver(("process_actors:",))


def ref(name: str, **config: Any) -> Ref:
    return Ref(f"process_actors:{name}", config, call=bool(config))


def actors(run: str | Ref, reward: str = "full", **more: Any) -> Actors:
    return Actors(ref(run) if isinstance(run, str) else run, ref(reward), resolver=RESOLVER, **more)


def spec_of(rendered: str = "rules", task: Task = TASK, **more: Any) -> RolloutSpec:
    return RolloutSpec(rendered, task, **more)


def failure_of(result: Result) -> Failure:
    assert result.error is not None
    return result.error


@pytest.fixture(scope="module")
async def pool(
    importable: None, anyio_backend: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProcessExecutor]:
    """One worker that is up, for tests which it survives."""
    places = Workspaces(tmp_path_factory.mktemp("places"))  # where nobody has left anything to be reaped
    async with ProcessExecutor(1, provider=places) as executor:
        await executor.attach_actors(actors("pid")).rollout(spec_of())
        yield executor
        statistics = executor.statistics()
        assert (statistics.workers_started, statistics.workers_lost) == (1, 0)


async def rolled_out(executor: ProcessExecutor, cast: Actors, *specs: RolloutSpec) -> list[Result]:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(cast) as view:
            return await collect_rollouts(view, specs or [spec_of()])


# Options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2"])
@pytest.mark.parametrize("option", ["n", "in_flight_per_worker", "max_tasks_per_worker"])
def test_a_count_that_means_nothing_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"ProcessExecutor.*{option}.*at least 1"):
        ProcessExecutor(**{"n": 1, option: value})


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), True, "1"])
@pytest.mark.parametrize("option", ["hang_timeout", "start_timeout"])
def test_a_time_that_means_nothing_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"ProcessExecutor: {option}=.* seconds above 0"):
        ProcessExecutor(1, **{option: value})


def test_slots_are_what_is_begun_at_once() -> None:
    executor = ProcessExecutor(3, in_flight_per_worker=4)
    assert (executor.slots, executor.takes_callables, executor.confines) == (12, False, True)
    assert executor.sandbox == SandboxSpec()


@pytest.mark.parametrize("role", ["run", "reward"])
def test_functions_are_refused_with_what_to_do(role: str) -> None:
    cast: dict[str, Any] = {"run": ref("pid"), "reward": ref("full"), role: lambda *_: 1.0}
    given = Actors(**cast, resolver=RESOLVER)
    with pytest.raises(ContractError, match=rf"takes actors as Refs and {role} is a function: .*InlineExecutor"):
        ProcessExecutor(1).attach_actors(given)
    with pytest.raises(ContractError, match="takes actors as Refs"):
        ProcessExecutor(1, actors=given)


def test_what_may_resolve_is_the_executors_unless_actors_bring_their_own() -> None:
    bare = Actors(ref("pid"), ref("full"))
    assert ProcessExecutor(1, allow=("process_actors:",)).attach_actors(bare).takes_callables is False
    with pytest.raises(ContractError, match="may not be resolved here"):
        ProcessExecutor(1).attach_actors(bare)
    with pytest.raises(ContractError, match="may not be resolved here"):
        ProcessExecutor(1, allow=("process_actors:",)).attach_actors(Actors(bare.run, bare.reward, (), Resolver()))


@pytest.mark.anyio
async def test_workers_have_no_workers(pool: ProcessExecutor) -> None:
    (result,) = await rolled_out(pool, actors("own_pool"))
    assert failure_of(result).type == "ContractError"
    assert "cannot have workers of its own" in failure_of(result).message


@pytest.mark.anyio
async def test_a_sandbox_that_is_required_and_cannot_be_had_is_an_error_at_the_start(
    monkeypatch: pytest.MonkeyPatch, anyio_backend: Any
) -> None:
    def unreachable(spec: SandboxSpec) -> str:
        if spec.require:
            raise SandboxUnavailable("bubblewrap", "limits", "bwrap is not installed")
        return "limits"

    monkeypatch.setattr(plane, "reach", unreachable)
    required = SandboxSpec(level="bubblewrap", require=True)
    with anyio.fail_after(BOUND):
        with pytest.raises(SandboxUnavailable, match="bwrap is not installed"):
            async with ProcessExecutor(1, sandbox=required):
                pytest.fail("entered")
        async with ProcessExecutor(1).attach_actors(actors("pid")) as view:
            result = await view.rollout(spec_of(sandbox=required))
            assert view.statistics().workers_started == 0
    assert (result.kind, failure_of(result).type) == ("caller", "SandboxUnavailable")


# What may cross -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("output", "word"),
    [
        ("a set", "output: a set cannot be stored as JSON"),
        ("an object", "output: a object cannot"),
        ("NaN", "output.deep[0]: nan is not JSON"),
        ("bytes", "output: a bytes cannot"),
        ("a large integer", "output: an integer beyond 64 bits"),
        ("a lone surrogate", "output[0]: a lone surrogate"),
        ("a number for a key", "output: the key 1 is a int"),
        ("too deep", "nested deeper than"),
        ("itself", "nested deeper than"),
        pytest.param("too large", "too large to be sent", marks=pytest.mark.slow),
    ],
)
async def test_an_output_that_cannot_cross_is_the_models(pool: ProcessExecutor, output: str, word: str) -> None:
    broken, fine = await rolled_out(pool, actors("pid"), spec_of(run=ref("giving", output=output)), spec_of())
    failure = failure_of(broken)
    assert (broken.kind, failure.stage) == ("model", "run")
    assert failure.type == ("WireError" if output == "too large" else "ContractError")
    assert word in failure.message
    assert (broken.output, broken.score, broken.log) == (None, None, "before it\n")
    assert fine.kind == "ok"


@pytest.mark.anyio
async def test_an_output_comes_back_as_plain_json(pool: ProcessExecutor) -> None:
    tuples, mappings, subclasses = await rolled_out(
        pool, actors("pid"), *[spec_of(run=ref("giving", output=name)) for name in ("tuples", "mappings", "subclasses")]
    )
    assert tuples.output == [1, [[2]], {"a": [3]}]
    assert mappings.output == {"a": {}}
    assert list(map(type, subclasses.output)) == [str, int]


@pytest.mark.anyio
async def test_what_a_worker_changes_is_its_own_copy(pool: ProcessExecutor) -> None:
    task = Task("t1", "?", {"list": ["first"]})
    results = await rolled_out(pool, actors("changing"), *[spec_of(word, task) for word in "ab"])
    assert [result.output for result in results] == [["first", "a"], ["first", "b"]]
    assert task.meta == {"list": ["first"]}


@pytest.mark.anyio
async def test_a_score_whose_words_cannot_cross_is_no_reason_to_lose_a_worker(pool: ProcessExecutor) -> None:
    odd, wrong = await rolled_out(pool, actors("pid"), spec_of(reward=ref("wordy")), spec_of(reward=ref("unscored")))
    assert odd.score == Score(1.0, r"\ud800", {"a": 1, "b": 0.5})
    assert (wrong.kind, failure_of(wrong).stage, failure_of(wrong).type) == ("caller", "reward", "ContractError")
    assert "metric 'a' is a str" in failure_of(wrong).message


@pytest.mark.anyio
async def test_words_of_an_error_that_cannot_cross_are_spelled_out(pool: ProcessExecutor) -> None:
    (result,) = await rolled_out(pool, actors("unspeakable"))
    assert failure_of(result).message == r"\udc80"
    assert result.traceback.endswith("ValueError: \\udc80\n")
    assert failure_of(result).cause is None


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (spec_of(task=Task("t", 5)), "task 't': prompt is a int"),  # type: ignore[arg-type]
        (spec_of(task=Task("t", "\ud800")), "task 't': prompt: a lone surrogate"),
        (spec_of(task=Task(7, "")), "task 7: id is a int"),  # type: ignore[arg-type]
        (spec_of(task=Task("t", "", {"a": {1}})), "task 't': meta.a: a set cannot"),
        (spec_of(task=Task("t", "", ["a"])), "task 't': meta is a list"),  # type: ignore[arg-type]
        (spec_of(resume_state={"a": float("inf")}), "resume_state.a"),
        (spec_of(None), "rendered is a NoneType"),  # type: ignore[arg-type]
        (spec_of("\ud800"), "lone surrogate"),
        pytest.param(spec_of("x" * (65 * 2**20)), "too large to be sent", marks=pytest.mark.slow),
    ],
    ids=["prompt", "surrogate", "id", "meta", "list", "state", "artifact", "text", "size"],
)
async def test_a_spec_that_cannot_cross_is_the_callers(pool: ProcessExecutor, spec: RolloutSpec, word: str) -> None:
    broken, fine = await rolled_out(pool, actors("pid"), spec, spec_of())
    assert (broken.kind, failure_of(broken).stage) == ("caller", "worker")
    assert word in failure_of(broken).message
    assert fine.kind == "ok"


# Where it runs --------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_worker_of_plain_functions_loads_no_loop_and_no_engine(anyio_backend: Any) -> None:
    (result,) = await rolled_out(ProcessExecutor(1), actors("modules"))
    loaded = set(result.output)
    assert "adescent.executors.child.__main__" not in loaded  # it is __main__
    assert "adescent.executors.child.worker" in loaded
    assert loaded & {"trio", "anyio", "pygit2", "adescent.ledger", "adescent.runtime", "adescent.policies"} == set()


@pytest.mark.anyio
async def test_actors_are_made_once_and_kept(pool: ProcessExecutor) -> None:
    run = Ref("process_actors:counting")
    assert [result.output for result in await rolled_out(pool, actors(run), *[spec_of()] * 4)] == [1, 2, 3, 4]
    assert [result.output for result in await rolled_out(pool, actors(run), spec_of())] == [5]


@pytest.mark.anyio
@pytest.mark.parametrize("reward", ["full", "full_async"])
async def test_plain_functions_have_the_main_thread_and_no_loop_around_them(pool: ProcessExecutor, reward: str) -> None:
    results = await rolled_out(pool, actors("on_signals", reward), *[spec_of()] * 3)
    assert [result.output for result in results] == ["its own loop"] * 3


@pytest.mark.anyio
async def test_a_worker_has_a_place_of_its_own_and_leaves_it_empty(pool: ProcessExecutor) -> None:
    first, second = await rolled_out(pool, actors("here"), spec_of("a"), spec_of("b"))
    place = first.output[0]
    assert first.output == second.output == [place, [], place, place]
    assert place != str(Path.cwd())
    assert os.access(place, os.W_OK)
    assert (first.level, second.level) == ("limits", "limits")


@pytest.mark.anyio
async def test_places_are_gone_when_workers_are(anyio_backend: Any) -> None:
    (result,) = await rolled_out(ProcessExecutor(1), actors("here"))
    assert not os.access(result.output[0], os.F_OK)


@pytest.mark.anyio
async def test_without_a_sandbox_everything_is_the_parents(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMETHING", "of the parent")
    executor = ProcessExecutor(1, sandbox=SandboxSpec(level="none"))
    here, environment = await rolled_out(executor, actors("pid"), spec_of(run=ref("threads")), ENVIRONMENT)
    assert environment.output["SOMETHING"] == "of the parent"
    assert environment.output["HOME"] == os.environ["HOME"]
    assert (here.output, here.level) == (1, "none")


ENVIRONMENT = spec_of(run=ref("environment"))


@pytest.mark.anyio
async def test_an_interrupt_is_the_actors_own_affair(pool: ProcessExecutor) -> None:
    broken, fine = await rolled_out(pool, actors("pid"), spec_of(run=ref("interrupted")), spec_of())
    assert (broken.kind, failure_of(broken).type) == ("model", "KeyboardInterrupt")
    assert fine.kind == "ok"


@pytest.mark.anyio
@pytest.mark.parametrize("reward", ["full", "full_async"])
async def test_what_a_rollout_does_to_its_process_does_not_meet_the_next(pool: ProcessExecutor, reward: str) -> None:
    others = [spec_of(run=ref(name)) for name in ("printing", "asking", "here")]
    await rolled_out(pool, actors("pid", reward), *[spec_of()] * 20)  # so quick that those that follow wait there
    spoilt, printed, asked, placed = await rolled_out(pool, actors("stopping_stdout", reward), spec_of(), *others)
    assert spoilt.output == "rules"
    assert printed.log.startswith("to standard output")
    assert failure_of(asked).type == "EOFError"
    assert placed.output[1] == []


@pytest.mark.anyio
async def test_nobody_answers_a_question(pool: ProcessExecutor) -> None:
    asked, fine = await rolled_out(pool, actors("pid"), spec_of(run=ref("asking")), spec_of())
    assert (asked.kind, failure_of(asked).type) == ("model", "EOFError")
    assert fine.kind == "ok"


@pytest.mark.anyio
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
async def test_an_actor_may_have_processes_of_its_own(pool: ProcessExecutor, method: str) -> None:
    shared, fine = await rolled_out(pool, actors("pid"), spec_of(method, run=ref("family")), spec_of())
    assert (shared.kind, shared.output) == ("ok", [0, 1, 4, 9, 16])
    assert fine.kind == "ok"


# What it says ---------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_what_is_printed_comes_back_with_the_result(pool: ProcessExecutor) -> None:
    first, second = await rolled_out(pool, actors("printing"), spec_of("one"), spec_of("two"))
    said = "to standard output {}\nto standard error\nto the log\nwithout an end"
    assert (first.log, second.log) == (said.format("one"), said.format("two"))


@pytest.mark.anyio
async def test_a_flood_of_prints_is_kept_in_part(pool: ProcessExecutor) -> None:
    (result,) = await rolled_out(pool, actors("flooding"))
    assert result.log.startswith("the beginning\nxxx")
    assert result.log.endswith("xxx\nthe end\n")
    assert "characters left out" in result.log
    assert len(result.log) < 20_000


# Going on -------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("run", ["dying", "dying_async"])
async def test_after_a_death_the_next_attempt_goes_on_from_the_last_state(run: str, anyio_backend: Any) -> None:
    executor = ProcessExecutor(1)
    (result,) = await rolled_out(executor, actors(run), spec_of("1 3", lease_id="lease", attempt=4))
    assert (result.kind, result.output) == ("ok", [0, "died", 2, "died", 4])
    assert (result.lease_id, result.attempt, result.checkpoint) == ("lease", 6, [0, "died", 2, "died", 4])
    assert result.deaths == ("exited with code 1", "exited with code 3")
    assert not result.died_every_time
    assert [line for line in result.log.splitlines() if line.startswith("about")] == [
        "about to die at 1",
        "about to die at 3",
    ]
    assert executor.counters()["workers_lost"] == executor.counters()["redispatched"] == 2


@pytest.mark.anyio
async def test_who_dies_every_time_is_given_up_and_all_of_it_is_told(anyio_backend: Any) -> None:
    executor = ProcessExecutor(2)
    doomed, scored = spec_of(attempt=1), spec_of(run=ref("pid"), reward=ref("deadly"))
    lost, of_scorer, fine = await rolled_out(executor, actors("doomed"), doomed, scored, spec_of(run=ref("pid")))
    failure = failure_of(lost)
    assert (failure.kind, failure.stage, failure.type) == ("infrastructure", "worker", "WorkerLost")
    assert lost.deaths == ("killed by SIGSEGV",) * 3
    assert failure.message.startswith("its worker was lost 3 times: killed by SIGSEGV")
    assert (lost.attempt, lost.output, lost.score) == (3, None, None)
    assert lost.checkpoint == {"attempt after": {"attempt after": {"attempt after": None}}}
    assert lost.log.count("the last words\n") == 3
    assert "Fatal Python error: Segmentation fault" in lost.log
    assert of_scorer.deaths == ("exited with code 7",) * 3
    assert fine.kind == "ok"
    assert executor.counters()["workers_lost"] == 6


# Driving --------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_executor_maps_and_ends_what_is_not_read(pool: ProcessExecutor) -> None:
    endless = iter(spec_of, None)
    with anyio.fail_after(BOUND):
        async with pool.attach_actors(actors("pid")) as view, view.map_rollouts(endless, concurrency=4) as results:
            pids = {(await results.receive()).output for _ in range(20)}
        assert len(pids) == 1
        assert (await pool.attach_actors(actors("pid")).rollout(spec_of())).output in pids


@pytest.mark.anyio
async def test_one_call_takes_what_can_be_handed_over_at_once_what_cannot_and_what_is_refused() -> None:
    unknown, apart = SandboxSpec(level="none"), SandboxSpec(level="landlock")
    unsendable = Task("t2", "?", {"gold": object()})
    specs = [spec_of(), spec_of(sandbox=unknown), spec_of(task=unsendable), spec_of(sandbox=apart), spec_of()]
    results = await rolled_out(ProcessExecutor(2), actors("pid"), *specs)
    assert [result.kind for result in results] == ["ok", "ok", "caller", "ok", "ok"]
    assert "t2" in failure_of(results[2]).message
    assert results[1].level == "none"
    assert results[3].output not in {results[number].output for number in (0, 1, 4)}


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"debug": False})], ids=["asyncio"], indirect=True)
async def test_a_native_cancellation_goes_through(line: Any, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1).attach_actors(actors("gate")) as view:
            task = asyncio.get_running_loop().create_task(view.rollout(spec_of(task=Task("t1", line.path))))
            await line.begun()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await view.rollout(spec_of(run=ref("pid")))).kind == "ok"


# Entering and leaving -------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_counters_go_on_from_one_opening_to_the_next(anyio_backend: Any) -> None:
    executor = ProcessExecutor(1)
    assert set(executor.counters().values()) == {0}
    for openings in (1, 2):
        await rolled_out(executor, actors("pid"))
        assert executor.counters()["workers_started"] == openings
        statistics = executor.statistics()
        assert (statistics.size, statistics.idle, statistics.busy, statistics.in_flight) == (1, 0, 0, 0)


@pytest.mark.anyio
async def test_what_is_under_way_when_it_is_closed_is_told_so(line: Any, anyio_backend: Any) -> None:
    view = ProcessExecutor(1).attach_actors(actors("gate"))
    results: list[Result] = []

    async def late(lease: str) -> None:
        results.append(await view.rollout(spec_of(lease, Task("t", line.path))))

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group, view:
            group.start_soon(late, "begun")
            group.start_soon(late, "waiting")
            await line.begun()
    assert [failure_of(result).type for result in results] == ["ExecutorClosed"] * 2
    assert {result.kind for result in results} == {"infrastructure"}


@pytest.mark.anyio
async def test_an_open_executor_is_entered_from_its_own_thread_only(pool: ProcessExecutor) -> None:
    strays: list[BaseException] = []

    async def enter() -> None:
        async with pool:
            pytest.fail("entered")

    def elsewhere() -> None:
        try:
            anyio.run(enter)
        except WrongThread as error:
            strays.append(error)

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join(BOUND)
    assert ["process executor, once open, belongs to" in str(stray) for stray in strays] == [True]


@pytest.mark.anyio
async def test_who_did_not_enter_cannot_leave(pool: ProcessExecutor) -> None:
    caught: list[str] = []

    async def stranger() -> None:
        with pytest.raises(ContractError, match="has not entered"):
            await pool.__aexit__(None, None, None)
        caught.append("told")

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            group.start_soon(stranger)
    assert caught == ["told"]

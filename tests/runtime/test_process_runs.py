"""Whole runs whose rollouts are in worker processes: the same decisions as inline, from wherever they are started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.budget import Budget
from adescent.errors import ContractError, RefError
from adescent.evolution import async_evolve, evolve
from adescent.executors import ProcessExecutor
from adescent.policies import Policies
from adescent.refs import Ref
from adescent.runtime.result import EvolutionResult
from adescent.scheduling import ClusterParallel, DifficultyWeighted
from adescent.strategies import KeyedRules, SingleSlot
from adescent.tasks import Score
from adescent.workspec import SandboxSpec

BOUND = 60.0
LOOPS = ("asyncio", "trio")
MODULE = "running_actors"
HERE = Path(__file__).parent

Options = dict[str, Any]


def ref(name: str, **config: Any) -> Ref:
    return Ref(f"{MODULE}:{name}", config, call=bool(config))


VARIANTS: dict[str, Options] = {
    "plain": {},
    "async actors": {"run": ref("look_up_async"), "reward": ref("found_async")},
    "a judge": {
        "run": ref("looking", style="yes"),
        "reward": Ref("adescent.rewards:exact_match"),
        "tasks": [{"id": f"t{n}", "prompt": f"lesson-{n % 9}", "gold": "yes"} for n in range(36)],
    },
    "clusters and noise": {"parallel": ClusterParallel(), "noise": "yes", "confirm_repeats": 1},
    "stale, verified by workers": {"refresh_interval": 2, "self_verify": True, "task_sampler": DifficultyWeighted()},
    "named rules": {"strategy": KeyedRules()},
    "one text": {"strategy": SingleSlot()},
    "a calls budget": {"rounds": None, "budget": Budget(calls=171)},
    "an oracle": {"oracle": ref("found_async"), "blast_radius": 0.5},
}


@pytest.fixture(autouse=True, scope="module")
def importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield


async def propose(rendered: str, task: Any, output: object, score: object) -> str:
    return str(task.prompt)


def propose_named(rendered: str, task: Any, output: object, score: object) -> dict[str, str]:
    return {task.cluster: f"know {task.prompt}"}


def propose_text(rendered: str, task: Any, output: object, score: object) -> str:
    return f"{rendered}\n{task.prompt}".strip()


def options_of(variant: str = "plain", **changes: Any) -> Options:
    options: Options = {
        "tasks": [{"id": f"t{n}", "prompt": f"lesson-{n % 9}", "cluster": f"c{n % 3}"} for n in range(36)],
        "run": ref("look_up"),
        "reward": ref("found"),
        "propose": {"named rules": propose_named, "one text": propose_text}.get(variant, propose),
        "allow": (f"{MODULE}:",),
        "n_workers": 4,
        "rounds": 4,
        "schedule": "rounds",
        **VARIANTS[variant],
        **changes,
    }
    return options


async def evolved(options: Options, **changes: Any) -> EvolutionResult:
    options = {**options, **changes}
    with anyio.fail_after(BOUND):
        return await async_evolve(options.pop("tasks"), options.pop("reward"), **options)


def decided(result: EvolutionResult) -> tuple[Any, ...]:
    """All that a run decided, the ledger's trees first."""
    rewards = [row.held_out_reward for row in result.history]
    ends = (result.outcomes(), rewards, result.rollouts, result.version, result.stable_version, result.stop_reason)
    return [commit.tree for commit in result.log], *ends


# The same decisions ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_rounds_in_processes_decide_as_inline_does(anyio_backend: Any) -> None:
    """Every variant with several seeds, in two runs at a time that share the workers."""
    executor = ProcessExecutor(2)

    async def compare(variant: str, seed: int) -> None:
        options = options_of(variant, seed=seed)
        inline = await evolved(options)
        assert inline.version > 1, f"nothing was committed, so nothing is compared: {variant}"
        there = await evolved(options, policies=Policies(executor=executor))
        assert decided(there) == decided(inline), (variant, seed)
        assert (there.error, there.calls_by_purpose) == ("", inline.calls_by_purpose)

    with anyio.fail_after(BOUND):
        async with executor:
            for variant in VARIANTS:
                async with anyio.create_task_group() as two:
                    for seed in (1, 2):
                        two.start_soon(compare, variant, seed)
        counters = executor.counters()
    assert counters["workers_lost"] == counters["duplicates_dropped"] == 0


def test_loops_and_doors_decide_the_same() -> None:
    options = options_of(seed=7)
    inline = decided(anyio.run(evolved, options))
    for loop in LOOPS:
        policies = Policies(executor=ProcessExecutor(2))
        assert decided(anyio.run(partial(evolved, options, policies=policies), backend=loop)) == inline
    given = {**options, "policies": Policies(executor=ProcessExecutor(2, in_flight_per_worker=2))}
    result = evolve(given.pop("tasks"), given.pop("reward"), **given)
    assert decided(result) == inline
    assert result.counters["workers_started"] == 2


@pytest.mark.anyio
@pytest.mark.mainly("trio")
async def test_workers_that_are_lost_decide_nothing(tmp_path: Path, anyio_backend: Any) -> None:
    inline = await evolved(options_of(seed=3))
    policies = Policies(executor=ProcessExecutor(2))
    result = await evolved(options_of(seed=3, run=ref("lost_once", directory=str(tmp_path)), policies=policies))
    assert decided(result) == decided(inline)
    lost = len(os.listdir(tmp_path))  # noqa: PTH208 - a few names
    assert lost > 0
    assert result.counters["workers_lost"] == lost
    assert result.counters["redispatched"] >= lost


@pytest.mark.anyio
async def test_a_stream_learns_in_processes_and_in_lockstep_repeats_itself(anyio_backend: Any) -> None:
    executor = ProcessExecutor(2)
    lockstep = options_of(schedule="stream", n_workers=1, max_unmerged=1, rounds=20, seed=5)
    with anyio.fail_after(BOUND):
        async with executor:
            policies = Policies(executor=executor)
            wide = await evolved(options_of(schedule="stream", rounds=20), policies=policies)
            there = await evolved(lockstep, policies=policies)
    assert (wide.error, wide.final_reward) == ("", 1.0)
    assert decided(there) == decided(await evolved(lockstep))


# From wherever it is started ------------------------------------------------------------------------------------------

ACTORS = """
import os

def run(rendered, task):
    if "ADESCENT_WORKER" in os.environ:
        print("a worker prints")
    return task.prompt in rendered

def reward(task, output):
    return float(output)
"""
GIVEN = """
import json, sys
from adescent import Policies, ProcessExecutor, Ref, async_evolve, evolve

tasks = [{"prompt": f"lesson-{number % 5}"} for number in range(20)]
given = dict(
    run=Ref("my_actors:run", call=False), propose=lambda rendered, task, output, score: task.prompt, rounds=4,
    allow=("my_actors:",), seed=11,
)
reward = Ref("my_actors:reward", call=False)

def show(*results):
    print(json.dumps([[commit.tree for commit in result.log] for result in results]))
"""
SCRIPT = """
inline = evolve(tasks, reward, **given)
show(inline, evolve(tasks, reward, policies=Policies(executor=ProcessExecutor(2)), **given))
"""
CELL = """
inline = await async_evolve(tasks, reward, schedule="rounds", **given)
executor = ProcessExecutor(2)
there = await async_evolve(tasks, reward, schedule="rounds", policies=Policies(executor=executor), **given)
show(inline, there)
"""
NOTEBOOK = """
import ast, inspect, sys
import anyio
__name__, there = "__main__", dict(globals())
del there["__file__"]

async def cells():
    for cell in sys.argv[2:]:
        code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        done = eval(code, there)
        if inspect.isawaitable(done):
            await done

anyio.run(cells, backend=sys.argv[1])
"""


def told_by(command: list[str], directory: Path, **more: Any) -> Any:
    """What a program of its own prints, and nothing else."""
    (directory / "my_actors.py").write_text(ACTORS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BOUND,
        **more,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return json.loads(done.stdout)


def is_the_same_twice(trees: list[list[str]]) -> bool:
    inline, there = trees
    return len(inline) > 1 and inline == there


def test_a_plain_script_needs_no_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(GIVEN + SCRIPT, encoding="utf-8")
    assert is_the_same_twice(told_by(["script.py"], tmp_path))


def test_a_program_without_a_file_finds_what_lies_beside_it(tmp_path: Path) -> None:
    assert is_the_same_twice(told_by(["-c", GIVEN + SCRIPT], tmp_path))
    assert is_the_same_twice(told_by(["-"], tmp_path, input=GIVEN + SCRIPT))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_notebook_awaits_it_in_its_own_loop(tmp_path: Path, loop: str) -> None:
    (tmp_path / "host.py").write_text(NOTEBOOK, encoding="utf-8")
    assert is_the_same_twice(told_by(["host.py", loop, GIVEN, CELL], tmp_path))


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.mainly("asyncio")
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_what_has_no_name_is_refused_before_a_rollout_with_what_to_write(
    schedule: str, anyio_backend: Any
) -> None:
    executor = ProcessExecutor(2)
    policies = Policies(executor=executor)
    for role in ("run", "reward", "oracle"):
        with pytest.raises(ContractError, match=rf"{role}= is a function: .*{role}=Ref\('my_module:my_{role}'"):
            await evolved({**options_of(schedule=schedule, policies=policies), role: lambda *_: 0.0})
    with pytest.raises(RefError, match=rf"allow=\('{MODULE}:',\)"):
        await evolved(options_of(schedule=schedule, policies=policies, allow=()))
    with pytest.raises(ContractError, match=r"meta.*gold"):
        await evolved(options_of(schedule=schedule, policies=policies, tasks=[{"prompt": "?", "gold": object()}] * 9))
    assert executor.counters()["workers_started"] == 0


UNCALLABLE = {
    "missing": (ref("missing"), "defines no 'missing'"),
    "arity": (Ref(f"{MODULE}:looking", call=False), "cannot be called as run"),
    "config": (ref("stuck", path=""), "cannot be called with the config keys"),
}


@pytest.mark.anyio
@pytest.mark.mainly("asyncio")
@pytest.mark.parametrize("what", UNCALLABLE)
async def test_what_cannot_be_called_there_ends_the_run_with_the_reason(what: str, anyio_backend: Any) -> None:
    run, word = UNCALLABLE[what]
    with pytest.raises(ContractError, match=word):
        await evolved(options_of(run=run, policies=Policies(executor=ProcessExecutor(1))))


@pytest.mark.anyio
@pytest.mark.mainly("trio")
async def test_a_run_says_how_its_rollouts_are_confined(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LESSONS", "known")
    run = ref("named", variable="LESSONS")
    executor = ProcessExecutor(2)
    with anyio.fail_after(BOUND):
        async with executor:
            knowing_policies = Policies(executor=executor, sandbox=SandboxSpec(env=("LESSONS",)))
            knowing = await evolved(options_of(run=run, policies=knowing_policies))
            ignorant = await evolved(options_of(run=run, policies=Policies(executor=executor)))
    assert knowing.version > 1
    assert ignorant.version == 1


# Deaths and deadlines -------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.mainly("asyncio")
@pytest.mark.parametrize("schedule", ["rounds", pytest.param("stream", marks=pytest.mark.slow)])
async def test_a_candidate_that_dies_scores_nothing_and_the_proposer_is_told_why(
    schedule: str, anyio_backend: Any
) -> None:
    told: dict[str, tuple[Any, Score]] = {}

    async def learn(rendered: str, task: Any, output: Any, score: Score) -> str:
        told[task.prompt] = (output, score)
        return str(task.prompt)

    train, held_out = ([{"id": f"{split}{n}", "prompt": f"lesson-{n}"} for n in range(3)] for split in "th")
    options = options_of(
        tasks=train, held_out=held_out, run=ref("deadly"), propose=learn, schedule=schedule, noise="no"
    )
    result = await evolved(options, policies=Policies(executor=ProcessExecutor(2)))
    assert (result.error, result.final_reward) == ("", 1.0)
    output, score = told["lesson-0"]
    why = "the worker died: killed by SIGSEGV (3 times)"
    assert score == Score(0.0, why)
    assert output.startswith(f"{why}\nIt had printed:\nabout to look")
    assert {told[other] for other in told.keys() - {"lesson-0"}} <= {(False, Score(0.0))}
    assert result.counters["workers_lost"] == 3 * result.counters["worker_failed"]
    assert result.counters["rollouts_at_limits"] == result.rollouts + result.counters["evaluations"]


@pytest.mark.anyio
@pytest.mark.mainly("trio")
async def test_a_rollout_beyond_its_time_costs_its_worker_and_not_the_run(anyio_backend: Any) -> None:
    run = ref("stuck_on", number="t1")
    executor = ProcessExecutor(2)
    result = await evolved(
        options_of(run=run, rounds=3, rollout_timeout=0.5, held_out=[{"prompt": f"lesson-{n}"} for n in range(9)]),
        tasks=[{"id": f"t{n}", "prompt": f"lesson-{n}"} for n in range(9)],
        policies=Policies(executor=executor),
    )
    assert result.error == ""
    assert result.version > 1
    assert executor.counters()["workers_started"] > 2


async def gone(pid: int) -> None:
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(ended)
    finally:
        os.close(ended)


async def pids_of(directory: Path, count: int) -> list[int]:
    """Those of the rollouts that hang there; whoever waits for them holds the pipe open."""
    begun = os.open(directory / "begun", os.O_RDWR | os.O_NONBLOCK)
    said = b""
    try:
        while said.count(b"\n") < count:
            await anyio.wait_readable(begun)
            said += os.read(begun, 4096)
    finally:
        os.close(begun)
    return [int(line) for line in said.split()]


@pytest.mark.anyio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_a_run_that_is_cancelled_takes_its_workers_with_it(
    schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    os.mkfifo(tmp_path / "begun")
    options = options_of(schedule=schedule, run=ref("stuck", directory=str(tmp_path)))
    options["policies"] = Policies(executor=ProcessExecutor(2))
    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as host:
                host.start_soon(evolved, options)
                pids = await pids_of(tmp_path, 2)
                scope.cancel()
        assert scope.cancelled_caught
        for pid in pids:
            await gone(pid)


INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell without a terminal may have it ignored
given["run"] = Ref("running_actors:stuck", {"directory": sys.argv[1]})
given["allow"] = ("my_actors:", "running_actors:")
evolve(tasks, reward, policies=Policies(executor=ProcessExecutor(2)), **given)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
def test_a_script_that_is_interrupted_or_killed_takes_its_workers_with_it(tmp_path: Path, sent: signal.Signals) -> None:
    os.mkfifo(tmp_path / "begun")
    (tmp_path / "my_actors.py").write_text(ACTORS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path, str(tmp_path)])}
    command = [sys.executable, "-c", GIVEN + INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as script:
        try:
            pids = anyio.run(bounded, partial(pids_of, tmp_path, 2))
            script.send_signal(sent)
            _, errors = script.communicate(timeout=BOUND)
        finally:
            script.kill()
    for pid in pids:
        anyio.run(bounded, partial(gone, pid))
    assert script.returncode == -sent
    assert (b"KeyboardInterrupt" in errors or b"RunCancelled" in errors) == (sent is signal.SIGINT)


async def bounded(what: Any) -> Any:
    with anyio.fail_after(BOUND):
        return await what()

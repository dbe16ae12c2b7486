"""Rollouts that say how far they are, and go on from there: the same behind every executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.executors import collect_rollouts
from adescent.executors.context import RolloutContext
from adescent.policies import Actors, Executor
from adescent.refs import Ref, Resolver
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec

pytestmark = pytest.mark.anyio

BOUND = 30.0
TASK = Task("t1", "Count.")

# Actors that a worker in another process could import: they share nothing with the test, and return plain JSON.
ACTORS = """
import threading
from anyio.lowlevel import checkpoint


def counting(rendered, task, ctx):
    begun = step = ctx.resume_state or 0
    while step < 5:
        if rendered == f"fails at {step}":
            raise ValueError(step)
        step += 1
        ctx.checkpoint(step)
    return [begun, step]


async def counting_async(rendered, task, ctx=None):
    begun = step = ctx.resume_state or 0
    while step < 5:
        if rendered == f"fails at {step}":
            raise ValueError(step)
        step += 1
        await checkpoint()
        await ctx.checkpoint(step)
    return [begun, step]


def adding(rendered, task, ctx):
    state = ctx.resume_state or {"z": [], "a": None}
    state["z"].append(rendered)
    ctx.checkpoint(state)
    state["z"].append("never kept")
    raise ValueError(rendered)


def spoiling(rendered, task, ctx):
    ctx.resume_state["z"] = "changed and not kept"
    raise ValueError(rendered)


def keeping(rendered, task, state):
    state.checkpoint({"steps": (1, 2)})
    state.checkpoint({"nothing": None, "a set": {"steps": {3}}}[rendered])


def from_a_thread(rendered, task, ctx):
    thread = threading.Thread(target=ctx.checkpoint, args=([rendered, task.id],))
    thread.start()
    thread.join()
    return rendered


async def unaware(rendered, task, *more, **options):
    return len(more) + len(options)


def full(task, output):
    return 1.0


def broken(task, output):
    raise ConnectionError(output)
"""

COUNTING = pytest.mark.parametrize("run", ["counting", "counting_async"])


@pytest.fixture
def actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A maker of actors by their names in the module above."""
    (tmp_path / "checkpointing_actors.py").write_text(ACTORS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    resolver = Resolver(allow=("checkpointing_actors:",))

    def ref(name: str) -> Ref:
        return Ref(f"checkpointing_actors:{name}", call=False)

    def named(run: str, reward: str = "full") -> Actors:
        return Actors(ref(run), ref(reward), resolver=resolver)

    return named


async def rolled_out(executor: Executor, actors: Actors, rendered: str, **more: Any) -> Result:
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors) as view:
            return await view.rollout(RolloutSpec(rendered, TASK, lease_id="lease", **more))


@COUNTING
async def test_the_last_state_is_in_the_result(executor: Executor, actors: Any, run: str) -> None:
    result = await rolled_out(executor, actors(run), "runs through")
    assert (result.kind, result.output, result.checkpoint) == ("ok", [0, 5], 5)


@COUNTING
async def test_another_attempt_goes_on_from_where_one_failed(executor: Executor, actors: Any, run: str) -> None:
    failed = await rolled_out(executor, actors(run), "fails at 3")
    assert (failed.kind, failed.checkpoint) == ("model", 3)
    at_once = await rolled_out(executor, actors(run), "fails at 3", attempt=1, resume_state=failed.checkpoint)
    assert (at_once.kind, at_once.checkpoint) == ("model", 3)
    done = await rolled_out(executor, actors(run), "runs through", attempt=2, resume_state=at_once.checkpoint)
    assert (done.kind, done.output, done.checkpoint, done.attempt) == ("ok", [3, 5], 5, 2)


async def test_a_scorer_that_fails_takes_no_state_away(executor: Executor, actors: Any) -> None:
    result = await rolled_out(executor, actors("counting", "broken"), "runs through")
    assert (result.kind, result.output, result.checkpoint) == ("caller", [0, 5], 5)


async def test_what_is_kept_and_what_is_given_are_copies(executor: Executor, actors: Any) -> None:
    first = await rolled_out(executor, actors("adding"), "one")
    assert first.checkpoint == {"z": ["one"], "a": None}
    second = await rolled_out(executor, actors("adding"), "two", resume_state=first.checkpoint)
    assert second.checkpoint == {"z": ["one", "two"], "a": None}
    spoilt = await rolled_out(executor, actors("spoiling"), "three", resume_state=second.checkpoint)
    assert spoilt.error is not None
    assert spoilt.error.type == "ValueError"
    assert spoilt.checkpoint == second.checkpoint == {"z": ["one", "two"], "a": None}
    assert first.checkpoint == {"z": ["one"], "a": None}


@pytest.mark.parametrize(("rendered", "word"), [("nothing", "checkpoint(None)"), ("a set", "checkpoint.steps")])
async def test_what_is_no_state_is_refused_and_the_one_before_stays(
    executor: Executor, actors: Any, rendered: str, word: str
) -> None:
    result = await rolled_out(executor, actors("keeping"), rendered)
    assert result.error is not None
    assert (result.kind, result.error.type, result.checkpoint) == ("model", "ContractError", {"steps": [1, 2]})
    assert word in result.error.message


async def test_a_spec_whose_state_is_no_json_is_the_callers(executor: Executor, actors: Any) -> None:
    result = await rolled_out(executor, actors("counting"), "runs through", resume_state={"steps": {3}})
    assert result.error is not None
    assert (result.kind, result.error.stage, result.error.type) == ("caller", "worker", "ContractError")
    assert "resume_state.steps" in result.error.message


async def test_a_state_may_come_from_any_thread_and_stays_with_its_rollout(executor: Executor, actors: Any) -> None:
    specs = [RolloutSpec(str(number), Task(f"t{number}", "?")) for number in range(50)]
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("from_a_thread")) as view:
            results = await collect_rollouts(view, specs, concurrency=50)
    assert [result.checkpoint for result in results] == [[str(number), f"t{number}"] for number in range(50)]


async def test_who_does_not_ask_for_a_context_gets_none(executor: Executor, actors: Any) -> None:
    result = await rolled_out(executor, actors("unaware"), "alone", resume_state={"step": 1})
    assert (result.output, result.checkpoint) == (0, {"step": 1})


def test_awaiting_is_a_courtesy_to_the_loop() -> None:
    kept: list[Any] = []
    ctx = RolloutContext(None, kept.append)
    ctx.checkpoint("without a loop")
    anyio.run(awaited, ctx)
    assert kept == ["without a loop", "awaited"]


async def awaited(ctx: RolloutContext) -> None:
    async with anyio.create_task_group() as tasks:
        others: list[str] = []

        async def other() -> None:
            others.append("had its turn")

        tasks.start_soon(other)
        await ctx.checkpoint("awaited")
        assert others == ["had its turn"]

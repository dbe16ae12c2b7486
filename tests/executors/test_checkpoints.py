"""Rollouts that say how far they are, and go on from there: the same behind every executor."""

from __future__ import annotations

from collections.abc import Callable
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

COUNTING = pytest.mark.parametrize("run", ["counting", "counting_async"])


@pytest.fixture
def actors() -> Callable[..., Actors]:
    """A maker of actors by their names in `checkpointing_actors`."""
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


async def test_awaiting_is_a_courtesy_to_the_loop(anyio_backend: Any) -> None:
    kept: list[Any] = []
    ctx = RolloutContext(None, kept.append)
    others: list[str] = []

    async def other() -> None:
        others.append("had its turn")

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            ctx.checkpoint("not awaited")
            assert (kept, others) == (["not awaited"], [])
            for _ in range(2):  # whose turn comes first is open
                await ctx.checkpoint("awaited")
            assert (kept, others) == (["not awaited", "awaited", "awaited"], ["had its turn"])

"""The same arguments with the schedule flipped: every one of them means the same."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.budget import Budget
from adescent.config import ROUNDS_ONLY, STREAM_ONLY
from adescent.errors import OptionError
from adescent.evolution import async_evolve, evolve
from adescent.runtime.result import EvolutionResult
from adescent.scheduling import ClusterParallel, DifficultyWeighted
from adescent.strategies import KeyedRules
from adescent.telemetry import RunStarted

BOUND = 60.0

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "workers": {"n_workers": 7},
    "rounds": {"rounds": 2},
    "a budget of rollouts": {"rounds": None, "budget": Budget(rollouts=17)},
    "clusters": {"parallel": ClusterParallel()},
    "difficulty": {"task_sampler": DifficultyWeighted()},
    "concurrency": {"max_concurrency": 2, "eval_concurrency": 3},
    "splits": {"held_out_frac": 0.3, "test_frac": 0.2, "seed": 5},
    "given splits": {"held_out": [{"id": "h", "prompt": "lesson-1"}], "test": [{"id": "s", "prompt": "lesson-2"}]},
    "repeats": {"eval_repeats": 2},
    "noise": {"noise": "yes", "confirm_repeats": 1},
    "an audited artifact": {"blast_radius": 0.8},
    "a start": {"initial_state": "lesson-0\nlesson-1"},
    "another strategy": {"strategy": KeyedRules()},
    "verified": {"self_verify": True},
    "a threshold": {"solved_threshold": 0.0},
    "another name": {"artifact_id": "rules"},
    "a timeout": {"rollout_timeout": 30.0},
    "a target that is met": {"initial_state": "lesson-0", "target_reward": 0.01},
}


@pytest.mark.anyio
@pytest.mark.parametrize("variant", VARIANTS)
async def test_what_does_not_hang_on_the_order_of_events_is_the_same(
    variant: str, new_world: Any, anyio_backend: Any
) -> None:
    told = []
    for asynchronous in (False, True):
        world = new_world()
        events: list[Any] = []
        for at, row in enumerate(world.tasks):
            row["cluster"] = f"c{at % 3}"
        options = world.options("rounds", **{"rounds": 5, **VARIANTS[variant]})
        del options["schedule"]
        if variant == "another strategy":
            options["propose"] = named(world)
        with anyio.fail_after(BOUND):
            result = await async_evolve(
                world.tasks, world.reward, asynchronous=asynchronous, on_event=events.append, **options
            )
        started = next(event for event in events if isinstance(event, RunStarted))
        assert started.schedule == ("stream" if asynchronous else "rounds")
        told.append((fixed(result), started.tasks, started.n_workers))
    assert told[0] == told[1]


def named(world: Any) -> Any:
    async def propose(rendered: str, task: Any, *_: Any) -> dict[str, str]:
        world.calls["propose"] += 1
        return {task.prompt: f" {task.prompt} "}

    return propose


def fixed(result: EvolutionResult) -> dict[str, Any]:
    calls = result.calls_by_purpose
    return {
        "artifact": result.artifact_id,
        "rollouts": result.rollouts,
        "why": result.stop_reason,
        "error": result.error,
        "seed": result.seed,
        "noisy": result.noisy,
        "measured": [calls.get(purpose) for purpose in ("seed", "noise", "rollout", "final", "test")],
        "trials": (result.final.trials, result.test.trials),
        "audited": "audits_passed" in result.counters,
        "verified": "self-verify" in calls,
        "proposed": "proposal" in calls,
        "learnt": result.version > 1,
    }


def test_both_doors_take_both_schedules(new_world: Any) -> None:
    told = []
    for schedule in ("rounds", "stream"):
        blocking, awaited = new_world(), new_world()
        options = {"n_workers": 1, **({"max_unmerged": 1} if schedule == "stream" else {})}
        result = evolve(blocking.tasks, blocking.reward, **blocking.options(schedule, **options))

        async def go(world: Any = awaited, schedule: str = schedule, options: Any = options) -> EvolutionResult:
            result: EvolutionResult = await world.evolve(schedule, **options)
            return result

        other = anyio.run(go)
        assert [commit.tree for commit in result.log] == [commit.tree for commit in other.log]
        told.append(fixed(result))
    assert told[0] == told[1]


@pytest.mark.parametrize("name", [*ROUNDS_ONLY, *STREAM_ONLY])
def test_what_only_one_schedule_knows_the_other_refuses_by_name(name: str, new_world: Any) -> None:
    world = new_world()
    given: dict[str, Any] = {name: True if name == "resync_on_commit" else 2}
    schedule, instead = ("stream", ROUNDS_ONLY) if name in ROUNDS_ONLY else ("rounds", STREAM_ONLY)
    with pytest.raises(OptionError, match=f"{name}= means nothing.*{schedule}.*{instead[name].split()[0]}"):
        evolve(world.tasks, world.reward, **world.options(schedule, **given))
    assert not world.calls
    other = "rounds" if schedule == "stream" else "stream"
    assert evolve(world.tasks, world.reward, **world.options(other, **given)).rollouts == 12

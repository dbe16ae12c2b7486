"""The same arguments with the schedule flipped: every parameter means the same, or is refused by name."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import pytest
from attrs import fields

from adescent.budget import Budget
from adescent.config import RunConfig
from adescent.errors import OptionError
from adescent.evolution import Evolution, async_evolve, evolve

ONE_SCHEDULE = {
    "async_ratio": ("stream", 2),
    "max_unmerged": ("stream", 2),
    "resync_on_commit": ("stream", False),
    "refresh_interval": ("rounds", 2),
    "round_timeout": ("rounds", 5.0),
}
FLAG = {"rounds": False, "stream": True}

BOTH: dict[str, dict[str, Any]] = {
    "rounds": {"rounds": 5, "n_workers": 3},
    "rollouts": {"budget": Budget(rollouts=7), "n_workers": 3},
    "both": {"budget": Budget(rollouts=7), "rounds": 2, "n_workers": 3},
    "rounds first": {"budget": Budget(rollouts=100), "rounds": 2, "n_workers": 3},
    "nothing": {},
    "narrow": {"rounds": 4, "n_workers": 6, "max_concurrency": 2},
    "nothing to learn": {"patience": 3, "n_workers": 1, "initial_state": "\n".join(f"lesson-{n}" for n in range(6))},
    "good enough": {"target_reward": 0.0, "rounds": 5},
}
ROLLOUTS = {
    "rounds": 15,
    "rollouts": 7,
    "both": 6,
    "rounds first": 6,
    "nothing": 60,
    "narrow": 24,
    "nothing to learn": 3,
    "good enough": 0,
}


@pytest.mark.anyio
@pytest.mark.parametrize("limits", BOTH)
async def test_limits_mean_the_same_in_both_schedules(
    rows: Any, actors: Any, score: Any, limits: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(60):
        results = [
            await async_evolve(rows, score, **actors, **BOTH[limits], asynchronous=flag) for flag in FLAG.values()
        ]
    assert [result.rollouts for result in results] == [ROLLOUTS[limits]] * 2
    assert len({result.stop_reason for result in results}) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("name", ONE_SCHEDULE)
async def test_option_of_one_schedule_is_refused_in_the_other_by_name(
    rows: Any, actors: Any, score: Any, name: str, anyio_backend: Any
) -> None:
    home, value = ONE_SCHEDULE[name]
    option: dict[str, Any] = {name: value}
    other = "rounds" if home == "stream" else "stream"
    with anyio.fail_after(60):
        await async_evolve(rows, score, **actors, rounds=1, asynchronous=FLAG[home], **option)
        with pytest.raises(OptionError, match=f"{name}= means nothing with schedule='{other}'; there it is "):
            await async_evolve(rows, score, **actors, rounds=1, asynchronous=FLAG[other], **option)


def test_no_other_option_is_tied_to_a_schedule(rows: Any, actors: Any, score: Any) -> None:
    defaults = {field.name: field.default for field in fields(RunConfig)}
    for name in defaults.keys() - ONE_SCHEDULE.keys() - {"tasks", "reward", "schedule", *actors}:
        given = {**actors, name: defaults[name]}
        configs = [
            RunConfig.from_options(rows, score, {**given, "asynchronous": flag}, "rounds") for flag in FLAG.values()
        ]
        assert getattr(configs[0], name) == getattr(configs[1], name)


def test_both_doors_take_the_same_arguments_with_the_same_defaults() -> None:
    blocking, awaited = inspect.signature(evolve).parameters, inspect.signature(async_evolve).parameters
    assert list(blocking) == list(awaited)
    different = {name for name in blocking if blocking[name].default != awaited[name].default}
    assert different == {"schedule"}


@pytest.mark.anyio
async def test_contradiction_of_flag_and_schedule_is_refused(
    rows: Any, actors: Any, score: Any, anyio_backend: Any
) -> None:
    with pytest.raises(OptionError, match=r"asynchronous=True.*schedule='rounds'"):
        await async_evolve(rows, score, **actors, asynchronous=True, schedule="rounds")
    with pytest.raises(OptionError, match=r"asynchronous=False.*schedule='stream'"):
        Evolution(rows, score, **actors, asynchronous=False, schedule="stream")


def test_the_flag_is_the_schedule_and_each_door_has_its_own_default(rows: Any, actors: Any, score: Any) -> None:
    schedules = []

    async def on_event(event: Any) -> None:
        if type(event).__name__ == "RunStarted":
            schedules.append(event.schedule)

    async def awaited(**options: Any) -> None:
        await async_evolve(rows, score, **actors, rounds=1, on_event=on_event, **options)

    evolve(rows, score, **actors, rounds=1, on_event=on_event)
    evolve(rows, score, **actors, rounds=1, on_event=on_event, asynchronous=True)
    anyio.run(awaited)
    anyio.run(lambda: awaited(asynchronous=False))
    assert schedules == ["rounds", "stream", "stream", "rounds"]

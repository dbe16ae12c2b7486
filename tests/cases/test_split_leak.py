"""The same ids in several splits name different items: a score belongs to the item and not to its id."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.evolution import async_evolve
from adescent.strategies import SingleSlot

SIZE = 6
WORTH = {"train": 0.0, "held-out": 0.5, "test": 0.25}
"""What an item of each split scores under the first text; the held-out ones score 1.0 under any other."""


def items(split: str) -> list[dict[str, str]]:
    return [{"id": str(number), "prompt": f"{split} item {number}"} for number in range(SIZE)]


@pytest.mark.anyio
async def test_scores_of_one_split_never_answer_for_another(schedule: Any, anyio_backend: Any) -> None:
    seen: Counter[tuple[str, str]] = Counter()

    async def run(rendered: str, task: Any) -> str:
        await checkpoint()
        return rendered

    async def reward(task: Any, output: str) -> float:
        await checkpoint()
        seen[output, task.prompt] += 1
        split = task.prompt.split(" item ")[0]
        return 1.0 if split == "held-out" and output != "first" else WORTH[split]

    async def propose(rendered: str, task: Any, output: str, score: Any) -> str:
        assert task.prompt.startswith("train")
        return "second"

    with anyio.fail_after(30):
        result = await async_evolve(
            items("train"),
            reward,
            run=run,
            propose=propose,
            strategy=SingleSlot(),
            initial_state="first",
            held_out=items("held-out"),
            test=items("test"),
            schedule=schedule,
            rounds=2,
        )
    assert (result.seed_reward, result.final_reward, result.test_reward) == (0.5, 1.0, 0.25)
    for number in range(SIZE):  # each was really evaluated, for the figure of its own split
        assert seen["first", f"held-out item {number}"]
        assert seen["second", f"held-out item {number}"]
        assert seen["second", f"test item {number}"] == 1
        assert not seen["first", f"test item {number}"]

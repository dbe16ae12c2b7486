"""A scorer that waits is awaited on the host's loop: many at once, and the host goes on beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from adescent.evolution import async_evolve
from adescent.telemetry import RunStarted

WAIT = 0.2
TASKS = 20
CONCURRENCY = 10
TICK = 0.01


class Host:
    """A host with a ticker of its own that awaits a run; the clock is the loop's."""

    def __init__(self) -> None:
        self.ticks = 0
        self.began = self.measured = self.ended = 0.0

    async def tick(self) -> None:
        while True:
            await anyio.sleep(TICK)
            self.ticks += 1

    def on_event(self) -> Callable[[Any], Any]:
        async def on_event(event: Any) -> None:
            if isinstance(event, RunStarted):
                self.measured = anyio.current_time() - self.began

        return on_event

    async def live(self, actors: Any, score: Any, schedule: Any) -> Any:
        async def waits(task: Any, output: object) -> float:
            await anyio.sleep(WAIT)
            return float(await score(task, output))

        self.began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.tick)
            result = await async_evolve(
                [{"id": "one", "prompt": "lesson"}],
                waits,
                **actors,
                held_out=[{"prompt": "lesson"} for _ in range(TASKS)],
                eval_concurrency=CONCURRENCY,
                schedule=schedule,
                on_event=self.on_event(),
                noise="no",
                n_workers=1,
                rounds=1,
            )
            self.ended = anyio.current_time() - self.began
            tasks.cancel_scope.cancel()
        return result


@pytest.mark.trio
async def test_twenty_scores_ten_at_a_time_take_twice_the_wait(
    actors: Any, score: Any, schedule: Any, autojump_clock: Any
) -> None:
    host = Host()
    result = await host.live(actors, score, schedule)
    assert math.isclose(host.measured, TASKS / CONCURRENCY * WAIT)
    assert host.ticks >= 0.8 * host.ended / TICK
    assert (result.seed_reward, result.final_reward) == (0.0, 1.0)


@pytest.mark.anyio
async def test_the_hosts_ticker_keeps_ticking(actors: Any, score: Any, schedule: Any, anyio_backend: Any) -> None:
    host = Host()
    with anyio.fail_after(3 * TASKS * WAIT):  # one by one the three measurements alone would take so long
        await host.live(actors, score, schedule)
    assert host.ticks >= 0.2 * host.ended / TICK  # four fifths and more, on a machine with nothing else to do

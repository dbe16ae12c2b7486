"""Somebody else commits to the artifact while a run works on it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from adescent.evolvable import Evolvable
from adescent.ledger import MemoryLedger
from adescent.policies import Policies
from adescent.tasks import as_score
from adescent.workspec import Result, RolloutSpec

pytestmark = pytest.mark.anyio


def commit_elsewhere(ledger: MemoryLedger, rule: str) -> Evolvable:
    head = ledger.head("artifact")
    return ledger.commit(evolve(head, state={**head.state, rule: rule}), head.version)


async def test_workers_go_on_from_a_head_that_somebody_else_committed(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    ledger = MemoryLedger()

    async def propose(*args: Any) -> Any:
        if world.calls["propose"] in (2, 5):
            commit_elsewhere(ledger, f"foreign-{world.calls['propose']}")
        return await world.propose(*args)

    result = await world.evolve(schedule, propose=propose, rounds=8, policies=Policies(ledger=ledger))
    assert {"foreign-2", "foreign-5"} <= set(result.state)
    assert result.version == ledger.head("artifact").version
    assert result.outcomes().get("committed", 0) > 3
    assert result.counters.get("forced_refreshes", 0) == 0


async def test_the_figures_at_the_end_are_those_of_the_newest_head(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    ledger = MemoryLedger()
    measured: list[str] = []

    async def run(rendered: str, task: Any) -> Any:
        measured.append(rendered)
        return await world.run(rendered, task)

    async def watch(event: Any) -> None:
        if type(event).__name__ == "RoundFinished" and event.index == 0:
            commit_elsewhere(ledger, "foreign")

    result = await world.evolve(schedule, run=run, on_event=watch, rounds=1, policies=Policies(ledger=ledger))
    if "foreign" not in result.state:  # the watcher came after the end: then the head is the run's own
        assert result.version == ledger.head("artifact").version - 1
    else:
        assert measured[-1] == result.rendered
        assert result.version == ledger.head("artifact").version


async def test_an_executor_is_entered_before_any_view_of_it_is_used(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    class Entered:
        takes_callables = True
        slots = None
        open = 0

        def __init__(self, actors: Any = None, parent: Entered | None = None) -> None:
            self.actors, self.parent = actors, parent

        async def __aenter__(self) -> Entered:
            self.open += 1
            return self

        async def __aexit__(self, *_: object) -> None:
            self.open -= 1

        def attach_actors(self, actors: Any) -> Entered:
            return Entered(actors, self)

        async def rollout(self, spec: RolloutSpec) -> Result:
            assert self.parent is not None
            assert self.parent.open == 1
            output = await self.actors.run(spec.rendered, spec.task)
            score = as_score(await self.actors.reward(spec.task, output))
            return Result(spec.lease_id, spec.task.id, output, score)

    executor: Any = Entered()
    result = await world.evolve(
        schedule, rounds=1, blast_radius=0.5, oracle=world.reward, policies=Policies(executor=executor)
    )
    assert result.outcomes()["committed"] > 0
    assert executor.open == 0

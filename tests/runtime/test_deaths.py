"""Rollouts that end the workers they run in: evidence for the gate and for the proposer, paid like any other."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.policies import Policies
from adescent.runtime.evidence import evidence_of
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec

pytestmark = pytest.mark.anyio

BOUND = 30.0
DEADLY = "lesson-0"
LOST = Failure("infrastructure", "worker", "WorkerLost", "its worker was lost 3 times")


class Mortal:
    """An executor whose workers die of the tasks of one lesson, until the lesson is known, and print before they do."""

    takes_callables = True
    slots: int | None = None

    def __init__(self, deaths: tuple[str, ...] = ("SIGSEGV",) * 3, attempt: int = 2) -> None:
        self._deaths = deaths
        self._attempt = attempt
        self.died = 0

    async def __aenter__(self) -> Mortal:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def attach_actors(self, actors: Any) -> Mortal:
        return self

    async def rollout(self, spec: RolloutSpec) -> Result:
        solved = spec.task.prompt in spec.rendered.split()
        if spec.task.prompt != DEADLY or solved:
            return Result(spec.lease_id, spec.task.id, solved, Score(float(solved)), log="not told")
        self.died += 1
        return Result(
            spec.lease_id,
            spec.task.id,
            error=LOST,
            log="about to divide\n",
            deaths=self._deaths,
            attempt=self._attempt,
        )


async def test_the_proposer_is_told_what_the_workers_died_of_and_can_help(world: Any, schedule: str) -> None:
    told: dict[str, tuple[Any, Score]] = {}

    async def propose(rendered: str, task: Task, output: Any, score: Score) -> str:
        told[task.prompt] = (output, score)
        return task.prompt

    mortal = Mortal()
    with anyio.fail_after(BOUND):
        result = await world.evolve(
            schedule, propose=propose, on_event=world.watch, rounds=8, noise="no", policies=Policies(executor=mortal)
        )
    assert (result.error, result.final_reward) == ("", 1.0)
    why = "the worker died: SIGSEGV (3 times)"
    assert told.pop(DEADLY) == (f"{why}\nIt had printed:\nabout to divide", Score(0.0, why))
    assert told
    assert {(output, score) for output, score in told.values()} == {(False, Score(0.0))}
    failed = [event for event in world.events if type(event).__name__ == "RolloutFailed"]
    assert {event.stage for event in failed} == {"worker"}
    assert result.counters["worker_failed"] == mortal.died == len(failed) + result.counters["evaluation_failures"]


async def test_what_merely_may_have_died_of_it_is_no_evidence(world: Any, schedule: str) -> None:
    asked: list[str] = []

    async def propose(rendered: str, task: Task, output: Any, score: Score) -> str:
        asked.append(task.prompt)
        return task.prompt

    with anyio.fail_after(BOUND):
        result = await world.evolve(
            schedule, propose=propose, rounds=8, policies=Policies(executor=Mortal(("SIGKILL", "SIGKILL"), attempt=2))
        )
    assert asked
    assert DEADLY not in asked
    assert result.counters["evaluations_missing"] > 0
    assert "evaluation_failures" not in result.counters


async def test_it_is_paid_as_often_as_it_was_sent(world: Any, schedule: str) -> None:
    mortal, immortal = Mortal(), Mortal()
    known = DEADLY
    with anyio.fail_after(BOUND):
        common = {"rounds": 1, "noise": "no", "propose": propose_nothing}
        died = await world.evolve(schedule, policies=Policies(executor=mortal), **common)
        lived = await world.evolve(schedule, policies=Policies(executor=immortal), initial_state=known, **common)
    assert (mortal.died > 0, immortal.died) == (True, 0)
    first_tries = {purpose: n for purpose, n in lived.calls_by_purpose.items() if purpose != "proposal"}
    all_tries = {purpose: n for purpose, n in died.calls_by_purpose.items() if purpose != "proposal"}
    assert sum(all_tries.values()) == sum(first_tries.values()) + 2 * mortal.died


async def propose_nothing(rendered: str, task: Task, output: Any, score: Score) -> None:
    return None


def test_causes_of_death_are_told_in_order_and_what_was_printed_is_bounded() -> None:
    lost = Result("lease", "t", error=LOST, deaths=("exit 42", "SIGKILL", "exit 42"), attempt=2, log="x" * 10_000 + "!")
    evidence = evidence_of(lost)
    assert evidence is not None
    assert evidence.score.feedback == "the worker died: exit 42 (2 times); SIGKILL"
    assert evidence.output.endswith("xxx!")
    assert len(evidence.output) < 4_200
    silent = evidence_of(Result("lease", "t", error=LOST, deaths=("SIGSEGV",), log=" \n"))
    assert silent is not None
    assert silent.output == silent.score.feedback == "the worker died: SIGSEGV"


def test_the_living_tell_what_they_returned() -> None:
    evidence = evidence_of(Result("lease", "t", "out", Score(0.5, "half"), log="printed"))
    assert evidence is not None
    assert (evidence.output, evidence.score) == ("out", Score(0.5, "half"))
    assert evidence_of(Result("lease", "t", error=LOST)) is None

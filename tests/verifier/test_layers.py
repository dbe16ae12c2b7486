from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from adescent.evolvable import Evolvable
from adescent.policies import Measurement, Reading, VerifierServices
from adescent.tasks import Score, Splits, Task
from adescent.verifier import EvaluationGroup, LayeredVerifier
from adescent.workspec import Failure

HEAD = Evolvable("artifact", {"text": "be brief"})
SPLITS = Splits(
    tuple(Task(str(number), f"train {number}") for number in range(20)),
    tuple(Task(str(number), f"held out {number}") for number in range(5)),
)


@define
class Asked:
    """An evaluator that only remembers what it was asked."""

    calls: list[dict[str, Any]] = field(factory=list)

    async def measure(self, artifact: Evolvable, tasks: Any, **options: Any) -> Measurement:
        self.calls.append({"tasks": tuple(tasks), **options})
        return Measurement(tuple(Reading(task.id, 0.5, 1) for task in tasks))

    def unanswered(self, artifact: Evolvable, tasks: Any, **options: Any) -> int:
        return len(tasks) + 100


def verifier(evaluator: Any, *, oracle: Any = None, cheap_tasks: int = 8, seed: int = 0) -> LayeredVerifier:
    return LayeredVerifier(VerifierServices(evaluator, oracle, SPLITS, cheap_tasks, seed))


def test_the_cheap_subset_is_drawn_once_from_train_and_keeps_its_order() -> None:
    drawn = verifier(Asked()).cheap
    assert len(drawn) == 8
    assert list(drawn) == [task for task in SPLITS.train if task in drawn]
    assert verifier(Asked()).cheap == drawn
    assert any(verifier(Asked(), seed=seed).cheap != drawn for seed in range(1, 4))


def test_a_small_train_split_is_taken_whole() -> None:
    assert verifier(Asked(), cheap_tasks=50).cheap == SPLITS.train


@pytest.mark.anyio
async def test_the_rule_never_sees_the_gate_s_tasks() -> None:
    evaluator = Asked()
    layers = verifier(evaluator)
    assert (await layers.rule(HEAD)).rate == 0.5
    assert evaluator.calls == [{"tasks": layers.cheap, "split": "train", "purpose": "rule"}]


@pytest.mark.anyio
async def test_the_estimate_is_the_posterior_over_what_was_scored(rollouts: Any) -> None:
    answers: dict[str, Any] = {task.id: Score(1.0) for task in SPLITS.train}
    async with EvaluationGroup(rollouts.services()) as group:
        layers = verifier(group, cheap_tasks=4)
        scores = [Score(1.0), Score(1.0), Score(0.0), Failure("caller", "reward", "KeyError", "gold")]
        answers.update(zip((task.id for task in layers.cheap), scores, strict=True))
        rollouts.answer = lambda spec: answers[spec.task.id]
        estimate = await layers.learned(HEAD)
    assert estimate.value == pytest.approx(0.6)  # Beta(3, 2)
    assert estimate.sd == pytest.approx(0.2)


@pytest.mark.anyio
async def test_without_an_oracle_of_its_own_the_gate_s_scores_are_not_bought_twice(rollouts: Any) -> None:
    async with EvaluationGroup(rollouts.services(calls=5)) as group:
        layers = verifier(group)
        assert layers.oracle_cost(HEAD) == 5
        at_the_gate = await group.measure(HEAD, SPLITS.held_out, split="held_out", purpose="gate")
        assert layers.oracle_cost(HEAD) == 0
        assert await layers.oracle(HEAD) == at_the_gate
        assert rollouts.account.by_purpose == {"gate": 5}


@pytest.mark.anyio
async def test_an_independent_oracle_is_the_one_that_is_asked_and_paid() -> None:
    evaluator, oracle = Asked(), Asked()
    layers = verifier(evaluator, oracle=oracle)
    await layers.oracle(HEAD)
    assert evaluator.calls == []
    assert oracle.calls == [{"tasks": SPLITS.held_out, "split": "held_out", "purpose": "audit"}]
    assert layers.oracle_cost(HEAD) == 105

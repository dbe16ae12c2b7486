"""When a union with rebased diffs was refused: do they still do their own tasks good on the newer head?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from attrs import frozen

from adescent.aggregator.trust_region import within_union
from adescent.aggregator.union import Union
from adescent.evolvable import Diff, EvidenceCard, Evolvable
from adescent.policies.comparison import EXACT
from adescent.policies.measuring import Evaluator
from adescent.policies.records import Measurement
from adescent.sidebyside import side_by_side
from adescent.tasks import Task

__all__ = ["Wave", "gain_on", "on_own_tasks", "own_tasks", "planned", "worsened"]


@frozen
class Wave:
    """One concurrent look at the head and at the head with ``union``, on ``tasks`` that taught ``cards``."""

    union: Diff
    cards: tuple[EvidenceCard, ...]
    tasks: tuple[Task, ...]


def planned(rebased: Sequence[EvidenceCard], eval_concurrency: int) -> Wave | None:
    """What to look at, or None where there is nothing to learn.

    The union holds the rebased cards that agree. Tasks are taken from the newest card backwards, as many as fit with
    both sides at once into ``eval_concurrency`` evaluations; cards beyond that are not looked at and go on.
    """
    agreeing, _ = within_union(Union(rebased).cards)
    tasks: dict[str, Task] = {}
    looked_at: list[EvidenceCard] = []
    for card in reversed(agreeing):
        own = own_tasks(card)
        if len(tasks.keys() | own.keys()) > max(1, eval_concurrency // 2) or not own:
            continue
        tasks.update(own)
        looked_at.append(card)
    if not looked_at:
        return None
    return Wave(Union(agreeing).diff(agreeing[0].diff.target), tuple(looked_at), tuple(tasks.values()))


def own_tasks(card: EvidenceCard) -> dict[str, Task]:
    """The tasks a card was learnt from, by id."""
    return {trajectory.task.id: trajectory.task for trajectory in card.trajectories}


async def on_own_tasks(
    evaluator: Evaluator, head: Evolvable, candidate: Evolvable, tasks: Sequence[Task]
) -> tuple[Measurement, Measurement]:
    """Head and candidate on tasks of the train split, measured at the same time. Raises BudgetExhausted."""
    sides = [partial(evaluator.measure, side, tasks, split="train", purpose="rebase") for side in (head, candidate)]
    before, after = await side_by_side(*sides)
    return before, after


def worsened(wave: Wave, before: Measurement, after: Measurement) -> list[EvidenceCard]:
    """The cards whose own tasks score less with the union than without. A task without a score accuses nobody."""
    return [card for card in wave.cards if (gain := gain_on(own_tasks(card), before, after)) is not None and gain < 0]


def gain_on(task_ids: Iterable[str], before: Measurement, after: Measurement) -> float | None:
    """Sum of the differences of the mean scores on these tasks, or None where no task has a score on both sides."""
    old, new = _means(before), _means(after)
    gains = [new[task_id] - old[task_id] for task_id in task_ids if task_id in old and task_id in new]
    total = sum(gains)
    return (0.0 if abs(total) < EXACT else total) if gains else None


def _means(measurement: Measurement) -> dict[str, float]:
    return {reading.task_id: reading.total / reading.trials for reading in measurement.readings if reading.trials}

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from adescent.errors import OptionError
from adescent.policies.records import Assignment
from adescent.scheduling import DifficultyWeighted, RoundRobin
from adescent.tasks import Score, Task

TASKS = tuple(Task(f"t{number}", "prompt") for number in range(6))
ALL = Assignment(TASKS)


def drawn(draw: Any, times: int, assignment: Assignment = ALL) -> list[str]:
    return [draw.draw(assignment, turn).id for turn in range(times)]


def test_round_robin_goes_through_the_tasks_in_turn() -> None:
    assert drawn(RoundRobin().begin(TASKS, seed=3), 8) == ["t0", "t1", "t2", "t3", "t4", "t5", "t0", "t1"]


def test_units_on_one_assignment_do_not_repeat_each_other() -> None:
    draw = RoundRobin().begin(TASKS, seed=0)
    assert [draw.draw(ALL, turn).id for turn in (0, 0, 0, 1, 1, 1)] == [task.id for task in TASKS]


def test_every_task_of_an_assignment_comes_up_however_irregular_the_turns() -> None:
    draw = RoundRobin().begin(TASKS, seed=0)
    even, odd = Assignment(TASKS[::2], "even"), Assignment(TASKS[1::2], "odd")
    seen = {draw.draw(even if turn % 3 == 0 else odd, turn).id for turn in range(9)}
    assert seen == {task.id for task in TASKS}


def test_a_plan_may_make_its_assignments_anew_each_time() -> None:
    for sampler in (RoundRobin(), DifficultyWeighted()):
        draw = sampler.begin(TASKS, seed=0)
        assert {draw.draw(Assignment(tuple(TASKS)), 0).id for _ in TASKS} == {task.id for task in TASKS}


def test_draws_of_two_runs_are_apart() -> None:
    sampler = RoundRobin()
    assert drawn(sampler.begin(TASKS, 0), 2) == drawn(sampler.begin(TASKS, 0), 2)


def test_untried_tasks_come_first_and_in_order() -> None:
    draw = DifficultyWeighted().begin(TASKS, seed=0)
    first = []
    for turn in range(len(TASKS)):
        task = draw.draw(ALL, turn)
        draw.observe(task, Score(0.5))  # as much to learn as can be, and still untried tasks go first
        first.append(task.id)
    assert first == [task.id for task in TASKS]


def test_difficulty_prefers_what_is_neither_solved_nor_hopeless() -> None:
    draw = DifficultyWeighted().begin(TASKS, seed=0)
    ended = {"t0": 1.0, "t1": 1.0, "t2": 0.0, "t3": 0.0, "t4": 0.5, "t5": 1.0}
    seen: Counter[str] = Counter()
    for turn in range(300):
        task = draw.draw(ALL, turn)
        seen[task.id] += 1
        draw.observe(task, Score(ended[task.id]))
    assert seen.most_common(1)[0][0] == "t4"
    assert seen["t4"] > 150
    assert min(seen.values()) >= 2, "the bonus brings even solved tasks back now and then"


def test_the_bonus_is_what_brings_solved_tasks_back() -> None:
    def least_seen(c: float) -> int:
        draw = DifficultyWeighted(c=c).begin(TASKS, seed=0)
        seen: Counter[str] = Counter({task.id: 0 for task in TASKS})
        for turn in range(300):
            task = draw.draw(ALL, turn)
            seen[task.id] += 1
            draw.observe(task, Score(0.5 if task.id == "t4" else 1.0))
        return min(seen.values())

    assert least_seen(0.0) < least_seen(0.2) < least_seen(5.0)


def test_leases_under_way_spread_out() -> None:
    draw = DifficultyWeighted().begin(TASKS, seed=0)
    for task in TASKS:
        draw.draw(ALL, 0)
        draw.observe(task, Score(0.5))
    assert set(drawn(draw, len(TASKS))) == {task.id for task in TASKS}


@pytest.mark.parametrize("c", [-0.1, float("inf"), float("nan"), True, "0.2"])
def test_the_weight_of_the_bonus_is_a_finite_number(c: Any) -> None:
    with pytest.raises(OptionError, match="c="):
        DifficultyWeighted(c=c)

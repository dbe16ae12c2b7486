from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import ContractError
from adescent.policies.records import Assignment
from adescent.scheduling import ClusterParallel, DataParallel, RoundRobin
from adescent.tasks import Score, Task


def tasks(count: int, clusters: int = 3) -> list[Task]:
    return [Task(f"t{number}", "prompt", {"cluster": f"c{number % clusters}"}) for number in range(count)]


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 20))
def test_shards_of_one_turn_are_disjoint_and_cover_everything(count: int, units: int, turn: int) -> None:
    planner = DataParallel().begin(tasks(count), units, "artifact", 0.999)
    shards = {planner.assign(turn, unit).tasks for unit in range(units)}
    assert Counter(task.id for shard in shards for task in shard) == Counter(task.id for task in tasks(count))
    assert all(shard for shard in shards)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@given(st.integers(1, 30), st.integers(1, 12))
def test_a_unit_sees_every_task_as_shards_rotate(count: int, units: int) -> None:
    planner = DataParallel().begin(tasks(count), units, "artifact", 0.999)
    seen = {task.id for turn in range(units) for task in planner.assign(turn, 0).tasks}
    assert len(seen) == count


@given(st.integers(1, 30), st.integers(1, 12))
def test_with_round_robin_an_epoch_has_every_task_once(count: int, units: int) -> None:
    planner, draw = DataParallel().begin(tasks(count * units), units, "a", 0.999), RoundRobin().begin([], 0)
    drawn = [draw.draw(planner.assign(turn, unit), turn).id for turn in range(count) for unit in range(units)]
    assert Counter(drawn) == Counter(task.id for task in tasks(count * units))


def test_units_are_spread_over_clusters_while_leases_are_under_way() -> None:
    planner = ClusterParallel().begin(tasks(9), 6, "artifact", 0.999)
    assignments = [planner.assign(0, unit) for unit in range(6)]
    assert Counter(assignment.arm for assignment in assignments) == {"c0": 2, "c1": 2, "c2": 2}
    for assignment in assignments:
        assert {task.cluster for task in assignment.tasks} == {assignment.arm}


def test_scores_steer_towards_what_is_unsolved() -> None:
    planner = ClusterParallel().begin(tasks(9), 1, "artifact", 0.999)
    leases: Counter[str] = Counter()
    for turn in range(300):
        assignment = planner.assign(turn, 0)
        leases[assignment.arm] += 1
        planner.observe(assignment, Score(float(assignment.arm != "c1" or leases["c1"] % 2 == 0)))
    assert leases.most_common(1)[0][0] == "c1"


def test_a_lease_without_a_score_is_closed_all_the_same() -> None:
    planner = ClusterParallel().begin(tasks(9), 1, "artifact", 0.999)
    arms = []
    for turn in range(6):
        assignment = planner.assign(turn, 0)
        arms.append(assignment.arm)
        planner.observe(assignment, None)
    assert arms == ["c0", "c1", "c2", "c0", "c1", "c2"]


def test_tasks_without_a_cluster_form_their_own() -> None:
    planner = ClusterParallel().begin([*tasks(2, 1), Task("alone", "prompt")], 2, "artifact", 0.999)
    assert {planner.assign(0, unit).arm for unit in range(2)} == {"c0", ""}


def test_clusters_are_needed() -> None:
    with pytest.raises(ContractError, match=r"meta\['cluster'\]"):
        ClusterParallel().begin([Task("a", "prompt")], 2, "artifact", 0.999)


def test_assignments_are_not_made_anew_for_every_lease() -> None:
    planner = ClusterParallel().begin(tasks(9), 2, "artifact", 0.999)
    seen: list[Assignment] = [planner.assign(turn, 0) for turn in range(30)]
    assert len({id(assignment) for assignment in seen}) == 3

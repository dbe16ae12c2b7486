from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from adescent.errors import ContractError, VoidScore
from adescent.tasks import Score, Splits, Task, Usage, as_score, as_tasks, make_splits

# Scores ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        False,
        "0.9",
        1e308,
        10**400,
        None,
        -0.001,
        1.0001,
        2,
        [0.5],
        0.5j,
    ],
)
def test_what_is_no_score_is_void(raw: Any) -> None:
    with pytest.raises(VoidScore, match=r"return a .*number in \[0, 1\]"):
        as_score(raw)
    with pytest.raises(VoidScore):
        as_score(Score(raw))


@given(st.floats(0.0, 1.0) | st.integers(0, 1) | st.fractions(0, 1))
def test_numbers_from_0_to_1_are_scores(raw: float | int | Fraction) -> None:
    assert as_score(raw) == Score(float(raw))
    assert type(as_score(raw).value) is float
    assert type(as_score(Score(raw)).value) is float  # type: ignore[arg-type]


def test_words_and_numbers_beside_a_score_are_kept() -> None:
    raw = Score(1, "well done", {"length": 3.0})
    assert as_score(raw) == Score(1.0, "well done", {"length": 3.0})
    assert float(raw) == 1.0


# Tasks ----------------------------------------------------------------------------------------------------------------


def test_rows_become_tasks() -> None:
    rows: list[Any] = [{"prompt": "a", "gold": 1}, {"prompt": "b", "id": 7, "cluster": "x"}, Task("own", "c")]
    assert as_tasks(rows) == (Task("0", "a", {"gold": 1}), Task("7", "b", {"cluster": "x"}), Task("own", "c"))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": "a"}], r"tasks\[0\]: a row needs a 'prompt'"),
        ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}], "'a' appears twice"),
        ([{"id": " ", "prompt": "x"}], "is empty"),
        ([Task("", "x")], "is empty"),
        ([Task(3, "x")], "is empty or no string"),  # type: ignore[arg-type]
        ([{"prompt": 3}], "the prompt is a int"),
        (["text"], "a str is neither"),
        ([Task("a", "x", [1])], "meta is a list"),  # type: ignore[arg-type]
        ([{"prompt": "x", "check": print}], r"task '0': meta\.check"),
        ([Task("\ud800", "x")], r"id: a lone surrogate"),
        ([Task("a", "\ud800")], "prompt: a lone surrogate"),
    ],
)
def test_a_bad_row_is_named(rows: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        as_tasks(rows)


@given(st.sampled_from(["id", "prompt", "meta"]))
def test_the_digest_is_of_the_whole_content(changed: str) -> None:
    task = Task("a", "b", {"gold": 1})
    change: dict[str, Any] = {changed: {"gold": 2} if changed == "meta" else "other"}
    other = evolve(task, **change)
    assert other.digest != task.digest == Task("a", "b", {"gold": 1}).digest


def test_a_task_can_be_shown_without_its_answer() -> None:
    task = Task("a", "b", {"gold": 1, "cluster": 3})
    assert task.without(["gold", "other"]) == Task("a", "b", {"cluster": 3})
    assert task.without(["other"]) is task
    assert (task.cluster, Task("a", "b").cluster) == ("3", "")


# Splits ---------------------------------------------------------------------------------------------------------------

CLUSTERED = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(
    lambda sizes: [Task(f"{c}-{n}", "p", {"cluster": f"c{c}"}) for c, size in enumerate(sizes) for n in range(size)]
)
FRACTIONS = st.tuples(st.floats(0.05, 0.9), st.just(0.0) | st.floats(0.05, 0.9)).filter(lambda f: sum(f) < 0.95)


def ids(tasks: tuple[Task, ...]) -> list[str]:
    return [task.id for task in tasks]


def split(tasks: list[Task], fractions: tuple[float, float], seed: int = 0) -> Splits:
    parts = [*(fraction for fraction in fractions if fraction), 1.0 - sum(fractions)]
    assume(len(tasks) * min(parts) >= 1.0)  # else a split may be empty, and that is refused
    return make_splits(tasks, held_out_frac=fractions[0], test_frac=fractions[1], seed=seed)


@given(CLUSTERED, FRACTIONS, st.integers(0, 5))
def test_splits_share_no_task_and_lose_none(tasks: list[Task], fractions: tuple[float, float], seed: int) -> None:
    cut = split(tasks, fractions, seed)
    assert Counter(cut.train + cut.held_out + cut.test) == Counter(tasks)
    for part in (cut.train, cut.held_out, cut.test):
        assert ids(part) == [task.id for task in tasks if task in part], "in the order they came"
    assert cut.train
    assert cut.held_out
    assert bool(cut.test) is (fractions[1] > 0)


@given(CLUSTERED, FRACTIONS, st.integers(0, 5))
def test_a_split_is_a_function_of_the_seed(tasks: list[Task], fractions: tuple[float, float], seed: int) -> None:
    assert split(tasks, fractions, seed) == split(tasks, fractions, seed)


@given(CLUSTERED, st.floats(0.1, 0.9), st.integers(0, 5))
def test_every_cluster_gives_its_share(tasks: list[Task], held_out_frac: float, seed: int) -> None:
    cut = split(tasks, (held_out_frac, 0.0), seed)
    sizes, drawn = Counter(task.cluster for task in tasks), Counter(task.cluster for task in cut.held_out)
    for cluster, size in sizes.items():
        assert abs(drawn[cluster] - size * held_out_frac) <= 1.0 + 1e-9
    assert abs(len(cut.held_out) - len(tasks) * held_out_frac) <= 1.0


def test_another_seed_is_another_split() -> None:
    tasks = [Task(str(number), "p") for number in range(30)]
    assert len({tuple(ids(make_splits(tasks, seed=seed).held_out)) for seed in range(10)}) == 10


def test_clusters_of_one_task_are_drawn_by_chance_and_not_by_name() -> None:
    tasks = [Task(str(number), "p", {"cluster": f"{number:03}"}) for number in range(40)]
    drawn = Counter(task.id for seed in range(50) for task in make_splits(tasks, seed=seed).held_out)
    assert len(drawn) == 40
    assert max(drawn.values()) < 40


def test_splits_given_outright_are_taken_as_they_are() -> None:
    train = [{"prompt": f"train {number}"} for number in range(6)]
    gate = [{"prompt": f"gate {number}"} for number in range(6)]  # the same ids as the train split
    cut = make_splits(train, held_out=gate, test=[{"prompt": "sealed"}])
    assert [len(cut.train), len(cut.held_out), len(cut.test)] == [6, 6, 1]
    assert ids(cut.train) == ids(cut.held_out)
    assert cut.held_out[0].prompt == "gate 0"
    assert cut.train[0].digest != cut.held_out[0].digest


def test_the_held_out_share_is_of_all_tasks_and_not_of_what_the_test_split_left() -> None:
    cut = make_splits([Task(str(number), "p") for number in range(100)], held_out_frac=0.4, test_frac=0.3)
    assert [len(cut.train), len(cut.held_out), len(cut.test)] == [30, 40, 30]


def test_the_digests_of_splits_tell_their_content_apart() -> None:
    tasks = [Task(str(number), "p") for number in range(10)]
    one, other = make_splits(tasks, seed=1), make_splits(tasks, seed=2)
    assert one.digests == make_splits(tasks, seed=1).digests != other.digests
    assert set(one.digests) == {"train", "held_out", "test"}


@pytest.mark.parametrize(
    "options",
    [
        {"held_out_frac": 0.0},
        {"held_out_frac": 1.0},
        {"held_out_frac": float("nan")},
        {"test_frac": -0.1},
        {"test_frac": 1.0},
        {"held_out_frac": 0.6, "test_frac": 0.4},
    ],
)
def test_fractions_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ContractError, match="frac"):
        make_splits([Task(str(number), "p") for number in range(10)], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("tasks", [[], [Task("a", "p")], [Task("a", "p"), Task("b", "p")]])
def test_too_few_tasks_are_refused(tasks: list[Task]) -> None:
    with pytest.raises(ContractError, match="every split needs one"):
        make_splits(tasks, test_frac=0.2)


# Usage ----------------------------------------------------------------------------------------------------------------


@given(*[st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9).map(float))] * 3)
def test_usages_add(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a


@pytest.mark.parametrize("splits", [{"held_out": 1}, {"test": 1}, {"held_out": 1, "test": 2}])
def test_a_task_stands_in_one_split(splits: dict[str, int]) -> None:
    rows = [{"id": f"t{number}", "prompt": "?", "gold": number} for number in range(10)]
    given: dict[str, Any] = {name: rows[:number] for name, number in splits.items()}
    with pytest.raises(ContractError, match="only"):
        make_splits(rows, **given)


def test_splits_may_use_the_same_ids_for_other_tasks() -> None:
    cut = make_splits([{"prompt": "a"}, {"prompt": "b"}], held_out=[{"prompt": "c"}], test=[{"prompt": "d"}])
    assert [task.id for task in (*cut.train, *cut.held_out, *cut.test)] == ["0", "1", "0", "0"]

"""What is worked on and how good it went: tasks, scores, and the three splits that must never mix."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any, Literal

from attrs import evolve, field, frozen

from adescent.canonical import check_json, digest_of
from adescent.checks import is_number, shown
from adescent.errors import ContractError, VoidScore

__all__ = ["Score", "Split", "Splits", "Task", "Usage", "as_score", "as_tasks", "make_splits"]

Split = Literal["train", "held_out", "test"]


@frozen
class Task:
    """One thing to solve.

    ``id`` is unique within its split; ``meta`` is JSON and holds what a scorer needs (``gold``) and what scheduling
    may use (``cluster``). The identity of a task everywhere is its split and its ``digest``.
    """

    id: str
    prompt: str
    meta: Mapping[str, Any] = field(factory=dict, hash=False)

    @cached_property
    def digest(self) -> str:
        """Content hash of id, prompt and meta. Raises ContractError naming a meta field that is not JSON."""
        check_json(self.id, f"task {self.id!a}: id")
        check_json(self.prompt, f"task {self.id!r}: prompt")
        check_json(self.meta, f"task {self.id!r}: meta")
        return digest_of([self.id, self.prompt, self.meta])

    @property
    def cluster(self) -> str:
        """``meta["cluster"]`` as text, or ``""``: what splits are stratified by and cluster plans draw from."""
        return str(self.meta.get("cluster", ""))

    def without(self, keys: Iterable[str]) -> Task:
        """The same task with these keys of ``meta`` left out: what ``run`` gets to see."""
        hidden = frozenset(keys)
        if hidden.isdisjoint(self.meta):
            return self
        return Task(self.id, self.prompt, {k: v for k, v in self.meta.items() if k not in hidden})


@frozen
class Score:
    """How good an output is: ``value`` in [0, 1], words for the proposer, and numbers for whoever watches."""

    value: float
    feedback: str = ""
    metrics: Mapping[str, float] = field(factory=dict, hash=False)

    def __float__(self) -> float:
        return float(self.value)


def as_score(raw: object) -> Score:
    """What a scorer returned as a `Score` whose value is a float.

    Scores are finite real numbers in [0, 1] (numpy's scalars are some too); NaN, infinities, bool, text, None and
    numbers out of range raise VoidScore.
    """
    given: object = raw.value if isinstance(raw, Score) else raw
    if isinstance(given, bool) or not isinstance(given, (float, Real)):
        raise VoidScore(f"the scorer returned {shown(given)} ({type(given).__name__}); return a number in [0, 1].")
    try:
        value = float(given)
    except OverflowError:
        value = math.inf
    if not 0.0 <= value <= 1.0:  # false for NaN too
        raise VoidScore(f"the scorer returned {value!r}; return a finite number in [0, 1].")
    if isinstance(raw, Score):
        return raw if type(raw.value) is float else evolve(raw, value=value)
    return Score(value)


@frozen
class Usage:
    """What something cost: ``calls`` of actors, ``tokens``, US dollars. Usages add."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.calls + other.calls, self.tokens + other.tokens, self.usd + other.usd)


@frozen
class Splits:
    """Tasks by purpose: ``train`` for rollouts, ``held_out`` for the gate, ``test`` sealed until the end."""

    train: tuple[Task, ...]
    held_out: tuple[Task, ...]
    test: tuple[Task, ...] = ()

    @cached_property
    def digests(self) -> dict[str, str]:
        """One content hash a split: what a run directory remembers of its data."""
        return {name: digest_of([t.digest for t in getattr(self, name)]) for name in ("train", "held_out", "test")}


def as_tasks(rows: Iterable[Task | Mapping[str, Any]], what: str = "tasks") -> tuple[Task, ...]:
    """Tasks from tasks or rows (``prompt`` required, ``id`` defaults to the index, the rest is meta).

    Raises ContractError for duplicate or empty ids, rows without a prompt and meta that is not JSON.
    """
    if not isinstance(rows, Iterable):
        raise ContractError(f"{what} is a {type(rows).__name__}: give a list of tasks, or of rows with a 'prompt'.")
    tasks = tuple(_as_task(row, index, what) for index, row in enumerate(rows))
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise ContractError(f"{what}: the id {task.id!r} appears twice; ids are unique within a split.")
        seen.add(task.id)
        _ = task.digest
    return tasks


def _as_task(row: Task | Mapping[str, Any], index: int, what: str) -> Task:
    if isinstance(row, Task):
        task = row
    elif isinstance(row, Mapping):
        if "prompt" not in row:
            raise ContractError(f"{what}[{index}]: a row needs a 'prompt'; it has {sorted(map(str, row))}.")
        rest = {key: value for key, value in row.items() if key not in ("id", "prompt")}
        task = Task(str(row.get("id", index)), row["prompt"], rest)
    else:
        raise ContractError(f"{what}[{index}]: a {type(row).__name__} is neither a Task nor a row with a 'prompt'.")
    if not isinstance(task.id, str) or not task.id.strip():
        raise ContractError(f"{what}[{index}]: the id {task.id!r} is empty or no string; give every task a name.")
    if not isinstance(task.prompt, str):
        raise ContractError(f"task {task.id!r}: the prompt is a {type(task.prompt).__name__}, not a string.")
    if not isinstance(task.meta, Mapping):
        raise ContractError(f"task {task.id!r}: meta is a {type(task.meta).__name__}, not a mapping.")
    return task


def make_splits(
    tasks: Iterable[Task | Mapping[str, Any]],
    *,
    held_out_frac: float = 0.4,
    test_frac: float = 0.0,
    held_out: Iterable[Task | Mapping[str, Any]] | None = None,
    test: Iterable[Task | Mapping[str, Any]] | None = None,
    seed: int = 0,
) -> Splits:
    """Cut ``tasks`` into splits, seeded, stratified by ``meta["cluster"]`` where tasks have one.

    ``held_out_frac`` lies in (0, 1), ``test_frac`` in [0, 1), their sum below 1. A split given outright is taken as it
    is and nothing is cut for it. Raises ContractError when a fraction is out of range, a split would be empty, or a
    task stands in two of them.
    """
    rest: Sequence[Task] = as_tasks(tasks)
    gate = None if held_out is None else as_tasks(held_out, "held_out")
    sealed = None if test is None else as_tasks(test, "test")
    _check_fractions(held_out_frac, test_frac)
    rng = random.Random(f"{seed}:splits")
    if sealed is None:
        sealed, rest = _cut(rest, test_frac, rng)
    if gate is None:
        share = held_out_frac / (1.0 - (test_frac if test is None else 0.0))
        gate, rest = _cut(rest, share, rng)
    if not rest or not gate or (test_frac > 0 and not sealed):
        raise ContractError(
            f"{len(rest)} train, {len(gate)} held-out and {len(sealed)} test tasks: every split needs one. "
            "Give more tasks, or pass held_out= (and test=) outright."
        )
    splits = Splits(tuple(rest), tuple(gate), tuple(sealed))
    _check_disjoint(splits)
    return splits


def _check_disjoint(splits: Splits) -> None:
    """A task that is learnt from must not be what decides or what reports. Splits that were given may overlap."""
    seen: dict[str, str] = {}
    for name in ("train", "held_out", "test"):
        for task in getattr(splits, name):
            other = seen.setdefault(task.digest, name)
            if other != name:
                raise ContractError(
                    f"task {task.id!r} is in the {other} split and in the {name} split: give each task to one of "
                    "tasks=, held_out= and test= only."
                )


def _check_fractions(held_out_frac: float, test_frac: float) -> None:
    for name, share in (("held_out_frac", held_out_frac), ("test_frac", test_frac)):
        if not is_number(share):
            raise ContractError(f"{name}={shown(share)} must be a number.")
    if not 0.0 < held_out_frac < 1.0:
        raise ContractError(f"held_out_frac={shown(held_out_frac)} must lie in (0, 1).")
    if not 0.0 <= test_frac < 1.0:
        raise ContractError(f"test_frac={shown(test_frac)} must lie in [0, 1).")
    if held_out_frac + test_frac >= 1.0:
        raise ContractError(f"held_out_frac + test_frac = {held_out_frac + test_frac} leaves nothing to train on.")


def _cut(tasks: Sequence[Task], share: float, rng: random.Random) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Draw ``share`` of every cluster; the drawn and the rest, each in the tasks' own order."""
    strata: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        strata.setdefault(task.cluster, []).append(index)
    wanted = _quotas({name: len(members) for name, members in strata.items()}, share, rng)
    drawn: set[int] = set()
    for name, members in strata.items():
        drawn.update(rng.sample(members, wanted[name]))
    return (
        tuple(task for index, task in enumerate(tasks) if index in drawn),
        tuple(task for index, task in enumerate(tasks) if index not in drawn),
    )


def _quotas(sizes: Mapping[str, int], share: float, rng: random.Random) -> dict[str, int]:
    """Largest remainder: whole numbers a stratum that add up to the share of all, at least one where any is wanted.

    Chance decides between equal remainders, or strata of one task each would be drawn by the order of their names.
    """
    total = sum(sizes.values())
    goal = round(total * share)
    if share > 0 and total > 1:
        goal = min(max(goal, 1), total - 1)
    exact = {name: size * share for name, size in sizes.items()}
    quotas = {name: int(value) for name, value in exact.items()}
    by_chance = rng.sample(list(sizes), len(sizes))
    by_remainder = sorted(by_chance, key=lambda name: quotas[name] - exact[name])
    missing = goal - sum(quotas.values())
    for name in by_remainder[: max(0, missing)]:
        quotas[name] += 1
    return quotas

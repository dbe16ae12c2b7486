"""What evolves: artifacts, the diffs between them, and the evidence a diff carries.

An artifact's state is text by key. A diff sets and deletes keys; it is the unit that is merged, and its key space is
the space the merge works in. All records are values: nothing here is ever changed in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol

from attrs import evolve, field, frozen

from adescent.canonical import digest_of
from adescent.checks import need_share, shown
from adescent.errors import ContractError
from adescent.tasks import Score, Task, Usage
from adescent.textmerge import merge_lines

__all__ = [
    "ARTIFACT_ID",
    "Contract",
    "Diff",
    "EvidenceCard",
    "Evolvable",
    "State",
    "Trajectory",
    "VersionVector",
    "check_artifact_id",
    "contradicts",
    "difference",
]

State = Mapping[str, str]
Ops = Mapping[str, str | None]

ARTIFACT_ID = "[A-Za-z0-9][A-Za-z0-9_.-]*"
"""What the id of an artifact is made of, as a regular expression: it becomes a file name and a word in a message."""
_ARTIFACT_ID = re.compile(ARTIFACT_ID)


def check_artifact_id(value: object) -> None:
    """Raise ContractError for what cannot be the id of an artifact."""
    if not isinstance(value, str) or not _ARTIFACT_ID.fullmatch(value):
        raise ContractError(f"the artifact id {shown(value)} must match {ARTIFACT_ID}.")


def _copy_versions(versions: Mapping[str, int]) -> dict[str, int]:
    for artifact_id, version in versions.items():
        if type(version) is not int or version < 0:
            raise ContractError(f"the version of {artifact_id!r} is {version!r}; versions are whole numbers from 0.")
    return {artifact_id: version for artifact_id, version in versions.items() if version}


# Mappings that are known to hold what they should, so that a large state is checked and copied once.


class _CheckedState(dict[str, str]):
    """Text under text keys. Strategies and proposers get it, and what they wrote into it nobody would have measured."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ContractError("a state is never changed in place: say what should change in a Diff.")

    _refused: Any = _refuse
    __setitem__ = __delitem__ = __ior__ = _refused
    clear = pop = popitem = setdefault = update = _refused

    def __reduce__(self) -> tuple[Any, ...]:
        return _CheckedState, (dict(self),)


class _CheckedOps(dict[str, str | None]):
    """Text or None under text keys: no state."""


def _checked_state(state: State) -> State:
    if type(state) is _CheckedState:
        return state
    if not isinstance(state, Mapping):
        raise ContractError(f"a state is a mapping of text keys to texts, and this one is a {type(state).__name__}.")
    for key, text in state.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ContractError(f"state[{key!r}] is a {type(text).__name__}; a state holds text under text keys.")
    return _CheckedState(state)


def _checked_ops(ops: Ops) -> Ops:
    if type(ops) is _CheckedOps:
        return ops
    if not isinstance(ops, Mapping):
        raise ContractError(f"ops map text keys to texts or to None, and these are a {type(ops).__name__}.")
    for key, text in ops.items():
        if not isinstance(key, str) or not (text is None or isinstance(text, str)):
            raise ContractError(f"ops[{key!r}] is a {type(text).__name__}; a diff sets text keys to text or to None.")
    return _CheckedOps(ops)


def _text(_: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str):
        raise ContractError(f"Diff({attribute.name}={shown(value)}) must be a text.")


def _texts(_: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
        raise ContractError(f"Diff({attribute.name}={shown(value)}) must be a tuple of texts.")


@frozen
class VersionVector(Mapping[str, int]):
    """Artifact id → version, sparse: an artifact that is not named is at version 0, and one at 0 is not listed.

    ``a | b`` is the pointwise maximum; under it version vectors are a join-semilattice with the empty one at its
    bottom. Raises ContractError for a version that is no whole number from 0.
    """

    versions: Mapping[str, int] = field(factory=dict, converter=_copy_versions)

    def __hash__(self) -> int:
        return hash(frozenset(self.versions.items()))

    def __contains__(self, artifact_id: object) -> bool:
        return artifact_id in self.versions

    def __getitem__(self, artifact_id: str) -> int:
        return self.versions.get(artifact_id, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.versions)

    def __len__(self) -> int:
        return len(self.versions)

    def __or__(self, other: VersionVector) -> VersionVector:
        return VersionVector({key: max(self[key], other[key]) for key in {**self.versions, **other.versions}})

    def with_version(self, artifact_id: str, version: int) -> VersionVector:
        """The same vector with one artifact at ``version``."""
        return VersionVector({**self.versions, artifact_id: version})

    def staleness(self, base: VersionVector, touched: Iterable[str]) -> int:
        """How many versions ``base`` lies behind this head: the maximum over the artifacts ``touched``.

        Raises ContractError when the base is ahead of the head, which no snapshot can be.
        """
        lags = [self[name] - base[name] for name in touched]
        if any(lag < 0 for lag in lags):
            raise ContractError(f"a card's base {dict(base)} is ahead of the head {dict(self)}; take a new snapshot.")
        return max(lags, default=0)


@frozen
class Contract:
    """What an artifact promises to those who use it, stored with it; another ``major`` must be re-registered."""

    input_schema: str = ""
    output_schema: str = ""
    side_effects: str = ""
    major: int = 1


@frozen
class Diff:
    """A change to one artifact: ``ops`` sets a key to a text, or deletes it where the value is None.

    ``id`` is a hash of target, ops and flags unless given: the same edit has the same name, whoever made it.
    ``adapts`` names artifacts this diff brings in line with a contract that broke; ``origin`` says where it came from.
    """

    target: str = field(validator=_text)
    ops: Ops = field(hash=False, converter=_checked_ops)
    contract_breaking: bool = False
    adapts: tuple[str, ...] = field(default=(), validator=_texts)
    origin: str = field(default="", eq=False, validator=_text)
    id: str = field(default="", eq=False, validator=_text)

    def __attrs_post_init__(self) -> None:
        if not self.id:
            named = [self.target, sorted(self.ops.items()), self.contract_breaking, list(self.adapts)]
            object.__setattr__(self, "id", digest_of(named)[:16])

    def size(self) -> int:
        """Number of keys the diff sets or deletes."""
        return len(self.ops)


def contradicts(a: Diff, b: Diff) -> bool:
    """Whether both change one key of one artifact to different values. The same value twice is a duplicate."""
    if a.target != b.target:
        return False
    small, large = (a.ops, b.ops) if len(a.ops) <= len(b.ops) else (b.ops, a.ops)
    return any(key in large and large[key] != value for key, value in small.items())


def difference(old: State, new: State) -> dict[str, str | None]:
    """The ops that turn ``old`` into ``new``, deletions included."""
    ops: dict[str, str | None] = {key: value for key, value in new.items() if old.get(key) != value}
    ops.update((key, None) for key in old if key not in new)
    return ops


def changed(state: State, ops: Ops) -> State:
    """``state`` after ``ops``: kept keys keep their place, new ones come last in the order of the ops."""
    merged: dict[str, str] = dict(_checked_state(state))
    for key, value in _checked_ops(ops).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return _CheckedState(merged)


class _Measured(Protocol):
    @property
    def rate(self) -> float | None: ...


class _CheapMeasure(Protocol):
    """A verifier, as far as an artifact needs one."""

    async def rule(self, artifact: Evolvable) -> _Measured: ...


class _FullMeasure(Protocol):
    """An evaluation group, as far as an artifact needs one."""

    async def measure(
        self, artifact: Evolvable, tasks: Sequence[Task], *, split: Literal["held_out"], purpose: Literal["gate"]
    ) -> _Measured: ...


@frozen
class Evolvable:
    """One unit of evolution: text by key, a version, a contract, and how far a change to it reaches.

    ``blast_radius`` in [0, 1] is the share of whatever depends on the artifact that a bad change would hurt.
    ``version`` counts commits and is 0 before the first.
    """

    id: str = field()
    state: State = field(factory=dict, hash=False, converter=_checked_state)
    version: int = field(default=0)
    contract: Contract = Contract()
    blast_radius: float = field(default=0.2)

    @id.validator
    def _check_id(self, _: Any, value: str) -> None:
        check_artifact_id(value)

    @blast_radius.validator
    def _check_radius(self, _: Any, value: float) -> None:
        need_share("blast_radius", value, ContractError)

    @cached_property
    def digest(self) -> str:
        """Content hash of the state in its own order (order decides what is rendered)."""
        return digest_of(list(self.state.items()))

    def diff(self, other: Evolvable) -> Diff:
        """The diff that turns this state into that of ``other``: ``a.apply(a.diff(b)).state == b.state``."""
        return Diff(self.id, difference(self.state, other.state))

    def apply(self, diff: Diff) -> Evolvable:
        """A new artifact of the same version with the diff applied; a breaking diff raises the contract's major.

        Raises ContractError when the diff is for another artifact.
        """
        if diff.target != self.id:
            raise ContractError(f"a diff for {diff.target!r} cannot be applied to {self.id!r}.")
        contract = evolve(self.contract, major=self.contract.major + 1) if diff.contract_breaking else self.contract
        return evolve(self, state=changed(self.state, diff.ops), contract=contract)

    async def cheap_eval(self, card: EvidenceCard, verifier: _CheapMeasure) -> float | None:
        """Mean score in [0, 1] with the card's diff on the verifier's cheap subset; None where there is none."""
        return (await verifier.rule(self.apply(card.diff))).rate

    async def full_eval(self, tasks: Sequence[Task], evaluator: _FullMeasure) -> float | None:
        """Mean score in [0, 1] on held-out ``tasks``; None where there is none. Raises BudgetExhausted."""
        return (await evaluator.measure(self, tasks, split="held_out", purpose="gate")).rate


@frozen
class Trajectory:
    """One attempt at a task: what came out, and what the scorer said."""

    task: Task
    output: Any = field(hash=False)
    score: Score


@frozen
class EvidenceCard:
    """A diff with what speaks for it.

    ``base_version`` is the head the worker saw, ``base_values`` the values there of the keys the diff changes (None
    where a key did not exist). ``before_after_delta`` in [-1, 1] is how much the worker's own task gained, where the
    worker checked. ``rival_keys`` are keys whose head moved on in lines the diff changes too: such a card keeps its
    whole value and competes with the head instead of being merged into it.
    """

    diff: Diff
    base_version: VersionVector
    base_values: Mapping[str, str | None] = field(factory=dict, hash=False, converter=_checked_ops)
    touched: tuple[str, ...] = ()
    trajectories: tuple[Trajectory, ...] = ()
    before_after_delta: float = 0.0
    cost: Usage = Usage()
    rival_keys: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Content hash of diff, base and the tasks it was learnt from; carries nothing of who made it."""
        tasks = [trajectory.task.id for trajectory in self.trajectories]
        return digest_of([self.diff.id, sorted(self.base_version.items()), tasks])[:16]

    @property
    def rival(self) -> bool:
        """Whether the diff overwrites text that is newer than its base."""
        return bool(self.rival_keys)

    def rebased_onto(self, head: Evolvable) -> EvidenceCard:
        """The same edit as a change to ``head``.

        A key that did not change since the base takes the proposed value. One that did is merged three-way by lines;
        where that conflicts the proposed value is kept whole and the key is listed in ``rival_keys``, where it stays
        however often the card is rebased. Ops the head already holds are left out.

        Raises ContractError when ``head`` is another artifact than the diff is for.
        """
        if head.id != self.diff.target:
            raise ContractError(f"a card about {self.diff.target!r} cannot be rebased onto {head.id!r}.")
        ops: dict[str, str | None] = {}
        rivals: list[str] = []
        for key, proposed in self.diff.ops.items():
            current, base = head.state.get(key), self.base_values.get(key)
            # Once a rival, always one: its base was replaced by a value it does not descend from.
            merged = None if key in self.rival_keys else _merge_value(base, current, proposed)
            value = proposed if merged is None else merged.value
            if value == current:
                continue
            ops[key] = value
            if merged is None:
                rivals.append(key)
        return evolve(
            self,
            diff=evolve(self.diff, ops=ops, id=""),
            base_version=self.base_version.with_version(head.id, head.version),
            base_values={key: head.state.get(key) for key in ops},
            rival_keys=tuple(rivals),
        )


@frozen
class _Merged:
    value: str | None


def _merge_value(base: str | None, current: str | None, proposed: str | None) -> _Merged | None:
    """Three-way merge of one value, where the value None means "no such key"; None where the two edits overlap."""
    if current in (base, proposed):
        return _Merged(proposed)
    if base is None or current is None or proposed is None:
        return None
    text = merge_lines(base, current, proposed).text
    return None if text is None else _Merged(text)

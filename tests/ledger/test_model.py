"""Both ledgers against a model of a few lines, through any order of operations."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adescent.errors import CASConflict, ContractError, UnknownArtifact
from adescent.evolvable import Contract, Evolvable
from adescent.ledger import GitLedger, MemoryLedger, packing
from adescent.ledger.versioned import VersionedLedger

IDS = st.sampled_from(["a", "b", "HEAD", "a.lock"])
STATES = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from(["", "1", "two\nlines"]), max_size=3)
BASES = st.sampled_from([0, 0, 0, 1, -1])
"""How far a base version lies from the head."""


class Ledgers(RuleBasedStateMachine):
    """A repository and its twin do the same, and what they hold is what the model says."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ledger-model-")
        self.ledgers: list[VersionedLedger] = [GitLedger(f"{self.folder}/git", durability="fast"), MemoryLedger()]
        self.dev: dict[str, list[Evolvable]] = {}
        self.stable: dict[str, int] = {}

    def teardown(self) -> None:
        self.ledgers[0].close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[VersionedLedger], Any]) -> Any:
        """What both say; an error is an answer too, and must be the same one."""
        answers = []
        for ledger in self.ledgers:
            try:
                answers.append(call(ledger))
            except (CASConflict, ContractError, UnknownArtifact) as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]
        return answers[0]

    def heads(self) -> dict[str, Evolvable]:
        return {name: versions[-1] for name, versions in self.dev.items()}

    def append(self, artifact: Evolvable) -> Evolvable:
        versions = self.dev.setdefault(artifact.id, [])
        versions.append(evolve(artifact, version=len(versions) + 1))
        return versions[-1]

    @rule(name=IDS, state=STATES, major=st.sampled_from([1, 1, 2]))
    def register(self, name: str, state: dict[str, str], major: int) -> None:
        artifact = Evolvable(name, state, contract=Contract(major=major))
        answer = self.both(lambda ledger: ledger.register(artifact))
        held = self.heads().get(name)
        if held is None:
            assert answer == self.append(artifact)
            self.stable[name] = 1
        elif held.contract.major != major:
            assert answer == self.append(artifact)
        elif list(held.state.items()) == list(state.items()):
            assert answer == held
        else:
            assert answer[0] is ContractError

    @rule(name=IDS, state=STATES, off=BASES)
    def commit(self, name: str, state: dict[str, str], off: int) -> None:
        held = self.heads().get(name, Evolvable(name))
        artifact = evolve(held, state=state)
        answer = self.both(lambda ledger: ledger.commit(artifact, held.version + off))
        if name not in self.dev:
            assert answer[0] is UnknownArtifact
        elif off:
            assert answer[0] is CASConflict
        else:
            assert answer == self.append(artifact)

    @precondition(lambda self: len(self.dev) > 1)
    @rule(data=st.data(), off=BASES)
    def commit_atomic(self, data: st.DataObject, off: int) -> None:
        heads = self.heads()
        names = data.draw(st.lists(st.sampled_from(sorted(heads)), min_size=2, unique=True))
        artifacts = [evolve(heads[name], state=data.draw(STATES)) for name in names]
        bases = {name: heads[name].version + (off if name == names[-1] else 0) for name in names}
        answer = self.both(lambda ledger: ledger.commit_atomic(artifacts, bases))
        if off:
            assert answer[0] is CASConflict
        else:
            assert answer == tuple(self.append(artifact) for artifact in artifacts)

    @precondition(lambda self: self.dev)
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.dev)))
        version = data.draw(st.integers(1, len(self.dev[name])))
        assert self.both(lambda ledger: ledger.promote(name, version)) == self.dev[name][version - 1]
        self.stable[name] = version

    @precondition(lambda self: self.dev)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.dev)))
        version = data.draw(st.integers(1, len(self.dev[name])))
        old, held = self.dev[name][version - 1], self.dev[name][-1]
        answer = self.both(lambda ledger: ledger.rollback(name, version))
        if old.contract.major != held.contract.major:
            assert answer[0] is ContractError
        else:
            assert answer == self.append(old)

    @rule()
    def close_and_open_again(self) -> None:
        self.ledgers[0].close()
        self.ledgers[0] = GitLedger(f"{self.folder}/git", durability="fast")

    @invariant()
    def they_hold_what_the_model_says(self) -> None:
        for ledger in self.ledgers:
            assert ledger.snapshot() == self.heads()
            stable = {name: self.dev[name][version - 1] for name, version in self.stable.items()}
            assert ledger.snapshot("stable") == stable
            for name, versions in self.dev.items():
                assert list(ledger.head(name).state) == list(versions[-1].state)
                assert [entry.version for entry in ledger.history(name)] == list(range(len(versions), 0, -1))

    @invariant()
    def their_trees_are_the_same(self) -> None:
        git, memory = (
            [(entry.tree, entry.artifact_id, entry.version) for entry in ledger.log()] for ledger in self.ledgers
        )
        assert git == memory


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps, and yet packs are put together between them."""
    monkeypatch.setattr(packing, "GATHERED_COMMITS", 3)
    monkeypatch.setattr(packing, "GATHERED_PACKS", 2)
    monkeypatch.setattr(packing, "LEVELS", ((9, 128 * 2**10), (30, 2**20), (60, 8 * 2**20)))


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)

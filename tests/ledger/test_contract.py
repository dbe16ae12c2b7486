"""What every ledger does, whatever it stands on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from adescent.errors import CASConflict, ContractError, GovernanceError, UnknownArtifact
from adescent.evolvable import Contract, Evolvable, VersionVector
from adescent.governance import FROZEN_IDS
from adescent.ledger import GitLedger, MemoryLedger
from adescent.ledger.versioned import VersionedLedger
from adescent.policies import Ledger

RULES = Evolvable("rules", {"b": "second comes first", "a": "text"}, contract=Contract("x", "y", "z"), blast_radius=0.4)
PROMPT = Evolvable("prompt", {"text": "Answer."})


@pytest.fixture(params=["memory", "durable", "fast"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VersionedLedger]:
    made = MemoryLedger() if request.param == "memory" else GitLedger(tmp_path / "ledger", durability=request.param)
    with closing(made):
        yield made


def changed(artifact: Evolvable, **state: str) -> Evolvable:
    return evolve(artifact, state={**artifact.state, **state})


def test_it_is_a_ledger(ledger: VersionedLedger) -> None:
    as_protocol: Ledger = ledger
    assert as_protocol.blocking == bool(as_protocol.location)


def test_an_empty_ledger_holds_nothing(ledger: VersionedLedger) -> None:
    assert ledger.snapshot() == ledger.snapshot("stable") == {}
    assert ledger.versions() == VersionVector()
    assert ledger.log() == ()
    for ask in (lambda: ledger.head("rules"), lambda: ledger.history("rules"), lambda: ledger.commit(RULES, 0)):
        with pytest.raises(UnknownArtifact, match="register it first"):
            ask()


def test_register_gives_version_1_on_both_branches(ledger: VersionedLedger) -> None:
    assert ledger.register(evolve(RULES, version=7)) == evolve(RULES, version=1)
    for branch in ("dev", "stable"):
        held = ledger.head("rules", branch)
        assert held == evolve(RULES, version=1)
        assert list(held.state) == ["b", "a"], "a state keeps its order"
        assert dict(ledger.versions(branch)) == {"rules": 1}


def test_register_of_the_same_again_changes_nothing(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    committed = ledger.commit(changed(RULES, a="new"), 1)
    assert ledger.register(changed(RULES, a="new")) == committed
    assert len(ledger.log()) == 2


@pytest.mark.parametrize(
    "other",
    [
        changed(RULES, a="new"),
        evolve(RULES, state={"a": "text", "b": "second comes first"}),
        evolve(RULES, blast_radius=0.1),
    ],
)
def test_register_of_another_content_says_to_commit(ledger: VersionedLedger, other: Evolvable) -> None:
    ledger.register(RULES)
    with pytest.raises(ContractError, match=re.escape("commit(artifact, 1)")):
        ledger.register(other)


def test_register_under_another_major_is_the_next_version(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    breaking = evolve(RULES, contract=Contract(major=2))
    with pytest.raises(ContractError, match="register"):
        ledger.commit(breaking, 1)
    assert ledger.register(breaking) == evolve(breaking, version=2)
    assert ledger.head("rules", "stable").version == 1
    assert ledger.promote("rules", 2).contract.major == ledger.head("rules", "stable").contract.major == 2
    with pytest.raises(ContractError, match="major"):
        ledger.rollback("rules", 1)


def test_commit_is_the_next_version_on_dev_only(ledger: VersionedLedger) -> None:
    base = ledger.register(RULES)
    committed = ledger.commit(changed(base, a="new"), 1)
    assert committed == ledger.head("rules") == evolve(changed(base, a="new"), version=2)
    assert ledger.head("rules", "stable") == base


def test_a_lost_race_is_a_conflict_that_names_both_versions(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    ledger.commit(changed(RULES, a="first"), 1)
    for base in (0, 1, 3):
        with pytest.raises(CASConflict) as refused:
            ledger.commit(changed(RULES, a="second"), base)
        assert (refused.value.artifact_id, refused.value.expected, refused.value.found) == ("rules", base, 2)
    assert ledger.head("rules").state["a"] == "first"


def test_another_artifacts_commit_is_no_conflict(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    ledger.register(PROMPT)
    ledger.commit(changed(PROMPT, text="Think."), 1)
    ledger.commit(changed(RULES, a="new"), 1)
    assert dict(ledger.versions()) == {"rules": 2, "prompt": 2}
    assert dict(ledger.versions("stable")) == {"rules": 1, "prompt": 1}


def test_a_snapshot_is_of_one_moment_and_read_only(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    before = ledger.snapshot()
    ledger.commit(changed(RULES, a="new"), 1)
    assert before["rules"].version == 1
    assert ledger.snapshot()["rules"].version == 2
    with pytest.raises(TypeError):
        before["prompt"] = PROMPT  # type: ignore[index]


def test_commit_atomic_takes_all(ledger: VersionedLedger) -> None:
    both = [ledger.register(RULES), ledger.register(PROMPT)]
    committed = ledger.commit_atomic(
        [changed(both[0], a="new"), changed(both[1], text="Think.")],
        {"rules": 1, "prompt": 1, "other": 9},
        message="two",
    )
    assert ledger.snapshot() == {artifact.id: artifact for artifact in committed}
    assert ledger.log(2)[0].id == ledger.log(2)[1].id
    assert {(entry.artifact_id, entry.version) for entry in ledger.log(2)} == {("rules", 2), ("prompt", 2)}


def test_commit_atomic_takes_nothing_when_one_has_moved(ledger: VersionedLedger) -> None:
    both = [ledger.register(RULES), ledger.register(PROMPT)]
    ledger.commit(changed(PROMPT, text="Think."), 1)
    before = ledger.snapshot()
    with pytest.raises(CASConflict):
        ledger.commit_atomic([changed(both[0], a="new"), changed(both[1], text="Guess.")], {"rules": 1, "prompt": 1})
    with pytest.raises(UnknownArtifact):
        ledger.commit_atomic(
            [changed(both[0], a="new"), evolve(PROMPT, id="unheard-of")], {"rules": 1, "unheard-of": 0}
        )
    assert ledger.snapshot() == before


@pytest.mark.parametrize(
    ("artifacts", "bases"), [([], {}), ([RULES, RULES], {"rules": 1}), ([RULES, PROMPT], {"rules": 1})]
)
def test_commit_atomic_refuses_what_is_no_batch(
    ledger: VersionedLedger, artifacts: list[Evolvable], bases: dict[str, int]
) -> None:
    ledger.register(RULES)
    with pytest.raises(ContractError):
        ledger.commit_atomic(artifacts, bases)
    assert dict(ledger.versions()) == {"rules": 1}


def test_promote_moves_exactly_that_version(ledger: VersionedLedger) -> None:
    for artifact in (RULES, PROMPT):
        ledger.register(artifact)
    for version in (1, 2, 3):
        ledger.commit(changed(RULES, a=f"text {version}"), version)
    assert ledger.promote("rules", 3) == ledger.head("rules", "stable") == evolve(changed(RULES, a="text 2"), version=3)
    assert ledger.head("rules").version == 4
    assert ledger.promote("rules", 2).version == ledger.head("rules", "stable").version == 2
    assert ledger.promote("rules", 4) == ledger.head("rules") == ledger.head("rules", "stable")
    assert ledger.head("prompt", "stable").version == 1


@pytest.mark.parametrize("version", [-1, 0, 2, 10**9])
def test_a_version_that_never_was_is_unknown(ledger: VersionedLedger, version: int) -> None:
    ledger.register(RULES)
    for ask in (
        lambda: ledger.promote("rules", version),
        lambda: ledger.rollback("rules", version),
        lambda: ledger.diff("rules", 1, version),
    ):
        with pytest.raises(UnknownArtifact, match=f"no version {version} of 'rules'"):
            ask()


def test_rollback_commits_the_old_state_as_a_new_version(ledger: VersionedLedger) -> None:
    first = ledger.register(RULES)
    ledger.commit(changed(RULES, a="worse"), 1)
    back = ledger.rollback("rules", 1)
    assert back == ledger.head("rules") == evolve(first, version=3)
    assert [entry.version for entry in ledger.history("rules")] == [3, 2, 1]
    assert ledger.history("rules")[0].message == "roll rules back to version 1"
    assert ledger.rollback("rules", 2, message="on second thoughts").state["a"] == "worse"
    assert ledger.history("rules")[0].message == "on second thoughts"


def test_history_log_and_diff_read_back_what_was_committed(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    ledger.register(PROMPT)
    decision = {"Decision": "committed", "P": "0.97", "Cards": "3f, 8a"}
    ledger.commit(changed(RULES, a="new", c="more"), 1, message="Add a rule\n\nAnd say why.", decision=decision)
    ledger.commit(changed(PROMPT, text="Think."), 1)
    newest = ledger.history("rules")[0]
    assert (newest.version, newest.message, newest.decision) == (2, "Add a rule\n\nAnd say why.", decision)
    assert [(entry.artifact_id, entry.version) for entry in ledger.log()] == [
        ("prompt", 2),
        ("rules", 2),
        ("prompt", 1),
        ("rules", 1),
    ]
    assert len(ledger.log(3)) == 3
    assert ledger.diff("rules", 1, 2).ops == {"a": "new", "c": "more"}
    assert ledger.diff("rules", 2, 1).ops == {"a": "text", "c": None}


def test_a_promotion_is_no_part_of_devs_history(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    ledger.commit(changed(RULES, a="new"), 1)
    before = ledger.log()
    ledger.promote("rules", 2)
    assert ledger.log() == before


@pytest.mark.parametrize("artifact_id", sorted(FROZEN_IDS))
def test_what_is_frozen_is_refused(ledger: VersionedLedger, artifact_id: str) -> None:
    frozen = Evolvable(artifact_id, {"a": "b"})
    calls: list[Callable[[], object]] = [
        lambda: ledger.register(frozen),
        lambda: ledger.commit(frozen, 0),
        lambda: ledger.commit_atomic([frozen], {artifact_id: 0}),
        lambda: ledger.promote(artifact_id, 1),
        lambda: ledger.rollback(artifact_id, 1),
    ]
    for call in calls:
        with pytest.raises(GovernanceError):
            call()


@pytest.mark.parametrize("artifact_id", ["HEAD", "a.lock", "a..b", "dev", "0", "x" * 200, "a.json", "A", "con", "refs"])
def test_any_valid_id_is_a_name_like_others(ledger: VersionedLedger, artifact_id: str) -> None:
    ledger.register(Evolvable("a", {"text": "another"}))
    ledger.register(Evolvable(artifact_id, {"text": "mine"}))
    ledger.commit(Evolvable(artifact_id, {"text": "yours"}), 1)
    assert ledger.head(artifact_id).state == {"text": "yours"}
    assert ledger.snapshot()["a"].state == {"text": "another"}
    assert [entry.version for entry in ledger.history(artifact_id)] == [2, 1]


@pytest.mark.parametrize("artifact_id", ["", "../a", "a/b", ".git", "a b", "a\n", "ä", "-a"])
def test_an_invalid_id_is_refused_by_the_ledger_itself(ledger: VersionedLedger, artifact_id: str) -> None:
    smuggled = evolve(RULES)
    object.__setattr__(smuggled, "id", artifact_id)
    calls: list[Callable[[], object]] = [lambda: ledger.register(smuggled), lambda: ledger.commit(smuggled, 1)]
    for call in calls:
        with pytest.raises(ContractError, match="must match"):
            call()
    with pytest.raises(UnknownArtifact):
        ledger.head(artifact_id)
    assert ledger.snapshot() == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "a\n\nb\n",
        "\r\n",
        "\0",
        "\x1b[0m",
        "ä ∑ 𝔸",
        '"quoted" \\ back',
        "<<<<<<< a\n",
        "\u2028",
        "x" * 100_000,
    ],
)
def test_any_text_is_kept_as_it_is(ledger: VersionedLedger, text: str) -> None:
    ledger.register(evolve(RULES, state={"key": text, text or "empty": "value"}))
    assert ledger.head("rules").state == {"key": text, text or "empty": "value"}


def test_text_that_is_none_is_refused_by_name(ledger: VersionedLedger) -> None:
    with pytest.raises(ContractError, match=re.escape("artifact 'rules': state.a: a lone surrogate")):
        ledger.register(evolve(RULES, state={"a": "\ud800"}))
    with pytest.raises(ContractError, match=r"contract\.input_schema: a lone surrogate"):
        ledger.register(evolve(RULES, contract=Contract("\ud800")))
    assert ledger.snapshot() == {}


@pytest.mark.parametrize(
    ("words", "decision", "complaint"),
    [
        ("", {"Artifact": "x"}, "cannot be a trailer"),
        ("", {"two words": "x"}, "cannot be a trailer"),
        ("", {"": "x"}, "cannot be a trailer"),
        ("", {"Key": "\ud800"}, "lone surrogate"),
        ("", {"Key": 0.5}, "hand it in as text"),
        ("\ud800", {}, "lone surrogate"),
        ("a\0b", {}, "zero byte"),
    ],
)
def test_words_git_cannot_keep_are_refused(
    ledger: VersionedLedger, words: str, decision: dict[str, str], complaint: str
) -> None:
    ledger.register(RULES)
    with pytest.raises(ContractError, match=complaint):
        ledger.commit(RULES, 1, message=words, decision=decision)
    assert dict(ledger.versions()) == {"rules": 1}


def test_an_unknown_branch_is_refused(ledger: VersionedLedger) -> None:
    with pytest.raises(ContractError, match="dev, stable"):
        ledger.head("rules", "main")


def test_close_may_be_called_again(ledger: VersionedLedger) -> None:
    ledger.register(RULES)
    ledger.close()
    ledger.close()
    assert ledger.head("rules").version == 1

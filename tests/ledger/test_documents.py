"""What lies in the repository: documents, messages and names, and that git reads them as we do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import LedgerCorrupt, LedgerError
from adescent.evolvable import Contract, Evolvable
from adescent.ledger import GitLedger, MemoryLedger, codec
from adescent.ledger.codec import decode, encode, file_name, shard_of, stored
from adescent.ledger.objects import git_object, read_tree, write_tree
from adescent.ledger.trailers import Note, read_note, write_note

Git = Callable[..., str]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
KEYS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,10}", fullmatch=True).filter(lambda key: key != "Artifact")
ARTIFACTS = st.builds(
    Evolvable,
    NAMES,
    st.dictionaries(TEXT, TEXT, max_size=5),
    st.integers(1, 10**6),
    st.builds(Contract, TEXT, TEXT, TEXT, st.integers(0, 9)),
    st.floats(0, 1) | st.integers(0, 1),
)
RULES = Evolvable("rules", {"b": "x\ny", "a": "ä"}, 3, Contract("in", "out", "none", 2), 0.25)


@given(ARTIFACTS)
def test_a_document_gives_back_the_artifact_in_its_order(artifact: Evolvable) -> None:
    kept = stored(artifact, artifact.version)
    back = decode(encode(kept), "here")
    assert back == kept == artifact
    assert list(back.state) == list(artifact.state)
    assert encode(back) == encode(kept)


@given(ARTIFACTS)
def test_a_document_is_json_with_a_line_for_every_key(artifact: Evolvable) -> None:
    text = encode(stored(artifact, artifact.version)).decode()
    document = json.loads(text)
    assert document["state"] == artifact.state
    for key, value in artifact.state.items():
        line = f"    {json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        assert line in text.split("\n") or line + "," in text.split("\n")


def test_a_document_looks_like_this() -> None:
    assert encode(RULES).decode() == (
        "{\n"
        '  "id": "rules",\n'
        '  "schema": 1,\n'
        '  "contract": {\n'
        '    "input_schema": "in",\n'
        '    "output_schema": "out",\n'
        '    "side_effects": "none",\n'
        '    "major": 2\n'
        "  },\n"
        '  "blast_radius": 0.25,\n'
        '  "version": 3,\n'
        '  "state": {\n'
        '    "b": "x\\ny",\n'
        '    "a": "ä"\n'
        "  }\n"
        "}\n"
    )


def document(**changes: object) -> bytes:
    return json.dumps({**json.loads(encode(RULES)), **changes}).encode()


def test_reading_is_lenient_about_what_it_does_not_know_and_what_has_a_default() -> None:
    more = document(added_later={"x": 1}, contract={"major": 2, "added_later": True})
    assert decode(more, "here") == evolve(RULES, contract=Contract(major=2))
    least = {"id": "rules", "schema": 1, "version": 1, "state": {}}
    assert decode(json.dumps(least).encode(), "here") == Evolvable("rules", {}, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        document(version="3"),
        document(version=0),
        document(version=True),
        document(state={"a": 1}),
        document(state=["a"]),
        document(state=None),
        document(id="../a"),
        document(id=7),
        document(contract="none"),
        document(contract={"major": "2"}),
        document(blast_radius=2),
        document(blast_radius="wide"),
        document(schema="1"),
        document(schema=-1),
    ],
    ids=lambda data: data[:40].decode(errors="replace"),
)
def test_what_is_no_artifact_is_refused(data: bytes) -> None:
    with pytest.raises(LedgerCorrupt, match="blob 12 holds no artifact"):
        decode(data, "blob 12")


def test_a_document_of_a_newer_schema_says_to_update() -> None:
    with pytest.raises(LedgerError, match="update this one"):
        decode(document(schema=2), "here")


def test_a_document_of_an_older_schema_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec.MIGRATIONS, -1, lambda old: {**old, "schema": 0, "lines": old["text"].split("|")})
    monkeypatch.setitem(codec.MIGRATIONS, 0, lambda old: {**old, "state": dict.fromkeys(old["lines"], "")})
    old = {"id": "rules", "schema": -1, "version": 4, "text": "a|b"}
    assert decode(json.dumps(old).encode(), "here") == Evolvable("rules", {"a": "", "b": ""}, 4)


@given(NAMES)
def test_where_an_artifact_lies_is_safe_in_a_tree(name: str) -> None:
    assert len(shard_of(name)) == 2
    assert not file_name(name).endswith(".lock")
    assert file_name(name)[0] not in ".-"


@given(TEXT, st.lists(st.tuples(NAMES, st.integers(1, 99)), min_size=1, max_size=3), st.dictionaries(KEYS, TEXT))
def test_a_message_gives_back_what_was_said(
    words: str, changed: list[tuple[str, int]], decision: dict[str, str]
) -> None:
    words = words.replace("\0", "")
    note = read_note(write_note(Note(words, tuple(changed), decision)))
    assert note is not None
    assert note.message == words.strip() or not words.strip()
    assert note.changed == tuple(changed)
    assert note.decision == decision


def test_words_that_look_like_trailers_are_words() -> None:
    words = "Why\n\nArtifact: other@9\nDecision: none"
    note = read_note(write_note(Note(words, (("rules", 3),), {"Decision": "kept"})))
    assert note == Note(words, (("rules", 3),), {"Decision": "kept"})


@pytest.mark.parametrize("message", ["", "by hand", "by hand\n\nSigned-off-by: somebody", "x\n\nArtifact: no version"])
def test_a_commit_made_by_hand_is_no_entry(message: str) -> None:
    assert read_note(message) is None


def test_git_reads_the_trailers_too(tmp_path: Path, git: Git) -> None:
    with closing(GitLedger(tmp_path / "ledger")) as ledger:
        ledger.register(RULES)
        ledger.commit(RULES, 1, message="Why\n\nAt length.", decision={"Decision": "kept", "P-Value": "0.01"})
    said = git(tmp_path / "ledger", "log", "-1", "--format=%(trailers)", "dev")
    assert said.split("\n")[:3] == ["Artifact: rules@2", "Decision: kept", "P-Value: 0.01"]


def test_plain_git_shows_what_is_held(tmp_path: Path, git: Git) -> None:
    with closing(GitLedger(tmp_path / "ledger")) as ledger:
        ledger.register(RULES)
        ledger.commit(evolve(RULES, state={**RULES.state, "c": "new"}), 1)
        ledger.commit(evolve(RULES, state={"b": "last"}), 2)
        ledger.promote("rules", 2)
        folder, path = Path(ledger.location), f"{shard_of('rules')}/{file_name('rules')}"
        for branch in ("dev", "stable"):
            held = decode(git(folder, "show", f"{branch}:{path}").encode(), branch)
            assert held == ledger.head("rules", branch)
        assert ledger.log()[0].id == git(folder, "rev-parse", "dev").strip()
        assert ledger.log()[0].tree == git(folder, "rev-parse", "dev^{tree}").strip()
    assert '+    "c": "new"' in git(folder, "show", "dev~1").split("\n")
    assert git(folder, "rev-list", "--count", "dev").strip() == "3"
    assert git(folder, "rev-list", "--count", "stable").strip() == "2"


def test_names_are_those_git_gives(tmp_path: Path) -> None:
    for data in (b"", b"text", bytes(range(256)) * 300):
        ran = subprocess.run(
            ["git", "hash-object", "--stdin"], input=data, capture_output=True, check=True, cwd=tmp_path
        )
        assert git_object("blob", data).id.hex() == ran.stdout.decode().strip()


@given(st.dictionaries(NAMES, st.binary(min_size=20, max_size=20), max_size=6), st.sampled_from(["blob", "tree"]))
def test_a_tree_gives_back_its_entries(entries: dict[str, bytes], of: str) -> None:
    tree = write_tree(entries, of="blob" if of == "blob" else "tree")
    assert read_tree(tree.data) == entries


@given(st.dictionaries(NAMES, st.binary(min_size=20, max_size=20), min_size=1, max_size=3), st.data())
def test_half_a_tree_is_refused(entries: dict[str, bytes], data: st.DataObject) -> None:
    whole = write_tree(entries, of="blob").data
    with pytest.raises(LedgerCorrupt):
        read_tree(whole[: -data.draw(st.integers(1, 20))])


def test_equal_operations_give_equal_trees_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, names = [], []
    for now in (1.0, 2e9):
        monkeypatch.setattr("time.time", lambda now=now: now)
        ledger = MemoryLedger()
        for number in range(40):
            ledger.register(Evolvable(f"a{number}", {"text": str(number)}))
        ledger.commit(Evolvable("a7", {"text": "new"}), 1)
        trees.append([entry.tree for entry in ledger.log()])
        names.append([entry.id for entry in ledger.log()])
    assert trees[0] == trees[1]
    assert set(names[0]).isdisjoint(names[1])

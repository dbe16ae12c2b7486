"""A folder that is no ledger, or no longer a sound one, is refused with words that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from adescent.errors import ContractError, LedgerCorrupt, LedgerError, OptionError
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger
from adescent.ledger.codec import encode, file_name, shard_of
from adescent.ledger.objects import GitCommit, git_object, write_commit, write_tree
from adescent.ledger.packfile import pack_of

RULES = Evolvable("rules", {"a": "1"})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[GitLedger]:
    with closing(GitLedger(tmp_path / "ledger", durability="fast")) as made:
        made.register(RULES)
        yield made


def plant(ledger: GitLedger, data: bytes, *, folder: bytes | None = None, name: str = file_name("rules")) -> None:
    """Let dev be at a commit whose only file (or folder) has these bytes."""
    blob = git_object("blob", data)
    inner = write_tree({name: blob.id}, of="blob") if folder is None else git_object("tree", folder)
    root = write_tree({shard_of("rules"): inner.id}, of="tree")
    commit = write_commit(GitCommit(root.id, (), "by hand"), 1)
    pack, packs = pack_of([blob, inner, root, commit]), Path(ledger.location, "objects", "pack")
    (packs / f"{pack.name}.pack").write_bytes(pack.data)
    (packs / f"{pack.name}.idx").write_bytes(pack.index)
    Path(ledger.location, "refs", "heads", "dev").write_text(commit.id.hex() + "\n")


def reads(ledger: GitLedger) -> list[Callable[[], object]]:
    return [lambda: ledger.head("rules"), ledger.snapshot, lambda: ledger.commit(RULES, 1)]


@pytest.mark.parametrize("data", [b"no document", encode(Evolvable("other", {}, 1)), b'{"id": "rules"}'])
def test_a_file_that_holds_no_such_artifact(ledger: GitLedger, data: bytes) -> None:
    plant(ledger, data)
    for read in reads(ledger):
        with pytest.raises(LedgerCorrupt, match="restore the repository from a copy"):
            read()


def test_a_folder_that_cannot_be_read(ledger: GitLedger) -> None:
    plant(ledger, b"", folder=b"100644 half")
    for read in reads(ledger):
        with pytest.raises(LedgerCorrupt, match="a tree of the ledger cannot be read"):
            read()


def test_a_file_that_is_none_of_the_ledgers(ledger: GitLedger) -> None:
    plant(ledger, b"notes", name="README")
    with pytest.raises(LedgerCorrupt):
        ledger.snapshot()


@pytest.mark.parametrize("text", ["", "ref: refs/heads/other\n", "0" * 39 + "\n", "g" * 40 + "\n", "0" * 41 + "\n"])
def test_a_branch_that_names_nothing(ledger: GitLedger, text: str) -> None:
    Path(ledger.location, "refs", "heads", "dev").write_text(text)
    for read in reads(ledger):
        with pytest.raises(LedgerCorrupt, match="refs/heads/dev names no commit"):
            read()


def test_a_branch_that_names_what_is_not_there(ledger: GitLedger) -> None:
    Path(ledger.location, "refs", "heads", "dev").write_text("1" * 40 + "\n")
    for read in reads(ledger):
        with pytest.raises(LedgerCorrupt, match="1111 is missing"):
            read()


def test_a_branch_that_names_a_tree(ledger: GitLedger) -> None:
    Path(ledger.location, "refs", "heads", "dev").write_text(ledger.log()[0].tree + "\n")
    for read in reads(ledger):
        with pytest.raises(LedgerCorrupt, match="is a tree and should be a commit"):
            read()


def test_packs_that_are_gone_or_damaged(ledger: GitLedger) -> None:
    (pack,) = Path(ledger.location, "objects", "pack").glob("*.pack")
    whole = pack.read_bytes()
    pack.chmod(0o644)
    for damaged in (whole[:40], b"x" * len(whole), b""):
        pack.write_bytes(damaged)
        with pytest.raises(LedgerCorrupt, match="missing from"):
            GitLedger(ledger.location).head("rules")


def test_what_is_read_once_is_not_read_again(ledger: GitLedger) -> None:
    """Objects never change, so a ledger goes on with what it knows."""
    for path in Path(ledger.location, "objects", "pack").iterdir():
        path.unlink()
    assert ledger.head("rules").version == 1
    assert ledger.snapshot().keys() == {"rules"}


def test_a_file_is_no_place_for_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LedgerError):
            GitLedger(place)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".git").mkdir()
    with pytest.raises(LedgerError, match=r"holds other files \(\.git, notes\.txt\): give the ledger a folder"):
        GitLedger(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "notes.txt"]


@pytest.mark.parametrize("how", [("init", "-q", "--bare"), ("init", "-q"), ("clone", "-q", "--bare")])
def test_somebodys_repository_is_left_alone(how: tuple[str, ...], tmp_path: Path, git: Callable[..., str]) -> None:
    folder = tmp_path / "theirs"
    if "clone" in how:
        with closing(GitLedger(tmp_path / "ledger")) as ours:
            ours.register(RULES)
    git(tmp_path, *how, *(["ledger"] if "clone" in how else []), "theirs")
    folder = folder if "--bare" in how else folder / ".git"
    before = sorted(folder.rglob("*"))
    with pytest.raises(LedgerError, match="is a git repository but no ledger: give the ledger a folder of its own"):
        GitLedger(folder)
    assert sorted(folder.rglob("*")) == before


def test_a_copy_without_its_empty_folders_is_a_ledger(ledger: GitLedger, tmp_path: Path) -> None:
    ledger.close()
    for folder in ("ledger.spares", "objects/info", "refs/tags"):
        Path(ledger.location, folder).rmdir()
    with closing(GitLedger(ledger.location)) as again:
        assert again.commit(RULES, 1).version == 2


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'durable' or 'fast'"):
        GitLedger(tmp_path / "ledger", durability="sometimes")  # type: ignore[arg-type]
    assert not (tmp_path / "ledger").exists()


def test_commits_made_by_hand_are_passed_over(ledger: GitLedger) -> None:
    plant(ledger, encode(Evolvable("rules", {"a": "by hand"}, 5)))
    assert ledger.log() == ()
    assert ledger.commit(RULES, 5).version == 6
    assert [entry.version for entry in ledger.log()] == [6]
    with pytest.raises(ContractError, match=r"commit\(artifact, 6\)"):
        ledger.register(Evolvable("rules", {"a": "another"}))

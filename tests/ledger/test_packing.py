"""Packs are put together behind the scenes: nothing is lost, nobody notices, and the folder stays small."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pygit2
import pytest
from attrs import evolve

from adescent.errors import LedgerError
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger, packing

Git = Callable[..., str]
Sound = Callable[[Path | str], None]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put packs together after a few commits already, on every level."""
    monkeypatch.setattr(packing, "GATHERED_COMMITS", 4)
    monkeypatch.setattr(packing, "GATHERED_PACKS", 2)
    monkeypatch.setattr(packing, "LEVELS", ((12, 128 * 2**10), (40, 2**20), (100, 8 * 2**20)))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[GitLedger]:
    with closing(GitLedger(tmp_path / "ledger", durability="fast")) as made:
        yield made


def commit_some(ledger: GitLedger, times: int, names: tuple[str, ...] = ("a", "b", "c")) -> None:
    heads = dict(ledger.snapshot())
    for name in names:
        if name not in heads:
            heads[name] = ledger.register(Evolvable(name, {"text": "0", "rest": "x" * 300}))
    for turn, name in zip(range(times), cycle(names), strict=False):
        head = heads[name]
        heads[name] = ledger.commit(evolve(head, state={**head.state, "text": str(turn)}), head.version)


def files_below(folder: Path | str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.mark.usefixtures("eager")
def test_every_version_is_still_there(ledger: GitLedger, is_sound: Sound) -> None:
    commit_some(ledger, 150)
    for _ in range(2):
        for name in ("a", "b", "c"):
            assert [entry.version for entry in ledger.history(name)] == list(range(51, 0, -1))
            assert ledger.diff(name, 1, 51).ops.keys() == {"text"}
        is_sound(ledger.location)
        ledger.close()


@pytest.mark.usefixtures("eager")
def test_the_folder_stays_small_and_close_leaves_packs_only(ledger: GitLedger) -> None:
    seen = []
    for _ in range(6):
        commit_some(ledger, 50)
        seen.append(len(files_below(ledger.location)))
    assert max(seen) < 60
    ledger.close()
    names = sorted(path.name for path in files_below(ledger.location) if path.parent.name != "pack")
    assert names == ["HEAD", "config", "dev", "ledger.lock", "stable"]
    assert {path.suffix for path in files_below(Path(ledger.location, "objects", "pack"))} == {".pack", ".idx"}


def test_packs_of_single_commits_are_gone_after_close(ledger: GitLedger, git: Git) -> None:
    commit_some(ledger, 3)
    ledger.close()
    assert len(list(Path(ledger.location, "objects", "pack").glob("*.pack"))) == 1
    assert "count: 0" in git(ledger.location, "count-objects", "-v")


@pytest.mark.usefixtures("eager")
def test_another_ledger_on_the_folder_reads_on(ledger: GitLedger) -> None:
    commit_some(ledger, 10)
    with closing(GitLedger(ledger.location)) as reader:
        assert reader.head("a").version == 5
        # The packs it has open go, and what they held is in others.
        commit_some(ledger, 100)
        assert reader.diff("a", 1, 3).ops == {"text": "3"}
        assert [entry.version for entry in reader.history("b")] == list(range(37, 0, -1))


def test_packs_that_go_while_they_are_opened_are_looked_for_again(
    ledger: GitLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_some(ledger, 6)
    opened: list[str] = []
    database = pygit2.Odb

    def open_too_late(folder: str) -> pygit2.Odb:
        opened.append(folder)
        return database(folder if len(opened) == 3 else "/nowhere")

    monkeypatch.setattr("pygit2.Odb", open_too_late)
    with closing(GitLedger(ledger.location)) as reader:
        assert reader.head("a").version == 3
    assert len(opened) == 3


@pytest.mark.usefixtures("eager")
def test_what_somebody_has_open_keeps_its_content(ledger: GitLedger) -> None:
    commit_some(ledger, 3)
    folder = Path(ledger.location)
    files = [folder / "refs" / "heads" / "dev", *(folder / "objects" / "pack").iterdir()]
    before = [path.read_bytes() for path in files]
    readers = [path.open("rb") for path in files]
    commit_some(ledger, 60)
    assert [reader.read() for reader in readers] == before
    for reader in readers:
        reader.close()
    assert not any(path.exists() for path in files[1:])


@pytest.mark.usefixtures("eager")
def test_git_may_collect_garbage_in_between(ledger: GitLedger, git: Git, is_sound: Sound) -> None:
    for turn in range(4):
        commit_some(ledger, 21)
        git(ledger.location, "gc", "--quiet", "--prune=now")
        assert not Path(ledger.location, "refs", "heads", "dev").exists(), "gc packs the branches too"
        assert ledger.head("a").version == 7 * (turn + 1) + 1
        git(ledger.location, "multi-pack-index", "write")
    commit_some(ledger, 21)
    assert [entry.version for entry in ledger.history("a")] == list(range(36, 0, -1))
    is_sound(ledger.location)


@pytest.mark.usefixtures("eager")
def test_an_index_of_gits_over_many_packs_goes_with_the_packs(ledger: GitLedger, git: Git, is_sound: Sound) -> None:
    commit_some(ledger, 6)
    git(ledger.location, "multi-pack-index", "write")
    commit_some(ledger, 30)
    is_sound(ledger.location)
    assert len(git(ledger.location, "rev-list", "dev").split()) == 39


@pytest.mark.usefixtures("eager")
def test_an_object_that_was_written_twice_is_there_once_in_a_joined_pack(
    ledger: GitLedger, git: Git, tmp_path: Path
) -> None:
    commit_some(ledger, 20)
    # Stable goes through states that dev has been in, and so through trees that are there already.
    for version in (2, 3, 4, 5, 6):
        for name in ("a", "b", "c"):
            ledger.promote(name, version)
    commit_some(ledger, 40)
    ledger.close()
    packs = list(Path(ledger.location, "objects", "pack").glob("*.idx"))
    assert packs
    for index in packs:
        git(ledger.location, "verify-pack", str(index))


@pytest.mark.usefixtures("eager")
def test_a_pack_that_is_to_be_kept_is_kept(ledger: GitLedger) -> None:
    commit_some(ledger, 1)
    kept = next(Path(ledger.location, "objects", "pack").glob("*.pack"))
    kept.with_suffix(".keep").touch()
    commit_some(ledger, 40)
    assert kept.exists()


@pytest.mark.usefixtures("eager")
def test_a_slice_that_fails_is_reported_and_fails_no_commit(
    ledger: GitLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    commit_some(ledger, 1)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "adescent.ledger"):
        patched.setattr(packing.PackFolder, "_rewritten", full)
        commit_some(ledger, 20)
    assert "could not put packs together" in caplog.text
    assert ledger.head("a").version == 9
    commit_some(ledger, 20)
    assert len(files_below(ledger.location)) < 60


def test_a_full_disk_is_an_error_of_the_ledger_and_passes(ledger: GitLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    commit_some(ledger, 3)
    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(LedgerError, match="No space left on device"):
            ledger.commit(Evolvable("a", {"text": "lost"}), 2)
    assert ledger.head("a").state["text"] == "0"
    assert ledger.commit(Evolvable("a", {"text": "kept"}), 2).version == 3


@pytest.mark.slow
@pytest.mark.parametrize("artifacts", [1, 100])
def test_10_000_commits_leave_a_bounded_folder(artifacts: int, ledger: GitLedger, is_sound: Sound) -> None:
    names = tuple(f"a{number}" for number in range(artifacts))
    files, sizes = [], []
    for _ in range(4):
        commit_some(ledger, 2500, names)
        found = files_below(ledger.location)
        files.append(len(found))
        sizes.append(sum(path.stat().st_size for path in found))
    assert max(files) < 250
    assert sizes[3] - sizes[1] < 1.2 * (sizes[1] + sizes[0])
    is_sound(ledger.location)
    assert sum(1 for _ in ledger.log()) == 10_000 + artifacts

"""A run directory: one run at a time, one configuration, and nobody else's files."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adescent.errors import RunDirError, RunDirInUse, RunDirMismatch
from adescent.rundir import RunDirectory

IDENTITY: dict[str, Any] = {"artifact_id": "a", "seed": 0, "splits": {"train": "x", "held_out": "y"}}


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# One run at a time ----------------------------------------------------------------------------------------------------


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "today"
    with RunDirectory(place, IDENTITY) as held:
        assert held.ledger.parent == place
    assert json.loads((place / "run.json").read_text())["artifact_id"] == "a"


def test_it_is_in_use_until_it_is_left(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, IDENTITY), pytest.raises(RunDirInUse, match=f"process {os.getpid()}") as refused:
        RunDirectory(tmp_path, IDENTITY).open()
    assert refused.value.path == str(tmp_path)
    with RunDirectory(tmp_path, IDENTITY):
        pass


def test_who_is_refused_takes_nothing_away(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, IDENTITY):
        for _ in range(3):
            with pytest.raises(RunDirInUse):
                RunDirectory(tmp_path, IDENTITY).open()


def race(place: Path, contenders: int) -> list[str]:
    """How it ends for each of those who want the same directory at the same instant."""
    at_once, everybody_tried = threading.Barrier(contenders), threading.Barrier(contenders)
    ends: list[str] = []

    def take() -> None:
        directory = RunDirectory(place, IDENTITY)
        at_once.wait(10)
        try:
            directory.open()
        except RunDirError as error:
            ends.append(type(error).__name__)
        else:
            ends.append("taken")
        everybody_tried.wait(10)
        directory.close()

    threads = [threading.Thread(target=take) for _ in range(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return sorted(ends)


@pytest.mark.parametrize("attempt", range(25))
def test_of_many_at_once_one_gets_it(tmp_path: Path, attempt: int) -> None:
    assert race(tmp_path / "new", 6) == ["RunDirInUse"] * 5 + ["taken"]
    assert race(tmp_path / "new", 3) == ["RunDirInUse"] * 2 + ["taken"]


def test_closing_twice_is_closing(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path, IDENTITY).open()
    place.close()
    place.close()


HOLDER = """
import sys
from pathlib import Path
from adescent.rundir import RunDirectory
with RunDirectory(Path(sys.argv[1]), {"artifact_id": "a"}):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_another_process_holds_it_until_it_ends_however_it_ends(tmp_path: Path) -> None:
    with another_process(tmp_path) as holder:
        with pytest.raises(RunDirInUse, match=f"process {holder.pid}"):
            RunDirectory(tmp_path, {"artifact_id": "a"}).open()
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    with RunDirectory(tmp_path, {"artifact_id": "a"}):
        pass


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("held_before", [True, False])
def test_who_cannot_write_does_not_hold_it(tmp_path: Path, held_before: bool) -> None:
    """Not even while somebody keeps the error, and with it the frames it went through."""
    if held_before:
        with RunDirectory(tmp_path, IDENTITY):
            pass
    errors = []
    for _ in range(2):
        with full_disk(), pytest.raises(RunDirError, match="cannot be used") as refused:
            RunDirectory(tmp_path, IDENTITY).open()
        errors.append(refused.value)
    with RunDirectory(tmp_path, IDENTITY):
        pass
    assert [type(error) for error in errors] == [RunDirError] * 2


def test_what_is_no_text_in_the_lock_is_no_trouble(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, IDENTITY):
        (tmp_path / "lock").write_bytes(b"\xff")
        with pytest.raises(RunDirInUse):
            RunDirectory(tmp_path, IDENTITY).open()


# One configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"seed": 1}, {"splits": {"train": "x", "held_out": "z"}}, {"strategy": "other"}])
def test_another_configuration_is_refused_and_told_apart(tmp_path: Path, changed: dict[str, Any]) -> None:
    with RunDirectory(tmp_path, IDENTITY):
        before = contents(tmp_path)
    with pytest.raises(RunDirMismatch, match=f"{next(iter(changed))}: .* there, .* here"):
        RunDirectory(tmp_path, {**IDENTITY, **changed}).open()
    assert contents(tmp_path).keys() == before.keys()
    with RunDirectory(tmp_path, IDENTITY):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "\x00\xff"])
def test_a_manifest_that_no_run_wrote_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="latin-1")
    with pytest.raises(RunDirError, match=r"run\.json is not what a run wrote"):
        RunDirectory(tmp_path, IDENTITY).open()


# Nobody else's files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["notes.txt"], ["lock", "notes.txt"], ["ledger.git/HEAD"], ["result.json"]])
def test_a_foreign_directory_is_left_as_it_is(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(RunDirError, match="holds other files"):
        RunDirectory(tmp_path, IDENTITY).open()
    assert contents(tmp_path) == before


def test_what_a_crash_left_half_written_is_not_foreign(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "run.json.partial").write_text("{")
    with RunDirectory(tmp_path, IDENTITY):
        assert json.loads((tmp_path / "run.json").read_text())["seed"] == 0
    (tmp_path / "result.json.partial").write_text("{")
    with RunDirectory(tmp_path, IDENTITY) as place:
        place.save_result("{}")
    assert RunDirectory.load_result(tmp_path) == "{}"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunDirError, match="cannot be used"):
            RunDirectory(path, IDENTITY).open()
    assert (tmp_path / "file").read_text() == "mine"


# What came of it ------------------------------------------------------------------------------------------------------


def test_the_last_result_is_kept(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, IDENTITY) as place:
        assert RunDirectory.load_result(tmp_path) is None
        place.save_result("first")
        place.save_result("zweites: ü")
    assert RunDirectory.load_result(tmp_path) == "zweites: ü"
    assert not list(tmp_path.glob("*.partial"))


def test_a_result_that_cannot_be_kept_is_an_error_of_the_directory(tmp_path: Path) -> None:
    with RunDirectory(tmp_path, IDENTITY) as place:
        (tmp_path / "result.json").mkdir()
        with pytest.raises(RunDirError, match=r"result\.json cannot be written"):
            place.save_result("{}")
        with pytest.raises(RunDirError, match="cannot be read"):
            RunDirectory.load_result(tmp_path)


def test_where_no_run_was_there_is_no_result(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunDirError, match="no run directory"):
            RunDirectory.load_result(path)

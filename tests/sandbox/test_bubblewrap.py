"""What holds inside of bubblewrap only, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adescent.sandbox import bubblewrap_command
from adescent.sandbox.confinement import PROCESSES
from adescent.sandbox.privileges import FIRST_UID, UIDS

SECONDS = 20.0


@pytest.fixture(autouse=True)
def bubblewrap_works(place: Any) -> None:
    place.need("bubblewrap")


@contextmanager
def tether() -> Iterator[tuple[int, int]]:
    """A pipe: at the end of reading, nobody holds the other end any more, whatever became of its processes."""
    ours, theirs = os.pipe()
    try:
        yield ours, theirs
    finally:
        os.close(ours)


def ended(ours: int) -> bool:
    ready, _, _ = select.select([ours], [], [], SECONDS)
    return bool(ready) and os.read(ours, 1) == b""


def run_to_the_end(place: Any, *attempts: str, **given: Any) -> tuple[dict[str, Any], bool]:
    """What was achieved, and whether every process that had a part in it is gone then."""
    command = place.command("bubblewrap", *attempts, **given)
    with tether() as (ours, theirs), place.started(command, pass_fds=[theirs]) as process:
        os.close(theirs)
        found = json.loads(process.stdout.readline())
        process.wait(SECONDS)
        return found, ended(ours)


def test_it_is_nobody(place: Any) -> None:
    user, group, groups = place.attempt("bubblewrap", "say_who_it_is")["say_who_it_is"]
    if os.geteuid() == 0:
        assert FIRST_UID <= user == group < FIRST_UID + UIDS
        assert groups == 0
    else:
        assert user == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another name inside")
def test_where_files_are_for_root_only_it_is_called_nobody(place: Any, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "file").write_text("x")
    found = place.attempt("bubblewrap", "say_who_it_is", readable=(private,))
    assert found["say_who_it_is"][:2] == [65534, 65534]


def test_it_is_alone(place: Any) -> None:
    found = place.attempt("bubblewrap", "say_what_processes_there_are")
    assert found["say_what_processes_there_are"] == ["1", "2"]


def test_little_may_be_written(place: Any) -> None:
    writable = set(place.attempt("bubblewrap", "say_what_may_be_written")["say_what_may_be_written"])
    places = {str(place.workspace), "/tmp", "/dev/shm"}
    assert places <= writable
    assert all(path.startswith("/dev/") for path in writable - places)
    assert "/dev" not in writable


def test_the_disk_is_not_filled(place: Any) -> None:
    assert "No space left" in place.attempt("bubblewrap", "fill_the_disk")["fill_the_disk"]
    assert list(place.workspace.iterdir()) == []


@pytest.mark.parametrize("attempt", ["fork_many", "fork_many_in_namespaces"])
def test_a_fork_bomb_is_bounded_and_gone_with_its_first_process(place: Any, attempt: str) -> None:
    found, gone = run_to_the_end(place, attempt, processes=2 * PROCESSES)
    assert 2 < found[attempt] <= PROCESSES
    assert gone


def test_what_leaves_its_group_ends_all_the_same(place: Any) -> None:
    _, gone = run_to_the_end(place, "leave_a_process")
    assert gone


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_the_group_ends_it(place: Any, sent: signal.Signals) -> None:
    with tether() as (ours, theirs):
        command = place.command("bubblewrap", "leave_a_process", "wait_for_the_end")
        with place.started(command, pass_fds=[theirs]) as process:
            os.close(theirs)
            assert json.loads(process.stdout.readline()) == {"ready": True}
            os.killpg(process.pid, sent)
            process.wait(SECONDS)
            assert ended(ours)


def test_descriptors_pass_through(place: Any) -> None:
    with tether() as (ours, theirs):
        command = place.command("bubblewrap", "write_to_a_descriptor", descriptor=theirs)
        with place.started(command, pass_fds=[theirs]) as process:
            os.close(theirs)
            process.wait(SECONDS)
            assert os.read(ours, 100) == b"passed through"
            assert ended(ours)


@pytest.mark.parametrize(("attempt", "ending"), [("run_out_of_time", signal.SIGXCPU), ("crash", signal.SIGSEGV)])
def test_a_fatal_signal_shows_in_the_exit_code(place: Any, attempt: str, ending: signal.Signals) -> None:
    assert place.exit_code("bubblewrap", attempt) == 128 + ending


def test_it_stays_in_the_group_it_is_started_in(place: Any) -> None:
    command = bubblewrap_command(["python"], workspace=str(place.workspace), network=False, readable=[], tmp_mb=1)
    assert command[-1] == "python"
    assert "--die-with-parent" in command
    assert "--new-session" not in command

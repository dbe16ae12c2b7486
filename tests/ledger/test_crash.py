"""Killed at any instant, a ledger opens, is whole, and has lost nothing it had acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from attrs import evolve

from adescent.errors import UnknownArtifact
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger

CHILD = Path(__file__).with_name("committing_child.py")
Sound = Callable[[Path | str], None]


def child(folder: Path, durability: str, commits: int, *die_at: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(CHILD), str(folder), durability, str(commits), *map(str, die_at)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Without a buffer, so that what follows a line that was read is still in the pipe.
    return subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, env=environment)


def finished(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """The last version it acknowledged (0 for none), and how it ended."""
    said, _ = process.communicate(timeout=60)
    # The last line is whole only when it ends.
    versions = [int(line) for line in said.split(b"\n")[:-1]]
    return max(versions, default=0), process.returncode


def check_whole(folder: Path, acknowledged: int, is_sound: Sound) -> None:
    """The ledger opens, git finds it in order, and it goes on from what was acknowledged or the one in flight."""
    with closing(GitLedger(folder, durability="fast")) as ledger:
        try:
            head = ledger.head("counter")
        except UnknownArtifact:
            assert acknowledged == 0
            head = ledger.register(Evolvable("counter", {"count": "0"}))
        assert head.version in (acknowledged, acknowledged + 1) or acknowledged == 0
        assert head.state["count"] == str(head.version - 1)
        assert ledger.head("counter", "stable").version <= head.version
        assert [entry.version for entry in ledger.history("counter")] == list(range(head.version, 0, -1))
        is_sound(folder)
        ledger.commit(evolve(head, state={**head.state, "count": str(head.version)}), head.version)
    is_sound(folder)
    assert list(folder.rglob("*.lock")) == [folder / "ledger.lock"]


@pytest.mark.parametrize("step", [1, 3, 5, 8, 12, 19, 27, 40, 77, 150])
def test_killed_before_a_change_to_a_file(step: int, tmp_path: Path, is_sound: Sound) -> None:
    acknowledged, code = finished(child(tmp_path / "ledger", "fast", 40, step))
    assert code == -signal.SIGKILL
    check_whole(tmp_path / "ledger", acknowledged, is_sound)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["fast", "durable"])
def test_killed_before_every_change_to_a_file(durability: str, tmp_path: Path, is_sound: Sound) -> None:
    for step in count(1):
        acknowledged, code = finished(child(tmp_path / f"ledger-{step}", durability, 12, step))
        check_whole(tmp_path / f"ledger-{step}", acknowledged, is_sound)
        if code == 0:
            break
    assert step > 100


def test_killed_at_a_few_random_instants(tmp_path: Path, is_sound: Sound) -> None:
    kill_at_random_instants(tmp_path / "ledger", 4, is_sound, random.Random(1))


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["fast", "durable"])
def test_killed_at_200_random_instants(durability: str, tmp_path: Path, is_sound: Sound) -> None:
    kill_at_random_instants(tmp_path / "ledger", 200, is_sound, random.Random(2), durability)


def kill_at_random_instants(
    folder: Path, times: int, is_sound: Sound, instants: random.Random, durability: str = "fast"
) -> None:
    """Kill one process after the other that all work on one ledger, each some time after its first commit."""
    for _ in range(times):
        process = child(folder, durability, 100_000)
        assert process.stdout is not None
        first = int(process.stdout.readline())
        try:
            process.wait(instants.uniform(0.0, 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
        acknowledged, code = finished(process)
        assert code == -signal.SIGKILL
        check_whole(folder, max(first, acknowledged), is_sound)


@pytest.mark.parametrize("branch", ["dev", "stable"])
def test_a_lock_left_by_a_ledger_is_dropped_at_once(
    branch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = GitLedger(tmp_path / "ledger", durability="fast")
    ledger.register(Evolvable("counter", {"count": "0"}))
    prepared, lock = tmp_path / "ledger" / "ledger.next", tmp_path / "ledger" / "refs" / "heads" / f"{branch}.lock"
    prepared.unlink(missing_ok=True)
    prepared.write_text("0" * 40 + "\n")
    lock.hardlink_to(prepared)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited for a lock that is nobody's"))
    assert ledger.commit(Evolvable("counter", {"count": "1"}), 1).version == 2
    assert not lock.exists()


def test_a_lock_of_another_program_is_waited_for_and_then_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adescent.ledger.refs.FOREIGN_LOCK_SECONDS", 0.05)
    ledger = GitLedger(tmp_path / "ledger", durability="fast")
    ledger.register(Evolvable("counter", {"count": "0"}))
    lock = tmp_path / "ledger" / "refs" / "heads" / "dev.lock"
    lock.write_text("")
    assert ledger.commit(Evolvable("counter", {"count": "1"}), 1).version == 2
    assert not lock.exists()


def test_a_lock_of_another_program_that_lets_go_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = GitLedger(tmp_path / "ledger", durability="fast")
    ledger.register(Evolvable("counter", {"count": "0"}))
    lock = tmp_path / "ledger" / "refs" / "heads" / "dev.lock"
    lock.write_text("")
    waits = []

    def let_go(seconds: float) -> None:
        waits.append(seconds)
        lock.unlink()

    monkeypatch.setattr("time.sleep", let_go)
    assert ledger.commit(Evolvable("counter", {"count": "1"}), 1).version == 2
    assert len(waits) == 1


def test_a_prepared_file_that_is_the_branch_by_now_is_not_written_over(tmp_path: Path) -> None:
    """Killed between the rename that moves a branch and the removal of the other name of that file."""
    ledger = GitLedger(tmp_path / "ledger", durability="fast")
    ledger.register(Evolvable("counter", {"count": "0"}))
    branch = tmp_path / "ledger" / "refs" / "heads" / "dev"
    (tmp_path / "ledger" / "ledger.next").hardlink_to(branch)
    before = branch.open()
    with closing(before):
        assert ledger.commit(Evolvable("counter", {"count": "1"}), 1).version == 2
        assert before.read() != branch.read_text()


def test_what_a_killed_process_left_half_written_is_written_anew(tmp_path: Path, is_sound: Sound) -> None:
    ledger = GitLedger(tmp_path / "ledger", durability="fast")
    (tmp_path / "ledger" / "ledger.spares" / "new").write_bytes(b"half")
    (tmp_path / "ledger" / "ledger.next").write_bytes(b"half")
    (tmp_path / "ledger" / "objects" / "pack" / f"pack-{'0' * 40}.pack").write_bytes(b"an index never came")
    ledger.register(Evolvable("counter", {"count": "0"}))
    is_sound(tmp_path / "ledger")
    ledger.close()


@pytest.mark.parametrize("there", [("objects",), ("objects", "refs", "config"), ("ledger.lock", "HEAD.new"), ()])
def test_a_repository_that_was_half_made_is_completed(there: tuple[str, ...], tmp_path: Path, is_sound: Sound) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    for name in there:
        (folder / name).mkdir() if name in ("objects", "refs") else (folder / name).write_text("")
    with closing(GitLedger(folder)) as ledger:
        ledger.register(Evolvable("counter", {"count": "0"}))
    is_sound(folder)
    assert "bare = true" in (folder / "config").read_text()

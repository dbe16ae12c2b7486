"""Workspaces of processes that are killed: a later run finds them, and nothing that is still somebody's."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from adescent.sandbox.workspaces import Workspaces

BOUND = 20.0
CHILD = Path(__file__).with_name("leasing_child.py")


@contextmanager
def child(root: Path, *what: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(CHILD), str(root), *what]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leases(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*.lease"))


def names(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def age(root: Path, seconds: float = 3600.0) -> None:
    """Nobody has renewed anything for so long."""
    for path in root.glob("*.lease"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def test_two_reaping_processes_at_once_remove_each_once(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:016x}.lease").touch()
        (tmp_path / f"{number:016x}" / "folder").mkdir(parents=True)
    age(tmp_path)
    with child(tmp_path, "reap") as one, child(tmp_path, "reap") as other:
        assert (said(one), said(other)) == ("ready", "ready")
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert int(said(one)) + int(said(other)) == 30
    assert names(tmp_path) == []


def reaped(root: Path) -> int:
    return anyio.run(Workspaces(root).reap)


def test_a_killed_holder_is_found_out_and_a_living_or_stopped_one_is_not(tmp_path: Path) -> None:
    with child(tmp_path, "hold") as living, child(tmp_path, "hold") as dying:
        kept, lost = said(living).split(), said(dying).split()
        age(tmp_path)
        living.send_signal(signal.SIGSTOP)
        assert reaped(tmp_path) == 0
        dying.kill()
        dying.wait()
        assert reaped(tmp_path) == 2
        assert leases(tmp_path) == sorted(f"{id}.lease" for id in kept)
        assert not any((tmp_path / id).exists() for id in lost)
    assert reaped(tmp_path) == 2
    assert names(tmp_path) == []


def killed(root: Path, die_at: int) -> None:
    with child(root, "work", str(die_at)) as process:
        assert said(process) == "working"
        assert process.wait(BOUND) == -signal.SIGKILL


def check_reapable(root: Path) -> int:
    """What a killed process has left can be reaped, all of it; returns how many workspaces it held."""
    age(root)
    held = len(leases(root))
    assert reaped(root) == held <= 1
    assert names(root) == []
    return held


@pytest.mark.parametrize("step", [1, 4, 7, 10, 13])
def test_killed_before_a_change_to_a_file(step: int, tmp_path: Path) -> None:
    killed(tmp_path, step)
    check_reapable(tmp_path)


@pytest.mark.slow
def test_killed_before_every_change_to_a_file(tmp_path: Path) -> None:
    held = 0
    for step in range(1, 45):  # two rounds and more
        killed(tmp_path, step)
        held += check_reapable(tmp_path)
    assert 20 < held < 44


@pytest.mark.slow
def test_killed_at_random_instants_beside_a_living_holder(tmp_path: Path) -> None:
    instants = random.Random(3)
    with child(tmp_path, "hold") as living:
        kept = sorted(f"{id}.lease" for id in said(living).split())
        for _ in range(40):
            with child(tmp_path, "work") as process:
                assert said(process) == "working"
                try:
                    process.wait(instants.uniform(0.0, 0.05))
                except subprocess.TimeoutExpired:
                    process.kill()
                assert process.wait(BOUND) == -signal.SIGKILL
            age(tmp_path)
            assert reaped(tmp_path) in (0, 1)
            assert leases(tmp_path) == kept
            assert len(names(tmp_path)) == 2 * len(kept)

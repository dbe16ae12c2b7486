"""A directory is removed whatever was left in it, and nothing else is."""

from __future__ import annotations

import inspect
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adescent.sandbox.demolition import demolish

CHILD = Path(__file__).with_name("leasing_child.py")


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[int]:
    folder = os.open(tmp_path, os.O_RDONLY)
    yield folder
    os.close(folder)


def gone(parent: int, seconds: float = 60.0) -> bool:
    return demolish(parent, "w", "heap", time.monotonic() + seconds)


@contextmanager
def within_little() -> Iterator[None]:
    """Ten more open files and fifty more calls in each other at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    deepest = sys.getrecursionlimit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 11, hard))
    sys.setrecursionlimit(len(inspect.stack(0)) + 50)
    try:
        yield
    finally:
        sys.setrecursionlimit(deepest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def nested(top: Path, depth: int, name: str) -> None:
    folder = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(folder)
        folder = inner
    os.close(folder)


def test_what_is_not_there_is_gone(parent: int, tmp_path: Path) -> None:
    assert gone(parent)
    assert list(tmp_path.iterdir()) == []


def test_files_of_every_kind(parent: int, tmp_path: Path) -> None:
    work = tmp_path / "w"
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "file").write_text("text")
    (work / "empty").mkdir()
    os.mkfifo(work / "a" / "fifo")
    (work / "loop").symlink_to("loop")
    (work / "nowhere").symlink_to("/does/not/exist")
    os.close(os.open(os.fsencode(work / "a") + b"/\xff\n", os.O_CREAT | os.O_WRONLY))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "socket"))
    (work / "1").mkdir()  # as directories are called that wait for their end
    (work / "1" / "2").mkdir()
    assert gone(parent)
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed(parent: int, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    (outside / "kept" / "file").write_text("kept")
    (tmp_path / "w" / "inner").mkdir(parents=True)
    (tmp_path / "w" / "folder").symlink_to(outside)
    (tmp_path / "w" / "inner" / "folder").symlink_to("../../outside/kept")
    (tmp_path / "w" / "file").symlink_to(outside / "kept" / "file")
    assert gone(parent)
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "outside",
        "outside/kept",
        "outside/kept/file",
    ]


@pytest.mark.parametrize("instead", ["link", "file"])
def test_something_else_in_place_of_the_directory(instead: str, parent: int, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    if instead == "link":
        (tmp_path / "w").symlink_to("outside")
    else:
        (tmp_path / "w").touch()
    assert gone(parent)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "outside"]


def test_deeper_than_a_path_the_stack_or_the_open_files(parent: int, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    nested(tmp_path / "w", 150, "n" * 100)
    with within_little():
        assert gone(parent)
    assert list(tmp_path.iterdir()) == []


def test_wide(parent: int, tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / "w" / str(number)).mkdir(parents=True)
        for inner in range(20):
            (tmp_path / "w" / str(number) / str(inner)).touch()
    with within_little():
        assert gone(parent)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_100_000_files(parent: int, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    for number in range(100_000):
        os.close(os.open(tmp_path / "w" / str(number), os.O_CREAT | os.O_WRONLY))
    assert gone(parent)
    assert list(tmp_path.iterdir()) == []


def test_modes_that_forbid_it(parent: int, tmp_path: Path) -> None:
    for mode in range(0o000, 0o1000, 0o100):
        folder = tmp_path / "w" / oct(mode)
        (folder / "inner" / "innermost").mkdir(parents=True)
        (folder / "inner" / "file").touch(0o000)
        (folder / "inner").chmod(mode)
        folder.chmod(mode)
    (tmp_path / "w").chmod(0o000)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(CHILD), str(tmp_path), "demolish", "w"]
    ended = subprocess.run(command, env=environment, timeout=30, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("True\n", "")
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_done_in_time_is_gone_on_with(parent: int, tmp_path: Path) -> None:
    (tmp_path / "w" / "inner").mkdir(parents=True)
    (tmp_path / "w" / "file").touch()
    (tmp_path / "w" / "inner" / "file").touch()
    assert not gone(parent, -1.0)
    assert not gone(parent, -1.0)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    (tmp_path / "w").mkdir()  # whoever writes there has not noticed
    assert gone(parent)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_said_once_all_else_is_gone(
    parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "w" / name).mkdir(parents=True)
        (tmp_path / "w" / name / name).touch()
    unlink = os.unlink

    def refusing(name: str, *, dir_fd: int | None = None) -> None:
        if name == "b":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch, pytest.raises(PermissionError, match="not permitted"):
        patch.setattr(os, "unlink", refusing)
        gone(parent)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b"]
    assert gone(parent)
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_meanwhile_goes_too(parent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w" / "inner").mkdir(parents=True)
    (tmp_path / "w" / "inner" / "file").touch()
    rmdir = os.rmdir
    writes = iter(["late", "later"])

    def overtaken(name: str, *, dir_fd: int | None = None) -> None:
        if (tmp_path / "heap").exists() and (late := next(writes, None)) is not None:
            os.close(os.open(f"heap/{name}/{late}", os.O_CREAT | os.O_WRONLY, dir_fd=parent))
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", overtaken)
    assert gone(parent)
    assert list(tmp_path.iterdir()) == []

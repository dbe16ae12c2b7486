"""Files are written over only when nobody could notice."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path

import pytest

from adescent.ledger.files import write_unseen


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A file that has served, on a file system that can tell whether it is open."""
    path = tmp_path / "served"
    path.write_bytes(b"what it was for")
    with path.open("r+b") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            pytest.skip("this file system grants no leases")
    return path


@pytest.mark.parametrize("data", [b"", b"short", b"longer than what was in there before" * 1000])
@pytest.mark.parametrize("sync", [True, False])
def test_a_file_nobody_has_is_written_over(served: Path, data: bytes, sync: bool) -> None:
    inode = served.stat().st_ino
    write_unseen(str(served), data, sync=sync)
    assert served.read_bytes() == data
    assert served.stat().st_ino == inode


def test_a_file_somebody_reads_is_replaced(served: Path) -> None:
    with served.open("rb") as reader:
        write_unseen(str(served), b"new", sync=False)
        assert reader.read() == b"what it was for"
    assert served.read_bytes() == b"new"


def test_a_file_that_is_mapped_into_memory_is_replaced(served: Path) -> None:
    handle = os.open(served, os.O_RDONLY)
    mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    os.close(handle)
    with mapped:
        write_unseen(str(served), b"new", sync=False)
        assert mapped[:] == b"what it was for"
    assert served.read_bytes() == b"new"


def test_a_file_with_another_name_is_replaced(served: Path) -> None:
    other = served.with_name("other")
    other.hardlink_to(served)
    write_unseen(str(served), b"new", sync=False)
    assert other.read_bytes() == b"what it was for"
    assert served.read_bytes() == b"new"


def test_where_there_are_no_leases_files_are_replaced(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("fcntl.fcntl", refused)
    inode = served.stat().st_ino
    kept = served.open("rb")
    write_unseen(str(served), b"new", sync=False)
    assert served.read_bytes() == b"new"
    assert served.stat().st_ino != inode
    kept.close()


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    write_unseen(str(tmp_path / "new"), b"data", sync=True)
    assert (tmp_path / "new").read_bytes() == b"data"

"""Streams that cannot be written to: the command ends as a program of Unix does, and says one line or none."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

pytest.importorskip("cyclopts")
pytest.importorskip("rich")

from adescent.cli import main
from adescent.domains import router

QUICK = ("demo", "--delay", "0", "--workers", "3", "--calls", "2000")
WRITERS = [(*QUICK,), (*QUICK, "--json"), ("demo", "--help"), ("--help",), ("--version",)]
FULL = Path("/dev/full")
PATIENCE = 60.0

needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture(autouse=True)
def temporary_files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@contextmanager
def abandoned_pipe() -> Iterator[TextIO]:
    """What stdout is when its reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_it_quietly(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with abandoned_pipe() as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(arguments) == 141
        monkeypatch.undo()
    assert capsys.readouterr().err == ""


@needs_full_device
@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_a_full_disk_is_one_line_and_1(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with FULL.open("w", encoding="utf-8") as disk:
        monkeypatch.setattr(sys, "stdout", disk)
        assert main(arguments) == 1
        monkeypatch.undo()
    assert capsys.readouterr().err == "adescent: standard output cannot be written: No space left on device.\n"


def test_what_broke_a_run_is_said_also_where_nobody_reads_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("out of words")

    with monkeypatch.context() as patched, abandoned_pipe() as pipe:
        patched.setattr(router, "_proposer", lambda *_: broken)
        patched.setattr(sys, "stdout", pipe)
        assert main(QUICK) == 141
    assert "out of words" in capsys.readouterr().err


def test_no_letter_is_worth_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    assert main(["demo", "--help"]) == 0
    narrow.seek(0)
    assert r"\u2026" in narrow.read()


def test_no_place_for_temporary_files_is_one_line_and_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert main([*QUICK]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "give --run-dir" in line


SHELL = {
    "closed pipe": ("{} | head -c 0; exit ${{PIPESTATUS[0]}}", 141, ""),
    "full disk": ("{} > /dev/full", 1, "No space left on device.\n"),
    "no stdout": ("{} >&-", 1, "redirect it to a file.\n"),
    "no stderr": ("{} --nonsense 2>&-", 2, ""),
    "full stderr": ("{} --nonsense 2> /dev/full", 2, ""),
    "closed pipe for both": ("{} --nonsense 2>&1 | head -c 0; exit ${{PIPESTATUS[0]}}", 2, ""),
}


@needs_full_device
@pytest.mark.parametrize(("line", "code", "end"), SHELL.values(), ids=SHELL)
def test_the_interpreter_has_nothing_to_add_at_its_exit(line: str, code: int, end: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m adescent {' '.join(QUICK)} --json --run-dir {tmp_path / 'run'}"
    ran = subprocess.run(
        ["bash", "-c", line.format(command)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.endswith(end)
    assert len(ran.stderr.splitlines()) == (1 if end else 0)

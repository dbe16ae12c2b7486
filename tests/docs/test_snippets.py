"""The pages do what they say: every Python block is run, and what a line is said to print is what it prints.

A block that begins with a file's name, as in ``# actors.py``, becomes that file. A shell block may run it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType

import pytest
from attrs import frozen

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])

SECONDS = 60.0

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<source>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"# → (.*)$", re.MULTILINE)
_FILE = re.compile(r"# (\w+\.py)\n")
_SCRIPT = re.compile(r"python (\w+\.py)")


@frozen
class Block:
    """A fenced block: its language, its text, and the line of the page it starts at."""

    language: str
    source: str
    line: int


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        Block(found["info"].strip(), found["source"], text.count("\n", 0, found.start("source")))
        for found in _FENCE.finditer(text)
    ]


class Reading:
    """A page that is read from top to bottom: what it has defined and written down, and what has yet to be printed."""

    def __init__(self, page: Path, namespace: dict[str, object]) -> None:
        self.page = page
        self.promised: dict[str, list[str]] = {}
        self._namespace = namespace

    def go_through(self, block: Block) -> None:
        """Do what a block says. Raises AssertionError when it does not print what it says it does."""
        if block.language == "sh":
            for command in block.source.splitlines():
                self._enter(command)
        elif block.language == "python" and (named := _FILE.match(block.source)):
            Path(named[1]).write_text(block.source, encoding="utf-8")
            self.promised[named[1]] = _SAID.findall(block.source)
        elif block.language == "python":
            _check_said(_SAID.findall(block.source), self._run(block), f"{self.page.name}:{block.line}")

    def _run(self, block: Block) -> str:
        code = compile("\n" * block.line + block.source, str(self.page), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self._namespace)
        return printed.getvalue()

    def _enter(self, command: str) -> None:
        """Run the command if it looks at a ledger, or runs a file of the page; the others install things."""
        if command.startswith("git ") and shutil.which("git"):
            subprocess.run(command, shell=True, check=True, capture_output=True, timeout=SECONDS)
        elif script := _SCRIPT.fullmatch(command):
            _check_said(self.promised.pop(script[1]), _printed_by(script[1]), f"{self.page.name}: {script[1]}")


def _printed_by(script: str) -> str:
    """What a file of the page prints as a program of its own, which finds what this process finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, f"{script} ended with {ran.returncode} and said\n{ran.stderr}"
    return ran.stdout


def _check_said(said: list[str], printed: str, where: str) -> None:
    if said:
        seen = [line for line in printed.splitlines() if line in said]
        assert seen == said, f"{where} printed\n{printed}"


@pytest.fixture
def bounded() -> Iterator[None]:
    """End a page that hangs; from outside, since a page runs event loops of its own."""

    def give_up(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the page is not done after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty folder to work in, from which modules can be imported, and a module to run a page in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    return page


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_the_page_runs(page: Path, elsewhere: ModuleType) -> None:
    before = set(sys.modules)
    reading = Reading(page, vars(elsewhere))
    try:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            reading.go_through(block)
        assert not any(reading.promised.values()), f"{page.name} does not run what it says prints something"
    finally:
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(Path.cwd())):
                del sys.modules[name]


def test_no_block_escapes_by_a_misspelt_language() -> None:
    known = {"python", "sh", "text"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert {block.language for block in blocks_of(text)} <= known, page.name
        assert text.count("```") == 2 * len(blocks_of(text)), f"{page.name} has a fence that does not end"


def test_a_ledger_is_looked_at_in_one_way() -> None:
    pytest.importorskip("rich")
    from adescent.cli.tables import where_to_look

    commands = [
        (page.stem, command)
        for page in PAGES
        for block in blocks_of(page.read_text(encoding="utf-8"))
        for command in block.source.splitlines()
        if block.language == "sh" and command.startswith("git ")
    ]
    assert {command.split("ledger.git ")[0] for _, command in commands} == {"git --git-dir runs/desks/"}
    assert ("README", where_to_look("runs/desks/ledger.git").splitlines()[-1]) in commands


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        ("```python\nprint(1 + 1)  # → 3\n```\n", r"page\.md:3 printed\s+2"),
        ("```python\n# lie.py\nprint(1 + 1)  # → 3\n```\n\n```sh\npython lie.py\n```\n", r"lie\.py printed\s+2"),
        ("```python\n# lie.py\nprint(1 / 0)\n```\n\n```sh\npython lie.py\n```\n", "ZeroDivisionError"),
    ],
    ids=["a block", "a script", "a script that breaks"],
)
def test_a_lie_is_found_out(lie: str, found: str, elsewhere: ModuleType) -> None:
    *before, last = blocks_of(f"# Title\n\n{lie}")
    reading = Reading(Path("page.md"), vars(elsewhere))
    for block in before:
        reading.go_through(block)
    with pytest.raises(AssertionError, match=found):
        reading.go_through(last)


def test_a_script_is_a_program_of_its_own(elsewhere: ModuleType) -> None:
    page = "```python\n# own.py\nprint(__name__)  # → __main__\n```\n\n```sh\npip install this\npython own.py\n```\n"
    reading = Reading(Path("page.md"), vars(elsewhere))
    script, shell = blocks_of(page)
    reading.go_through(script)
    assert reading.promised == {"own.py": ["__main__"]}
    reading.go_through(shell)
    assert not reading.promised

"""The pages do what they say: every Python block is run, and what a line is said to print is what it prints."""

from __future__ import annotations

import contextlib
import io
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


def execute(block: Block, page: Path, namespace: dict[str, object]) -> str:
    """Run a block and return what it printed; a block that begins with a file's name becomes that file instead."""
    if named := _FILE.match(block.source):
        Path(named[1]).write_text(block.source, encoding="utf-8")
        return ""
    code = compile("\n" * block.line + block.source, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


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
    try:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language == "python":
                printed = execute(block, page, vars(elsewhere))
                if said := _SAID.findall(block.source):
                    seen = [line for line in printed.splitlines() if line in said]
                    assert seen == said, f"{page.name}:{block.line}: the block printed\n{printed}"
            elif block.language == "sh" and block.source.startswith("git ") and shutil.which("git"):
                for command in block.source.splitlines():
                    subprocess.run(command, shell=True, check=True, capture_output=True, timeout=30)
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


def test_a_block_that_lies_is_found_out(elsewhere: ModuleType) -> None:
    (block,) = blocks_of("# Title\n\n```python\nprint(1 + 1)  # → 3\n```\n")
    printed = execute(block, Path("page.md"), vars(elsewhere))
    assert (block.line, printed, _SAID.findall(block.source)) == (3, "2\n", ["3"])

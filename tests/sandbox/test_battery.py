"""Hostile candidates as real rollouts: what is found is what the documentation says, level by level."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import adescent
from adescent.sandbox import LEVELS, Level, reach
from adescent.workspec import SandboxSpec

REPOSITORY = Path(__file__).parents[2]
BATTERY = REPOSITORY / "benchmarks" / "hostile.py"
PAGE = REPOSITORY / "docs" / "sandbox.md"
IMPORTABLE = {**os.environ, "PYTHONPATH": str(Path(adescent.__file__).parent.parent)}
SECONDS, SECONDS_FOR_ALL = 120.0, 500.0

WORDS = {"stopped": "stopped", "contained": "contained", "not": "**no**", "": "–"}
AS_ROOT = "; as root "
CAP_SYS_RESOURCE = 24

TRIED_BY_ISOLATED = (
    *("own environment", "parent's environment", "own objects", "held-out file", "forged answer", "patched scorer"),
    *("scorer's file", "TCP out", "UDP", "parent killed", "never ends"),
)
QUICK: Mapping[Level, tuple[str, ...]] = {
    "limits": ("own environment", "files in its workspace", "never ends"),
    "landlock": TRIED_BY_ISOLATED,
    "bubblewrap": (*TRIED_BY_ISOLATED, "left its group"),
}

Findings = dict[str, dict[str, Any]]
"""By attempt."""


@contextmanager
def battery(level: Level, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The battery at one level, in a process of its own, which ends what its candidates leave."""
    command = [sys.executable, "-B", str(BATTERY), "--json", "--levels", level, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, env=IMPORTABLE, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.terminate()


def findings(process: subprocess.Popen[str], seconds: float) -> Findings:
    out, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    return {finding["attempt"]: finding for finding in map(json.loads, out.splitlines())}


def is_reached(level: Level) -> bool:
    return reach(SandboxSpec(level=level)) == level


def need(level: Level) -> None:
    if not is_reached(level):
        pytest.skip(f"{level} cannot be reached on this machine")


@pytest.fixture(scope="module")
def quickly() -> dict[Level, Findings]:
    """What a quick part of the battery finds at the levels that are reached, all at once."""
    with ExitStack() as stack:
        levels = [level for level in QUICK if is_reached(level)]
        running = {level: stack.enter_context(battery(level, "--only", *QUICK[level])) for level in levels}
        return {level: findings(process, SECONDS) for level, process in running.items()}


@pytest.fixture(scope="module")
def page() -> dict[str, dict[Level, str]]:
    """What the table of the page says, by attempt (in words) and level."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| a candidate tries to |"))
    end = next(at for at, line in enumerate(lines) if at > start and not line.startswith("|"))
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[start:end]]
    assert [cell.strip(" `") for cell in head[1:]] == list(LEVELS)
    return {words: dict(zip(LEVELS, cells, strict=True)) for words, *cells in rows}


def may_be_found(cell: str) -> set[str]:
    """The words for what is found where a cell says this; it may say something else for root with all rights."""
    ordinary, _, as_root = cell.partition(AS_ROOT)
    if os.geteuid() != 0 or not as_root:
        return {ordinary}
    status = Path("/proc/self/status").read_text(encoding="ascii")
    held = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return {as_root} if held >> CAP_SYS_RESOURCE & 1 else {ordinary, as_root}


def check(finding: Mapping[str, Any], page: Mapping[str, Mapping[Level, str]]) -> None:
    """The page says what was found."""
    may_be = may_be_found(page[finding["words"]][finding["level"]])
    if "**no**" in may_be and os.geteuid() != 0:
        return  # what a level lets through the machine may stop: it is set up in many ways
    assert WORDS[finding["verdict"]] in may_be, finding


@pytest.mark.parametrize(("level", "attempt"), [(level, name) for level in QUICK for name in QUICK[level]])
def test_a_level_stops_or_contains_what_it_is_for(
    quickly: dict[Level, Findings], page: dict[str, dict[Level, str]], level: Level, attempt: str
) -> None:
    need(level)
    finding = quickly[level][attempt]
    assert finding["verdict"] in ("stopped", "contained"), finding
    check(finding, page)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_the_page_says_what_the_whole_battery_finds(page: dict[str, dict[Level, str]], level: Level) -> None:
    need(level)
    with battery(level) as process:
        found = findings(process, SECONDS_FOR_ALL)
    assert [finding["words"] for finding in found.values()] == list(page)
    for finding in found.values():
        check(finding, page)
        if level == "bubblewrap":
            assert finding["verdict"] in ("stopped", "contained"), finding


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox is always a namespace of users")
def test_so_it_is_where_a_sandbox_is_no_user_of_its_own(page: dict[str, dict[Level, str]]) -> None:
    need("bubblewrap")
    with battery("bubblewrap", "--closed") as process:
        for finding in findings(process, SECONDS_FOR_ALL).values():
            assert finding["verdict"] in ("stopped", "contained"), finding
            check(finding, page)


def test_without_confinement_nothing_is_stopped_but_what_a_worker_never_gets(page: dict[str, dict[Level, str]]) -> None:
    harmless = {words for words, cells in page.items() if cells["none"] in ("stopped", "contained")}
    assert len(harmless) <= len(page) // 5, harmless

"""Every benchmark can be run small; what is no benchmark has a leading underscore, which `nox -s bench` skips."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import adescent

BENCHMARKS = sorted((Path(__file__).parent.parent / "benchmarks").glob("[!_]*.py"))
IMPORTABLE = {**os.environ, "PYTHONPATH": str(Path(adescent.__file__).parent.parent)}


@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda script: script.stem)
def test_it_can_be_run_small(script: Path) -> None:
    command = [sys.executable, str(script), "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=IMPORTABLE)
    assert ran.returncode == 0, ran.stderr
    assert "--smoke" in ran.stdout


def benchmark_module(name: str) -> ModuleType:
    """A neighbour that benchmarks import, without putting their folder on the path of all tests."""
    found = importlib.util.spec_from_file_location(name, BENCHMARKS[0].with_name(f"{name}.py"))
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_picture_needs_nothing_else_and_says_what_it_shows() -> None:
    widths = (1, 2, 4, 8)
    rates = {
        "inline": {width: 49.0 * width for width in widths},
        "thread": {width: 45.0 * width for width in widths},
        "process": {width: 40.0 * width for width in widths},
        "floor": {2: 99.0},
    }
    picture = benchmark_module("_throughput_figure").draw({"wait": rates, "compute": rates})
    root = ElementTree.fromstring(picture)
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"inline, async", "threads", "processes", "two bare processes: the floor"} <= set(words)
    assert words.count("workers") == words.count("tasks per second") == 2
    assert all(words.count(str(width)) >= 2 for width in widths)
    assert "prefers-color-scheme: dark" in picture
    assert "href" not in picture
    assert "url(" not in picture

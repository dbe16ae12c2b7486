"""Every benchmark can be run small; what is no benchmark has a leading underscore, which `nox -s bench` skips."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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

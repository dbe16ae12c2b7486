"""Git itself as a witness: what the ledger wrote must be a sound repository to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Git = Callable[..., str]


@pytest.fixture(scope="session")
def git() -> Git:
    """Return a function that runs git in a folder and gives what it said; the test fails when git fails."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    plain = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}

    def run(folder: Path | str, *arguments: str) -> str:
        command = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=plain, check=False)
        assert ran.returncode == 0, f"git {' '.join(arguments)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    return run


@pytest.fixture(scope="session")
def is_sound(git: Git) -> Callable[[Path | str], None]:
    """Return a function that fails unless git finds everything in a repository in order."""

    def check(folder: Path | str) -> None:
        said = git(folder, "fsck", "--full", "--strict", "--no-dangling").splitlines()
        assert [line for line in said if "unborn" not in line] == []

    return check

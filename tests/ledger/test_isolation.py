"""Whatever the user's git is set up to do, the ledger does what it always does, and touches nothing of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from adescent.evolvable import Evolvable
from adescent.ledger import MemoryLedger

CHILD = """
import sys
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger
ledger = GitLedger(sys.argv[1])
ledger.register(Evolvable("rules", {"a": "1"}))
ledger.commit(Evolvable("rules", {"a": "2"}), 1, message="m", decision={"Decision": "kept"})
ledger.promote("rules", 2)
ledger.close()
print(ledger.log()[0].tree)
"""
HOSTILE = """
[user]
    name = Somebody Else
    email = else@example.org
    signingkey = nobody
[commit]
    gpgsign = true
[gpg]
    program = {marker}
[core]
    hooksPath = {hooks}
    fsync = none
    sharedRepository = 0777
    autocrlf = true
    compression = 0
[diff]
    noprefix = true
[init]
    defaultBranch = elsewhere
    templateDir = {hooks}
[extensions]
    objectFormat = sha256
[safe]
    directory = /nowhere
"""
BROKEN = "[core\n  this is no configuration"


def run(folder: Path, **environment: str) -> str:
    plain = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**plain, **environment}, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout.strip()


def homes(tmp_path: Path, config: str) -> dict[str, str]:
    """A home whose git configuration, in all three places, is the given one, with hooks that leave a mark."""
    hooks, marker = tmp_path / "hooks", tmp_path / "marker"
    hooks.mkdir()
    for hook in ("reference-transaction", "pre-commit", "post-commit", "update", "post-update"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
        (hooks / hook).chmod(0o755)
    home = tmp_path / "home"
    text = config.format(hooks=hooks, marker=marker) if config is HOSTILE else config
    for path in (home / ".gitconfig", home / ".config" / "git" / "config", home / "system"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "GIT_CONFIG_SYSTEM": str(home / "system"),
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
    }


def expected_tree() -> str:
    twin = MemoryLedger()
    twin.register(Evolvable("rules", {"a": "1"}))
    twin.commit(Evolvable("rules", {"a": "2"}), 1)
    return twin.log()[0].tree


def test_a_hostile_configuration_changes_nothing(tmp_path: Path, git: Callable[..., str]) -> None:
    folder = tmp_path / "ledger"
    assert run(folder, **homes(tmp_path, HOSTILE)) == expected_tree()
    assert not (tmp_path / "marker").exists()
    assert git(folder, "log", "-1", "--format=%an <%ae>", "dev").strip() == "adescent <adescent@localhost>"
    assert "gpgsig" not in git(folder, "cat-file", "commit", "dev")
    assert git(folder, "symbolic-ref", "HEAD").strip() == "refs/heads/dev"
    assert not (folder / "hooks").exists()


def test_a_configuration_that_cannot_be_read_is_not_read(tmp_path: Path) -> None:
    assert run(tmp_path / "ledger", **homes(tmp_path, BROKEN)) == expected_tree()


def test_gits_environment_variables_lead_nowhere_else(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    variables = {
        "GIT_DIR": str(elsewhere),
        "GIT_WORK_TREE": str(elsewhere),
        "GIT_OBJECT_DIRECTORY": str(elsewhere),
        "GIT_INDEX_FILE": str(elsewhere),
        "GIT_AUTHOR_NAME": "Somebody Else",
        "GIT_COMMITTER_DATE": "1970-01-01T00:00:00",
        "GIT_CONFIG_COUNT": "not a number",
    }
    assert run(tmp_path / "ledger", **variables) == expected_tree()
    assert not elsewhere.exists()


def test_a_home_that_is_not_there_is_no_matter(tmp_path: Path) -> None:
    assert run(tmp_path / "ledger", HOME="/nowhere") == expected_tree()


def test_the_twin_in_memory_needs_no_pygit2() -> None:
    script = "import sys; from adescent.ledger import MemoryLedger; MemoryLedger(); print('pygit2' in sys.modules)"
    plain = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=plain, check=True
    )
    assert ran.stdout.strip() == "False"

"""The ledger of agentdescent, measured in an interpreter that has it: a line ``what seconds`` in, a rate out.

It needs nothing of adescent, and takes its turns with the contenders of ``benchmarks/ledger.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE = {f"rule-{number:02d}": "x" * 44 for number in range(16)}


class Artifact:
    """As much of an artifact as its ledger looks at."""

    def __init__(self, id: str, turn: int) -> None:
        self.id = id
        self.turn = turn


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


def seed(folder: Path, count: int) -> None:
    """A repository in agentdescent's layout, made at once: registering a thousand artifacts takes it minutes."""
    (folder / "artifacts").mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "b")
    git(folder, "config", "user.email", "b@b")
    for number in range(count):
        document = {"version": 1, "state": {"state": STATE, "turn": 0}}
        path = folder / "artifacts" / f"a{number:04d}.json"
        path.write_text(json.dumps(document, indent=2, sort_keys=True))
    versions = {f"a{number:04d}": 1 for number in range(count)}
    (folder / "versions.json").write_text(json.dumps(versions, indent=2, sort_keys=True))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "seed")
    git(folder, "branch", "-f", "dev")
    git(folder, "branch", "-m", "stable")


def operations(folder: Path, count: int) -> dict[str, Callable[[], Any]]:
    from agentdescent.ledger import Ledger  # type: ignore[import-not-found]

    seed(folder, count)
    book = Ledger(
        str(folder),
        serialize=lambda artifact: {"state": STATE, "turn": artifact.turn},
        deserialize=lambda id, version, state: Artifact(id, version),
    )
    versions = book.snapshot(Ledger.DEV).version
    turn = 0

    def commit() -> None:
        nonlocal turn
        name, turn = f"a{turn % count:04d}", turn + 1
        _, versions[name] = book.commit(Artifact(name, turn), {name: versions[name]})

    return {
        "commit": commit,
        "snapshot": lambda: book.snapshot(Ledger.DEV),
        "head": lambda: book.head_version(Ledger.DEV),
    }


def main() -> None:
    operation = operations(Path(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        what, seconds = line.split()
        done, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < float(seconds):
            operation[what]()
            done += 1
        print(done / elapsed, flush=True)


if __name__ == "__main__":
    main()

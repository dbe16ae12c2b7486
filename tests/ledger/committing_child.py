"""A process that commits until it is killed, or kills itself before its n-th change to a file.

usage: committing_child.py FOLDER DURABILITY COMMITS [DIE_AT]

It prints the version of each commit that has returned.
"""

from __future__ import annotations

import os
import signal
import sys

from attrs import evolve

from adescent.errors import UnknownArtifact
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger, packing

CHANGES_FILES = {"open", "os.link", "os.mkdir", "os.remove", "os.rename"}


def die_at(step: int, folder: str) -> None:
    """Kill this process right before the ``step``-th time it touches a file of the ledger."""
    left = step

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES_FILES and str(arguments[0]).startswith(folder):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def main() -> None:
    folder, durability, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Few commits, and yet packs are put together on every level.
    packing.GATHERED_COMMITS, packing.GATHERED_PACKS = 4, 2
    packing.LEVELS = ((12, 128 * 2**10), (40, 2**20), (100, 8 * 2**20))
    if len(sys.argv) > 4:
        die_at(int(sys.argv[4]), folder)
    ledger = GitLedger(folder, durability="durable" if durability == "durable" else "fast")
    try:
        head = ledger.head("counter")
    except UnknownArtifact:
        head = ledger.register(Evolvable("counter", {"count": "0", "padding": "x" * 500}))
        print(head.version, flush=True)  # noqa: T201 - what it is for
    for _ in range(commits):
        following = evolve(head, state={**head.state, "count": str(head.version)})
        head = ledger.commit(following, head.version)
        print(head.version, flush=True)  # noqa: T201 - what it is for
        if head.version % 5 == 0:
            ledger.promote("counter", head.version)
    ledger.close()


if __name__ == "__main__":
    main()

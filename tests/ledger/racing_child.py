"""A process that races others for one ledger, told what to do line by line.

``open FOLDER``: make or open it, register the counter, say ``registered``.
``count FOLDER N``: N times read the counter and commit it one higher, trying again when it was overtaken; say how
often that was.
"""

from __future__ import annotations

import sys

from attrs import evolve

from adescent.errors import CASConflict
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger, packing


def count(ledger: GitLedger, times: int) -> int:
    """Raise the counter so many times; return how often somebody else was faster."""
    overtaken = done = 0
    while done < times:
        head = ledger.head("counter")
        higher = evolve(head, state={"count": str(int(head.state["count"]) + 1)})
        try:
            ledger.commit(higher, head.version)
            done += 1
        except CASConflict:
            overtaken += 1
    return overtaken


def answer(what: str, folder: str, *times: str) -> str:
    ledger = GitLedger(folder, durability="fast")
    try:
        if what == "open":
            ledger.register(Evolvable("counter", {"count": "0"}))
            return "registered"
        return str(count(ledger, int(times[0])))
    finally:
        ledger.close()


def main() -> None:
    # Packs are put together under everybody's hands all the time.
    packing.GATHERED_COMMITS, packing.GATHERED_PACKS = 3, 2
    packing.LEVELS = ((12, 128 * 2**10), (40, 2**20), (100, 8 * 2**20))
    print("ready", flush=True)  # noqa: T201 - what it is for
    for line in sys.stdin:
        print(answer(*line.split()), flush=True)  # noqa: T201 - what it is for


if __name__ == "__main__":
    main()

"""Hostile candidates as real rollouts, at each level of confinement: what was stopped, contained, or not.

    python benchmarks/hostile.py                        the table (about 4 minutes)
    python benchmarks/hostile.py --markdown             the same, as the documentation has it
    python benchmarks/hostile.py --levels bubblewrap --only "fork bomb" "flood"
    python benchmarks/hostile.py --smoke                a few of them, to see that it runs

Whether an attempt worked is told by what it was aimed at (a file, a listener, a process, the score of the next
rollout), and never by what it says. *Stopped*: no effect was seen. *Contained*: what there was is gone one second after
the end of the rollout, or its deadline. The rollouts run in workers of a process that is there to be hurt. All that is
tried is bounded: 100 processes, 250 MB of disk, 700 MB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from _hostile.attempts import BATTERY, Attempt
from _hostile.scene import Scene
from _hostile.trial import Finding, find_out
from _processes import adopt_orphans, end_all
from attrs import asdict

from adescent.sandbox import LEVELS, Level, reach
from adescent.workspec import SandboxSpec

SMOKE = ("own environment", "held-out file", "never ends")
WORDS = {"stopped": "stopped", "contained": "contained", "not": "**no**", "": "–"}
WIDTH = 58


def findings(levels: Iterable[Level], attempts: list[Attempt], *, closed: bool) -> Iterator[Finding]:
    """What comes of all attempts at all levels."""
    for level in levels:
        with ExitStack() as stack:
            scene = Scene(level, stack, closed=closed)
            for attempt in attempts:
                if attempt.in_a_workspace and level == "none":
                    yield Finding(level, attempt.name, attempt.words, "")
                else:
                    yield find_out(scene, attempt)


def chosen(names: Iterable[str]) -> list[Attempt]:
    """The attempts of these names in the order of the battery; all if there are none."""
    battery = [attempt for group in BATTERY.values() for attempt in group]
    if unknown := set(names) - {attempt.name for attempt in battery}:
        raise SystemExit(f"there is no attempt {', '.join(map(repr, sorted(unknown)))}.")
    return [attempt for attempt in battery if not names or attempt.name in names]


def reachable(levels: Iterable[Level]) -> Iterator[Level]:
    """Those that work here; of the others, that they do not."""
    for level in levels:
        reached = reach(SandboxSpec(level=level))
        if reached == level:
            yield level
        else:
            print(f"{level} cannot be reached here, only {reached}.", file=sys.stderr)


def table(found: list[Finding], levels: list[Level]) -> Iterator[str]:
    """Lines: attempts by group, a column a level."""
    cells = {(each.attempt, each.level): each for each in found}
    yield f"{'a candidate tries to':{WIDTH}}" + "".join(f"{level:>20}" for level in levels)
    for group, attempts in BATTERY.items():
        rows = [attempt for attempt in attempts if (attempt.name, levels[0]) in cells]
        if rows:
            yield f"{group}:"
        for attempt in rows:
            row = (_in_words(cells[attempt.name, level]) for level in levels)
            yield f"  {attempt.words:{WIDTH - 2}}" + "".join(f"{each:>20}" for each in row)


def _in_words(finding: Finding) -> str:
    word = WORDS[finding.verdict].strip("*")
    return word if finding.seconds is None else f"{word}, {finding.seconds:.2f} s"


def markdown(found: list[Finding], levels: list[Level]) -> Iterator[str]:
    """The same for the documentation, without figures."""
    cells = {(each.attempt, each.level): WORDS[each.verdict] for each in found}
    yield f"| a candidate tries to | {' | '.join(f'`{level}`' for level in levels)} |"
    yield "|---" * (len(levels) + 1) + "|"
    for attempt in chosen([each.attempt for each in found]):
        yield f"| {attempt.words} | {' | '.join(cells[attempt.name, level] for level in levels)} |"


def main() -> None:
    """Try, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS)
    parser.add_argument("--only", nargs="+", metavar="ATTEMPT", default=())
    parser.add_argument("--closed", action="store_true", help="with code in the way that only its owner can read")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true", help="a line for each finding instead of a table")
    options = parser.parse_args()
    adopt_orphans()
    levels = list(reachable(options.levels))
    found = []
    try:
        for finding in findings(levels, chosen(SMOKE if options.smoke else options.only), closed=options.closed):
            found.append(finding)
            if options.json:
                print(json.dumps(asdict(finding)), flush=True)
    finally:
        end_all()
    if found and not options.json:
        print(f"{platform.system()} {platform.release()}, as {'root' if os.geteuid() == 0 else 'an ordinary user'}")
        print("\n".join((markdown if options.markdown else table)(found, levels)))


if __name__ == "__main__":
    main()

"""Three-way merge of texts by lines.

A line is what lies between two line feeds, so a text without a final line feed and one with it differ by a last, empty
line, a carriage return is part of its line, and splitting and joining give back every text exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, takewhile

from attrs import frozen

__all__ = ["Merge", "merge_lines"]

# Pairs of equal lines that may be looked at to align one side with the base: some 20 ms, where 16 000 equal lines
# would need minutes. A merge of many cards aligns many texts, and every one with several others.
_MOST_COMPARISONS = 200_000


_Run = tuple[int, int, int]  # equal lines: position in the base, position in the side, how many


@frozen
class Merge:
    """What merging came to: the merged ``text`` and no conflicts, or ``None`` and how many there are."""

    text: str | None
    conflicts: int


@frozen
class _Change:
    """The base's lines ``start`` to ``stop`` (exclusive) became ``lines`` on one side."""

    start: int
    stop: int
    lines: Sequence[str]
    ours: bool


def merge_lines(base: str, ours: str, theirs: str) -> Merge:
    """Merge two descendants of one text: diff3 (Khanna, Kunal, Pierce, "A Formal Investigation of Diff3", 2007).

    Changes of the two sides are independent when at least one line that both left alone lies between them; the same
    change on both sides is taken once; anything else is a conflict, and then there is no text. The two sides are
    treated alike. Where lines repeat so often that aligning them would take too long, the part not yet aligned counts
    as changed: the merge may then report a conflict that patience would have resolved, never a wrong text.
    """
    if ours == theirs or theirs == base:
        return Merge(ours, 0)
    if ours == base:
        return Merge(theirs, 0)
    lines = base.split("\n")
    changes = [*_changes(lines, ours.split("\n"), ours=True), *_changes(lines, theirs.split("\n"), ours=False)]
    merged: list[str] = []
    position = conflicts = 0
    for group in _touching(changes):
        start, stop = group[0].start, max(change.stop for change in group)
        versions = [_applied(lines, start, stop, side) for side in _by_side(group)]
        conflicts += any(version != versions[0] for version in versions)
        merged += lines[position:start] + versions[0]
        position = stop
    return Merge(None, conflicts) if conflicts else Merge("\n".join(merged + lines[position:]), 0)


def _touching(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    """Group changes, in the base's order, so that an untouched line lies between any two groups."""
    group: list[_Change] = []
    stop = 0
    for change in sorted(changes, key=lambda change: (change.start, change.stop)):
        if group and change.start > stop:
            yield group
            group = []
        stop = max(stop, change.stop) if group else change.stop
        group.append(change)
    if group:
        yield group


def _by_side(group: Sequence[_Change]) -> Iterator[list[_Change]]:
    """Split a group into the changes of each side that has any."""
    for ours in (True, False):
        if side := [change for change in group if change.ours is ours]:
            yield side


def _applied(lines: Sequence[str], start: int, stop: int, changes: Iterable[_Change]) -> list[str]:
    """Return the base's lines ``start`` to ``stop`` as one side has them."""
    version: list[str] = []
    for change in changes:
        version += [*lines[start : change.start], *change.lines]
        start = change.stop
    return [*version, *lines[start:stop]]


def _changes(base: Sequence[str], side: Sequence[str], *, ours: bool) -> Iterator[_Change]:
    """Yield what one side changed, in order; an equal line lies between any two of its changes."""
    i = j = 0
    for start, other, size in (*_equal_runs(base, side), (len(base), len(side), 0)):
        if i < start or j < other:
            yield _Change(i, start, side[j:other], ours)
        i, j = start + size, other + size


def _equal_runs(base: Sequence[str], side: Sequence[str]) -> Iterator[_Run]:
    """Yield the aligned runs in order: common head and tail, lines that occur once, and what lies between those."""
    shorter = min(len(base), len(side))
    head = _common(zip(base, side, strict=False))
    tail = min(_common(zip(reversed(base), reversed(side), strict=False)), shorter - head)
    base_end, side_end = len(base) - tail, len(side) - tail
    yield 0, 0, head
    i = j = head
    budget = _MOST_COMPARISONS
    for run in (*_anchors(base[head:base_end], side[head:side_end]), (base_end - head, side_end - head, tail)):
        start, other, size = head + run[0], head + run[1], run[2]
        between, budget = _aligned(base[i:start], side[j:other], budget)
        yield from ((i + k, j + m, length) for k, m, length in between)
        yield start, other, size
        i, j = start + size, other + size


def _common(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _anchors(base: Sequence[str], side: Sequence[str]) -> list[_Run]:
    """Return the longest increasing sequence of lines that occur once on either side (Bram Cohen's patience diff)."""
    in_base, in_side = Counter(base), Counter(side)
    position = {line: j for j, line in enumerate(side)}
    once = [(i, position[line]) for i, line in enumerate(base) if in_base[line] == 1 == in_side[line]]
    ends: list[int] = []  # by length of a sequence: the lowest position in `side` that one can end at
    lengths: list[int] = []
    for _, j in once:
        length = bisect_left(ends, j)
        ends[length : length + 1] = [j]
        lengths.append(length)
    anchors: list[_Run] = []
    wanted = len(ends) - 1
    for (i, j), length in zip(reversed(once), reversed(lengths), strict=True):
        if length == wanted and (not anchors or j < anchors[-1][1]):
            anchors.append((i, j, 1))
            wanted -= 1
    return anchors[::-1]


def _aligned(base: Sequence[str], side: Sequence[str], budget: int) -> tuple[list[_Run], int]:
    """Align by the longest equal run, then before and after it, and return the runs and what is left of the budget.

    The alignment is that of ``SequenceMatcher.get_matching_blocks``, which knows no bound.
    """
    runs: list[_Run] = []
    matcher = SequenceMatcher(None, base, side, autojunk=False)
    occurrences = Counter(side)
    cost = list(accumulate((1 + occurrences[line] for line in base), initial=0))
    gaps = [(0, len(base), 0, len(side))]
    while gaps:
        start, stop, other_start, other_stop = gaps.pop()
        if start == stop or other_start == other_stop:
            continue
        budget -= cost[stop] - cost[start]
        if budget < 0:
            break
        i, j, size = matcher.find_longest_match(start, stop, other_start, other_stop)
        if size:
            runs.append((i, j, size))
            gaps += [(start, i, other_start, j), (i + size, stop, j + size, other_stop)]
    return sorted(runs), budget

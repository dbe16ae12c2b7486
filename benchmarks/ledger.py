"""Commits and reads a second of the ledger, beside a bare pygit2 loop that writes the same objects, and others.

    python benchmarks/ledger.py [--smoke] [--folder DIR] [--agentdescent-python PATH]

All contenders take turns within one run, in windows of a fraction of a second, and each figure is the median over its
windows: a disk that is slow for a while is so for all of them. Files that are removed make ext4 slow at creating new
ones for minutes; so nothing is cleared away before the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import count, pairwise
from operator import truediv
from pathlib import Path
from statistics import median

import pygit2
from attrs import evolve, frozen
from pygit2.enums import FileMode, Option

from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger
from adescent.ledger.codec import encode, file_name, shard_of, stored
from adescent.ledger.packing import PackFolder

STATE = {f"rule-{number:02d}": "x" * 44 for number in range(16)}  # about 1 KiB as JSON
PEER = Path(__file__).with_name("_ledger_peer.py")
PLAIN_GIT = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
STRETCH = 50
Rate = Callable[[float], float]


@frozen
class Sizes:
    """How much is measured."""

    artifacts: tuple[int, ...]
    windows: int
    seconds: float
    long_run: int


FULL = Sizes((1, 100, 1000), 11, 0.3, 10_000)
SMOKE = Sizes((1, 20), 2, 0.05, 1000)


def rate_of(operation: Callable[[], object]) -> Rate:
    """Operations a second over a window of some seconds."""

    def rate(seconds: float) -> float:
        done, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            operation()
            done += 1
        return done / elapsed

    return rate


def names(many: int) -> list[str]:
    return [f"a{number:04d}" for number in range(many)]


# Contenders: each gives rates by what is measured ---------------------------------------------------------------------


def committing(folder: Path, many: int, durability: str) -> tuple[GitLedger, Callable[[], None]]:
    """A ledger, and what commits to an artifact of it after the other, one line of its state changed each time."""
    book = GitLedger(folder, durability="durable" if durability == "durable" else "fast")
    heads = [book.register(Evolvable(name, STATE)) for name in names(many)]
    turn = 0

    def commit() -> None:
        nonlocal turn
        place, turn = turn % many, turn + 1
        head = heads[place]
        state = {**head.state, "rule-07": f"{turn:044d}"}
        heads[place] = book.commit(evolve(head, state=state), head.version, message="m", decision={"Decision": "kept"})

    return book, commit


def ledger(folder: Path, many: int, durability: str) -> dict[str, Rate]:
    book, commit = committing(folder, many, durability)
    reads = {"snapshot": rate_of(book.snapshot), "head": rate_of(lambda: book.head("a0000"))}
    return {"commit": rate_of(commit), **reads}


def documents(name: str) -> Iterator[bytes]:
    """An artifact's blobs, version after version, as the ledger writes them, at the cost of a replacement each."""
    artifact = stored(Evolvable(name, {**STATE, "rule-07": "%044d"}), 10**8)
    template = encode(artifact).replace(b"%", b"%%").replace(b"%%044d", b"%044d").replace(b"100000000", b"%d")
    for turn in count(1):
        yield template % (turn, turn)


def bare(folder: Path, many: int, durability: str) -> dict[str, Rate]:
    """The same blobs, trees and commits through pygit2, as directly as it goes, loose as libgit2 writes them."""
    repository = pygit2.init_repository(str(folder), bare=True)
    me = pygit2.Signature("adescent", "adescent@localhost")
    blobs = {name: documents(name) for name in names(many)}
    folders: dict[str, pygit2.TreeBuilder] = {}
    for name, versions in blobs.items():
        builder = folders.setdefault(shard_of(name), repository.TreeBuilder())
        builder.insert(file_name(name), repository.create_blob(next(versions)), FileMode.BLOB)
    root = repository.TreeBuilder()
    for shard, builder in folders.items():
        root.insert(shard, builder.write(), FileMode.TREE)
    repository.create_commit("refs/heads/dev", me, me, "m", root.write(), [])
    order, turn = names(many), 0

    def commit() -> None:
        nonlocal turn
        name, turn = order[turn % many], turn + 1
        branch = repository.references["refs/heads/dev"]
        parent = repository[branch.target]
        assert isinstance(parent, pygit2.Commit)
        inner = repository.TreeBuilder(parent.tree[shard_of(name)])
        inner.insert(file_name(name), repository.create_blob(next(blobs[name])), FileMode.BLOB)
        outer = repository.TreeBuilder(parent.tree)
        outer.insert(shard_of(name), inner.write(), FileMode.TREE)
        message = f"m\n\nArtifact: {name}@{turn}\nDecision: kept\n"
        branch.set_target(repository.create_commit(None, me, me, message, outer.write(), [parent.id]))

    def snapshot() -> list[object]:
        parent = repository[repository.references["refs/heads/dev"].target]
        assert isinstance(parent, pygit2.Commit)
        return [json.loads(blob.data) for tree in parent.tree for blob in tree]

    rates = {"commit": rate_of(commit), "snapshot": rate_of(snapshot)}
    return {what: synced(rate) if durability == "durable" else rate for what, rate in rates.items()}


def synced(rate: Rate) -> Rate:
    """libgit2's switch is for the whole process, so it is on for the window only."""

    def with_sync(seconds: float) -> float:
        pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)
        try:
            return rate(seconds)
        finally:
            pygit2.option(Option.ENABLE_FSYNC_GITDIR, False)

    return with_sync


def plumbing(folder: Path, many: int) -> dict[str, Rate]:
    """Git's own commands, five a commit, with an index file."""

    def git(*arguments: str, stdin: bytes = b"") -> str:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments], input=stdin, capture_output=True, check=True, env=PLAIN_GIT
        )
        return ran.stdout.decode().strip()

    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True, env=PLAIN_GIT)
    git("config", "user.name", "b")
    git("config", "user.email", "b@b")
    blobs = {name: documents(name) for name in names(many)}
    head, turn, order = "", 0, names(many)

    def stage(name: str) -> None:
        blob = git("hash-object", "-w", "--stdin", stdin=next(blobs[name]))
        git("update-index", "--add", "--cacheinfo", f"100644,{blob},{shard_of(name)}/{file_name(name)}")

    def commit() -> None:
        nonlocal head, turn
        name, turn = order[turn % many], turn + 1
        stage(name)
        parent = ["-p", head] if head else []
        following = git("commit-tree", git("write-tree"), *parent, "-m", "m")
        git("update-ref", "refs/heads/dev", following, *([head] if head else []))
        head = following

    for name in order:
        stage(name)
    return {"commit": rate_of(commit)}


class Peer:
    """Another interpreter, with agentdescent, that takes its turns when told to."""

    def __init__(self, python: str, folder: Path, many: int) -> None:
        command = [python, str(PEER), str(folder), str(many)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rates(self) -> dict[str, Rate]:
        """What it can be asked for."""
        return {what: partial(self._ask, what) for what in ("commit", "snapshot", "head")}

    def _ask(self, what: str, seconds: float) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {seconds}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate("", timeout=60)


# The run --------------------------------------------------------------------------------------------------------------


def compare(folder: Path, many: int, sizes: Sizes, python: str | None) -> None:
    """Measure all contenders at one number of artifacts, and print their figures and ratios."""
    peer = Peer(python, folder / "agentdescent", many) if python else None
    contenders = {
        "ledger durable": ledger(folder / "durable", many, "durable"),
        "bare durable": bare(folder / "bare-durable", many, "durable"),
        "ledger fast": ledger(folder / "fast", many, "fast"),
        "bare fast": bare(folder / "bare-fast", many, "fast"),
        "git plumbing": plumbing(folder / "plumbing", many),
        **({"agentdescent": peer.rates()} if peer else {}),
    }
    print(f"\n{many} artifact{'s' if many > 1 else ''}, operations a second, medians of {sizes.windows}")
    for what in ("commit", "snapshot", "head"):
        taking_part = {name: rates[what] for name, rates in contenders.items() if what in rates}
        samples: dict[str, list[float]] = {name: [] for name in taking_part}
        for turn in range(sizes.windows):
            # In another order each time, since who comes after a heavy writer finds a busy disk.
            for name in random.Random(turn).sample(list(taking_part), len(taking_part)):
                samples[name].append(taking_part[name](sizes.seconds))
        show(what, samples)
    if peer:
        peer.close()


def show(what: str, samples: dict[str, list[float]]) -> None:
    """Medians of the rates, and medians of the ratios within each turn: in a turn all have the same disk."""
    print(f"  {what:9s}" + "  ".join(f"{name} {median(sample):,.0f}" for name, sample in samples.items()))
    for mine in ("ledger durable", "ledger fast"):
        others = [other for other in ("bare " + mine.split()[1], "git plumbing", "agentdescent") if other in samples]
        ratios = {other: median(map(truediv, samples[mine], samples[other])) for other in others}
        if ratios:
            print(f"           {mine} = " + ", ".join(f"{ratio:.2f} x {other}" for other, ratio in ratios.items()))


def long_run(folder: Path, durability: str, commits: int) -> None:
    """Many commits to ten artifacts: does the rate hold, and what lies in the folder afterwards.

    Rates are medians over stretches of 50 commits, which hold the packing and leave out what stops a disk now and then.
    """
    _, aged = committing(folder / "aged", 10, durability)
    pauses = watch_packing()
    times, sizes = [time.perf_counter()], []
    for turn in range(commits):
        aged()
        times.append(time.perf_counter())
        if (turn + 1) % (commits // 4) == 0:
            found = [path for path in (folder / "aged").rglob("*") if path.is_file()]
            sizes.append((len(found), sum(path.stat().st_size for path in found) // 1024))
    tenth = commits // 10
    first, last = (median_rate(stretches(part)) for part in (times[: tenth + 1], times[-1 - tenth :]))
    slowest = max(after - before for before, after in pairwise(times))
    print(f"\n{commits:,} commits, {durability}: first {tenth} at {first:,.0f}/s, last {tenth} at {last:,.0f}/s,")
    print(f"  which is {last / first:.2f} x the first", end="; ")
    _, young = committing(folder / "young", 10, durability)
    print(f"in turns with the first {tenth} of another ledger {in_turns(young, aged, tenth):.2f} x")
    print("  files and KiB at each quarter: " + ", ".join(f"{files} / {size}" for files, size in sizes))
    print(
        f"  packing: {len(pauses)} slices, median {median(wall for wall, _ in pauses) * 1e3:.1f} ms,"
        f" longest {max(pauses)[0] * 1e3:.1f} ms ({max(cpu for _, cpu in pauses) * 1e3:.1f} ms of processor at most);"
        f" slowest commit {slowest * 1e3:.1f} ms"
    )


def stretches(times: list[float]) -> list[float]:
    """How long each stretch of commits took, given when each of them ended."""
    return [after - before for before, after in pairwise(times[::STRETCH])]


def median_rate(taken: list[float]) -> float:
    return STRETCH / median(taken)


def in_turns(young: Callable[[], None], aged: Callable[[], None], commits: int) -> float:
    """How fast the aged one is, in units of the young one, while both have the same disk."""
    taken: dict[Callable[[], None], list[float]] = {young: [], aged: []}
    for turn in range(max(1, commits // STRETCH)):
        for commit in (young, aged) if turn % 2 else (aged, young):
            start = time.perf_counter()
            for _ in range(STRETCH):
                commit()
            taken[commit].append(time.perf_counter() - start)
    return median_rate(taken[aged]) / median_rate(taken[young])


def watch_packing() -> list[tuple[float, float]]:
    """From now on, how long each packing slice takes, and how much of the processor, in seconds."""
    pauses: list[tuple[float, float]] = []
    pack_slice = PackFolder.pack_slice

    def timed(self: PackFolder, *, closing: bool = False) -> bool:
        start, worked = time.perf_counter(), time.thread_time()
        try:
            return pack_slice(self, closing=closing)
        finally:
            pauses.append((time.perf_counter() - start, time.thread_time() - worked))

    PackFolder.pack_slice = timed  # type: ignore[method-assign]
    return pauses


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--smoke", action="store_true", help="seconds instead of minutes, to see that it runs")
    options.add_argument("--folder", help="where to write; a temporary folder otherwise")
    options.add_argument(
        "--agentdescent-python",
        default=os.environ.get("AGENTDESCENT_PYTHON"),
        help="an interpreter with agentdescent, to measure its ledger beside (AGENTDESCENT_PYTHON)",
    )
    chosen = options.parse_args()
    sizes = SMOKE if chosen.smoke else FULL
    folder = Path(tempfile.mkdtemp(prefix="ledger-bench-", dir=chosen.folder))
    print(f"python {sys.version.split()[0]}, pygit2 {version('pygit2')}, {os.cpu_count()} cores, in {folder.parent}")
    if not chosen.agentdescent_python:
        print("agentdescent is left out: name an interpreter that has it with --agentdescent-python")
    try:
        for durability in ("fast", "durable"):
            long_run(folder / f"long-{durability}", durability, sizes.long_run)
        for many in sizes.artifacts:
            compare(folder / str(many), many, sizes, chosen.agentdescent_python)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

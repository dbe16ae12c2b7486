"""Several processes and threads at one ledger: nothing that was acknowledged is lost, nothing is made twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Barrier, Thread

import pytest
from attrs import evolve

from adescent.errors import CASConflict
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger, MemoryLedger
from adescent.ledger.versioned import VersionedLedger

CHILD = Path(__file__).with_name("racing_child.py")
Sound = Callable[[Path | str], None]


class Racer:
    """A child that waits for the start; what it says is read without waiting for ever, since its end is an answer."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD)], stdin=pipe, stdout=pipe, text=True, env=environment
        )
        assert self.hear() == "ready"

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def racers(number: int) -> Iterator[list[Racer]]:
    with ExitStack() as stack:
        running = [Racer() for _ in range(number)]
        for racer in running:
            stack.callback(racer.process.communicate, timeout=30)
        yield running


def test_three_processes_lose_no_update(tmp_path: Path, is_sound: Sound) -> None:
    folder = tmp_path / "ledger"
    with racers(3) as running:
        running[0].tell("open", folder)
        assert running[0].hear() == "registered"
        for racer in running:
            racer.tell("count", folder, 40)
        assert all(racer.hear().isdigit() for racer in running)
    with closing(GitLedger(folder)) as ledger:
        assert ledger.head("counter").state == {"count": "120"}
        assert ledger.head("counter").version == 121
        assert [entry.version for entry in ledger.history("counter")] == list(range(121, 0, -1))
    is_sound(folder)


def test_two_processes_create_one_ledger(tmp_path: Path, is_sound: Sound) -> None:
    create_at_once(5, tmp_path, is_sound)


@pytest.mark.slow
def test_two_processes_create_one_ledger_50_times(tmp_path: Path, is_sound: Sound) -> None:
    create_at_once(50, tmp_path, is_sound)


def create_at_once(times: int, tmp_path: Path, is_sound: Sound) -> None:
    with racers(2) as running:
        for turn in range(times):
            folder = tmp_path / "not" / "there" / f"ledger-{turn}"
            for racer in running:
                racer.tell("open", folder)
            assert [racer.hear() for racer in running] == ["registered", "registered"]
            with closing(GitLedger(folder)) as ledger:
                assert len(ledger.log()) == 1
            is_sound(folder)


@pytest.mark.parametrize("shared", [True, False])
def test_threads_lose_no_update(shared: bool, tmp_path: Path) -> None:
    first = GitLedger(tmp_path / "ledger", durability="fast")
    first.register(Evolvable("counter", {"count": "0"}))
    ledgers = [first if shared else GitLedger(tmp_path / "ledger", durability="fast") for _ in range(4)]
    run_in_threads(ledgers, 15)
    assert first.head("counter").state == {"count": "60"}
    for ledger in ledgers:
        ledger.close()


def test_threads_lose_no_update_in_memory() -> None:
    ledger = MemoryLedger()
    ledger.register(Evolvable("counter", {"count": "0"}))
    run_in_threads([ledger] * 4, 100)
    assert ledger.head("counter").state == {"count": "400"}


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_in_threads(ledgers: list[VersionedLedger] | list[GitLedger] | list[MemoryLedger], times: int) -> None:
    start = Barrier(len(ledgers), timeout=30)

    def count(ledger: VersionedLedger) -> None:
        start.wait()
        done = 0
        while done < times:
            head = ledger.head("counter")
            try:
                ledger.commit(evolve(head, state={"count": str(int(head.state["count"]) + 1)}), head.version)
                done += 1
            except CASConflict:
                continue

    threads = [Thread(target=count, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_a_branch_that_git_moves_meanwhile_is_built_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program that takes git's lock but not the ledger's: the commit is built again on what is there then."""
    ledger = GitLedger(tmp_path / "ledger", durability="fast")
    ledger.register(Evolvable("counter", {"count": "0"}))
    ledger.commit(Evolvable("counter", {"count": "1"}), 1)
    ledger.register(Evolvable("other", {"text": "a"}))
    branch = tmp_path / "ledger" / "refs" / "heads" / "dev"
    tips = [entry.id for entry in ledger.log()]
    add, moves = ledger._keeper._packs.add, iter(tips[1:])  # type: ignore[attr-defined]

    def add_and_move(objects: object) -> None:
        add(objects)
        for tip in moves:
            branch.write_text(f"{tip}\n")
            break

    monkeypatch.setattr(ledger._keeper._packs, "add", add_and_move)  # type: ignore[attr-defined]
    # The branch went back to before "other" came, then to before the counter's second version.
    with pytest.raises(CASConflict):
        ledger.commit(Evolvable("counter", {"count": "2"}), 2)
    assert ledger.head("counter").version == 1
    monkeypatch.undo()
    assert ledger.commit(Evolvable("counter", {"count": "2"}), 1).version == 2

"""What a rollout leaves running is found wherever it is listed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from adescent.executors.child.offspring import Offspring

BOUND = 10.0
ENDED = (-signal.SIGKILL, 0)
"""Nobody can say how a process ended once it has been reaped elsewhere."""


class Holder:
    """A thread that has started a process, whose parent it is until it ends."""

    def __init__(self) -> None:
        self._started, self._over = Event(), Event()
        self._thread = Thread(target=self._hold)
        self._thread.start()
        assert self._started.wait(BOUND)

    def _hold(self) -> None:
        self.child = subprocess.Popen(["sleep", "600"])
        self._started.set()
        self._over.wait(BOUND)

    def end(self) -> None:
        """Have the thread end, and wait until the system has forgotten it."""
        self._over.set()
        deadline = monotonic() + BOUND
        while Path(f"/proc/self/task/{self._thread.native_id}").exists():
            assert monotonic() < deadline
            os.sched_yield()
        self._thread.join(BOUND)


@pytest.fixture
def holder() -> Iterator[Holder]:
    holder = Holder()
    yield holder
    holder.end()
    holder.child.kill()
    holder.child.wait(BOUND)


def test_children_of_all_threads_are_ended(holder: Holder) -> None:
    offspring = Offspring()
    other = Holder()
    offspring.end()
    other.end()
    assert other.child.wait(BOUND) in ENDED
    assert holder.child.poll() is None, "it was there before"


def test_a_child_that_changes_hands_while_it_is_looked_for_is_ended(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    offspring = Offspring()
    offspring._kept.clear()
    read = Path.read_text

    def read_and_pass_on(listing: Path, **options: Any) -> str:
        text = read(listing, **options)
        if listing.parent.name == str(os.getpid()):  # whose the child is from now on
            holder.end()
        return text

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", read_and_pass_on)
        offspring.end()
    assert holder.child.wait(BOUND) in ENDED

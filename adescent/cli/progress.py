"""What one sees of a demo while it goes on, on a terminal's stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from adescent.telemetry import ArtifactCommitted, Event, RoundFinished, RunFinished, RunStarted

__all__ = ["LiveView"]


class LiveView:
    """Two lines that move: the run that merges, then the forks. Fed with events; a context manager.

    ``calls`` is what the run may spend, and so the length of its bar. Of forks only commits are told apart, so theirs
    has no length until they are done.
    """

    def __init__(self, calls: int, forks: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("held-out {task.fields[held_out]:.3f} · {task.fields[commits]} commits"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._calls = calls
        self._merge = self._progress.add_task("merge", total=calls, held_out=0.0, commits=0)
        self._fork = self._progress.add_task(f"{forks} forks", total=None, start=False, held_out=0.0, commits=0)
        self._forks_left = forks
        self._best = 0.0
        self._commits = {self._merge: 0, self._fork: 0}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def merge_event(self, event: Event) -> None:
        """Something happened in the run that merges."""
        match event:
            case RunStarted(seed_reward=float(reward)):
                self._progress.update(self._merge, held_out=reward)
            case RoundFinished(calls=calls):
                self._progress.update(self._merge, completed=calls)
            case ArtifactCommitted(held_out=float(reward)):
                self._committed(self._merge, reward)
            case RunFinished():
                self._done(self._merge)

    def fork_event(self, event: Event) -> None:
        """Something happened in one of the forks."""
        match event:
            case RunStarted(seed_reward=float(reward)):
                self._progress.start_task(self._fork)
                self._progress.update(self._fork, held_out=max(self._best, reward))
            case ArtifactCommitted(held_out=float(reward)):
                self._best = max(self._best, reward)
                self._committed(self._fork, self._best)
            case RunFinished():
                self._forks_left -= 1
                if self._forks_left == 0:
                    self._done(self._fork)

    def _committed(self, line: TaskID, held_out: float) -> None:
        self._commits[line] += 1
        self._progress.update(line, held_out=held_out, commits=self._commits[line])

    def _done(self, line: TaskID) -> None:
        self._progress.update(line, total=self._calls, completed=self._calls)
        self._progress.stop_task(line)

"""What one sees of a demo while it goes on, on a terminal's stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar

from adescent.cli.wording import counted
from adescent.telemetry import ArtifactCommitted, Event, RoundFinished, RunFinished, RunStarted

__all__ = ["LiveView"]

MEASURING, WAITING, NONE = "measuring the start", "waiting", "no figure"

BROKEN_OFF = ("cancelled", "error")
"""Ends of a run that are no work done."""

SHORTEST, LONGEST = 3, 40
BESIDE = 47
"""Columns that are not the bar's. Two at the end stay free: with ``^C`` a full line would go on in the next one."""


class LiveView:
    """Two lines that move: the run that merges, then the forks. Fed with events; a context manager.

    ``calls`` is what the run may spend, and so the length of its bar. Of forks only commits are told apart, so theirs
    has no length until they are done.
    """

    def __init__(self, calls: int, forks: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            _Bar(bar_width=min(LONGEST, max(SHORTEST, console.width - BESIDE))),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._calls = calls
        self._merge = self._progress.add_task("merge", total=calls, figures=MEASURING)
        self._fork = self._progress.add_task(counted(forks, "fork"), total=None, start=False, figures=WAITING)
        self._forks_left = forks
        self._best = 0.0
        self._commits = {self._merge: 0, self._fork: 0}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._progress.tasks:
            if line.fields["figures"] in (MEASURING, WAITING):
                self._progress.update(line.id, figures=NONE)
            if line.started and not line.finished:
                self._progress.stop_task(line.id)
        self._progress.stop()

    def merge_event(self, event: Event) -> None:
        """Something happened in the run that merges."""
        match event:
            case RunStarted(seed_reward=float(reward)):
                self._measured(self._merge, reward)
            case RoundFinished(calls=calls):
                self._progress.update(self._merge, completed=calls)
            case ArtifactCommitted(held_out=float(reward)):
                self._committed(self._merge, reward)
            case RunFinished(stop_reason=reason):
                self._ended(self._merge, reason)

    def fork_event(self, event: Event) -> None:
        """Something happened in one of the forks."""
        match event:
            case RunStarted(seed_reward=float(reward)):
                self._progress.start_task(self._fork)
                self._best = max(self._best, reward)
                self._measured(self._fork, self._best)
            case ArtifactCommitted(held_out=float(reward)):
                self._best = max(self._best, reward)
                self._committed(self._fork, self._best)
            case RunFinished(stop_reason=reason):
                self._forks_left -= 1
                if self._forks_left == 0:
                    self._ended(self._fork, reason)

    def _committed(self, line: TaskID, held_out: float) -> None:
        self._commits[line] += 1
        self._measured(line, held_out)

    def _measured(self, line: TaskID, held_out: float) -> None:
        commits = self._commits[line]
        self._progress.update(line, figures=f"held-out {held_out:.3f} · {counted(commits, 'commit')}")

    def _ended(self, line: TaskID, reason: str) -> None:
        if reason not in BROKEN_OFF:
            self._progress.update(line, total=self._calls, completed=self._calls)
            self._progress.stop_task(line)


class _Bar(BarColumn):
    """Moves for work of unknown length while it goes on, and lies still before and after."""

    def render(self, task: Task) -> ProgressBar:
        """The bar as it is now."""
        bar = super().render(task)
        bar.pulse = False
        if bar.total is None and (task.start_time is None or task.stop_time is not None):
            bar.total = 1.0
        return bar

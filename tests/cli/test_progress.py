from __future__ import annotations

import io
import re

import pytest

pytest.importorskip("rich")

from rich.console import Console

from adescent.cli import progress
from adescent.cli.progress import LiveView
from adescent.telemetry import ArtifactCommitted, Event, RunFinished, RunStarted

STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PULSE = "38;2;"
"""Only a bar that pulses is painted in colours between two others."""


def started() -> RunStarted:
    return RunStarted(elapsed=0, artifact_id="a", schedule="stream", n_workers=1, tasks={}, seed_reward=0.25, resumed=0)


def committed(version: int) -> ArtifactCommitted:
    return ArtifactCommitted(elapsed=0, artifact_id="a", version=version, held_out=0.5, cards=1)


def finished(reason: str) -> RunFinished:
    return RunFinished(elapsed=0, stop_reason=reason, error="", final_reward=None)


def left_behind(
    monkeypatch: pytest.MonkeyPatch, *merge: Event, forks: tuple[Event, ...] = (), width: int = 80
) -> list[str]:
    """The two lines that stay, with their styles, after these events and the end."""
    screen = io.StringIO()

    def console(**_: bool) -> Console:
        return Console(file=screen, force_terminal=True, color_system="truecolor", width=width, legacy_windows=False)

    monkeypatch.setattr(progress, "Console", console)
    view = LiveView(100, 1)
    with view:
        for event in merge:
            view.merge_event(event)
        for event in forks:
            view.fork_event(event)
    return [line for line in re.split(r"[\r\n]+", screen.getvalue()) if STYLE.sub("", line).strip()][-2:]


def test_a_line_without_a_figure_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    merge, forks = left_behind(monkeypatch, started(), finished("cancelled"))
    assert "held-out 0.250 · 0 commits" in STYLE.sub("", merge)
    assert "no figure" in STYLE.sub("", forks)
    assert "0.000" not in forks


def test_nothing_moves_or_is_complete_after_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    for begun in ((), (started(),)):
        for line in left_behind(monkeypatch, *begun, finished("cancelled"), forks=(*begun, finished("cancelled"))):
            assert PULSE not in line
            assert "38;5;70" not in line, "a full bar"


def test_commits_are_counted_in_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    merge, forks = left_behind(
        monkeypatch, started(), committed(2), finished("rounds"), forks=(started(), committed(2), committed(3))
    )
    assert STYLE.sub("", merge).split("held-out ")[1].startswith("0.500 · 1 commit ")
    assert "2 commits" in STYLE.sub("", forks)
    assert STYLE.sub("", forks).startswith("1 fork ")


@pytest.mark.parametrize("width", [50, 80, 200])
def test_two_columns_stay_free_for_what_the_terminal_echoes(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = [committed(version) for version in range(1, 13)]
    for line in left_behind(monkeypatch, started(), *commits, forks=(started(), *commits), width=width):
        assert len(STYLE.sub("", line)) <= width - 2

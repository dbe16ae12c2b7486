"""What a demo says at its end: a table for people, one JSON object for programs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from attrs import frozen
from rich.table import Table

from adescent.cli.console import OutputConsole
from adescent.cli.wording import counted
from adescent.orchestrator import ForkBaseline
from adescent.runtime.result import EvolutionResult

__all__ = ["Comparison", "print_json", "print_table", "where_to_look"]


@frozen(kw_only=True)
class Comparison:
    """What came of both sides. ``guess`` is the score of always giving the most frequent label."""

    title: str
    guess: float
    merge: EvolutionResult
    fork: ForkBaseline

    @property
    def error(self) -> str:
        """Why a side broke off, or ``""``."""
        return self.merge.error or self.fork.error


def where_to_look(ledger: str) -> str:
    """Two lines: what can be seen of a ledger, and the command to paste into a shell for that, alone on its line."""
    return f"What was kept, and why:\ngit --git-dir {shlex.quote(ledger)} log -p dev"


def print_json(comparison: Comparison) -> None:
    """Write one JSON object to stdout."""
    merge, fork = comparison.merge, comparison.fork
    json.dump(
        {
            "merge": {
                "seed_reward": merge.seed_reward,
                "held_out_reward": merge.final_reward,
                "test_reward": merge.test_reward,
                "rollouts": merge.rollouts,
                "calls": merge.calls,
                "commits": _commits(merge),
                "seconds": round(merge.elapsed, 3),
            },
            "fork": {
                "held_out_reward": fork.held_out_reward,
                "mean_held_out_reward": fork.mean_reward,
                "test_reward": fork.test_reward,
                "rollouts": fork.rollouts,
                "calls": fork.calls,
                "commits": sum(map(_commits, fork.forks)),
                "seconds": round(fork.elapsed, 3),
                "stop_reasons": [one.stop_reason for one in fork.forks],
            },
            "guess_reward": comparison.guess,
            "stop_reason": merge.stop_reason,
            "outcomes": merge.outcomes(),
            "ledger": merge.ledger,
            "resumed_from": merge.resumed_from,
            "error": comparison.error,
        },
        sys.stdout,
    )
    sys.stdout.write("\n")


def print_table(comparison: Comparison) -> None:
    """Write the closing table to stdout, with where to look further below it."""
    console = OutputConsole(highlight=False)
    table = Table(title=comparison.title, title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("merge", justify="right")
    table.add_column(f"best of {counted(len(comparison.fork.forks), 'fork')}", justify="right")
    for row in _rows(comparison):
        table.add_row(*row)
    console.print(table)
    for sentence in _sentences(comparison.merge):
        console.print(sentence, markup=False, soft_wrap=not console.is_terminal)
    # Plain, so that no terminal's width or markup gets between the command and the clipboard.
    sys.stdout.write(f"{where_to_look(comparison.merge.ledger)}\n")


def _sentences(merge: EvolutionResult) -> Iterator[str]:
    outcomes = merge.outcomes()
    told = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items(), key=_most_first))
    handed_in = sum(outcomes.values())
    yield (
        f"Of {counted(handed_in, 'change')} handed in to be merged: {told}"
        if handed_in
        else "No change was handed in to be merged."
    )
    if merge.resumed_from:
        yield f"The run was continued from version {merge.resumed_from}; the forks began anew."


def _rows(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    merge, fork = comparison.merge, comparison.fork
    guess = _figure(comparison.guess)
    yield "always the same label", guess, guess
    yield "held-out reward before", _figure(merge.seed_reward), _figure(fork.best.seed_reward)
    yield "held-out reward after", _figure(merge.final_reward), _figure(fork.held_out_reward)
    yield "mean of all forks", "", _figure(fork.mean_reward)
    if merge.test_reward is not None:
        yield "sealed test", _figure(merge.test_reward), _figure(fork.test_reward)
    yield "commits", str(_commits(merge)), str(sum(map(_commits, fork.forks)))
    yield "rollouts", f"{merge.rollouts:,}", f"{fork.rollouts:,}"
    yield "calls", f"{merge.calls:,}", f"{fork.calls:,}"
    yield "seconds", f"{merge.elapsed:.1f}", f"{fork.elapsed:.1f}"
    yield "ended by", merge.stop_reason, ", ".join(sorted({one.stop_reason for one in fork.forks}))


def _commits(result: EvolutionResult) -> int:
    return sum(row.committed for row in result.history)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _most_first(outcome: tuple[str, Any]) -> tuple[int, str]:
    name, number = outcome
    return -number, name

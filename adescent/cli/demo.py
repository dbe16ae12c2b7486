"""``adescent demo``: the same work done by workers that merge and by forks that do not."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import anyio
from attrs import frozen

from adescent.budget import Budget
from adescent.cli.exits import CANCELLED, FAILED, OK
from adescent.cli.interrupts import until_interrupted
from adescent.cli.progress import LiveView
from adescent.cli.streams import complain
from adescent.cli.tables import Comparison, print_json, print_table, where_to_look
from adescent.cli.wording import counted
from adescent.domains.domain import Domain
from adescent.domains.keywords import majority_rate
from adescent.errors import OptionError, RunDirError
from adescent.evolution import Evolution
from adescent.orchestrator import async_run_fork_baseline, options_for
from adescent.rundir import RunDirectory
from adescent.tasks import make_splits
from adescent.telemetry import Event

__all__ = ["DemoOptions", "run_demo"]

CALLS_PER_TASK = 40
"""Enough for workers that merge to learn nearly all there is."""

EVAL_CONCURRENCY = 32
PATIENCE = 40
LISTED = 4


@frozen(kw_only=True)
class DemoOptions:
    """What the command was given."""

    corpus: bool
    data: Path | None
    schedule: Literal["rounds", "stream"]
    workers: int
    seed: int
    calls: int | None
    delay: float
    run_dir: Path | None
    as_json: bool

    @property
    def test_frac(self) -> float:
        """The share of the tasks that is sealed; a made-up language needs no proof that it holds for others."""
        if self.corpus:
            return 0.4
        return 0.0 if self.data is None else 0.2

    def domain(self) -> tuple[str, Domain]:
        """What to call the work, and the work."""
        if self.corpus and self.data is not None:
            raise OptionError("--corpus and --data are both given: keep one.")
        # Each of them loaded where it is used: the utterances take a second extra.
        if self.data is not None:
            from adescent.domains.utterances import jsonl_domain

            return f"{self.data.name}: texts to their labels", jsonl_domain(self.data, delay=self.delay)
        if self.corpus:
            from adescent.domains.utterances import utterance_domain

            return "Utterances to their language", utterance_domain(seed=self.seed, delay=self.delay)
        from adescent.domains.router import router_domain

        return "Texts to a label, by keyword", router_domain(seed=self.seed, delay=self.delay)


def run_demo(options: DemoOptions) -> int:
    """Run both sides, print what came of them, and return the exit code.

    Raises ContractError for input that cannot work and RunDirError for a directory that cannot be used.
    """
    title, domain = options.domain()
    calls = _calls(options, domain)
    with _kept_if_used(options.run_dir) as directory:
        demo = _Demo(options, title, domain, calls, directory)
        comparison = anyio.run(demo.run)
    if comparison is None:
        complain(demo.cut_off())
        return CANCELLED
    try:
        (print_json if options.as_json else print_table)(comparison)
    finally:  # also where nobody reads the table
        if comparison.error:
            complain(f"the run ended with an error: {comparison.error}")
    return FAILED if comparison.error else OK


def _calls(options: DemoOptions, domain: Domain) -> int:
    """What each side may spend. Raises OptionError, before either has begun, for less than the forks need."""
    splits = make_splits(domain.tasks, test_frac=options.test_frac, seed=options.seed)
    measured = options.workers * (2 * len(splits.held_out) + len(splits.test))
    if options.calls is None:
        return max(CALLS_PER_TASK * len(domain.tasks), 2 * measured)
    if options.calls <= measured:
        raise OptionError(
            f"--calls {options.calls} does not cover the {measured} by which {counted(options.workers, 'fork')} "
            f"{'is' if options.workers == 1 else 'are'} measured before and after: give more, or fewer --workers."
        )
    return options.calls


@contextmanager
def _kept_if_used(run_dir: Path | None) -> Iterator[Path]:
    """The directory of the run. One made for it is left where a ledger is in it, and removed where none is."""
    if run_dir is not None:
        yield run_dir
        return
    try:
        made = Path(tempfile.mkdtemp(prefix="adescent-"))
    except OSError as error:
        raise RunDirError(f"no place for temporary files ({error.strerror}): give --run-dir.") from error
    try:
        yield made
    finally:
        if not RunDirectory(made, {}).ledger.exists():
            shutil.rmtree(made, ignore_errors=True)


class _Demo:
    """Both sides, one after the other, for as long as nobody presses Ctrl-C."""

    def __init__(self, options: DemoOptions, title: str, domain: Domain, calls: int, directory: Path) -> None:
        self._title = title
        self._domain = domain
        self._directory = directory
        self._view = LiveView(calls, options.workers) if sys.stderr.isatty() else None
        self._run: Evolution | None = None
        self._merged = False
        self._options: dict[str, Any] = {
            "schedule": options.schedule,
            "n_workers": options.workers,
            "seed": options.seed,
            "budget": Budget(calls=calls),
            "patience": PATIENCE,
            "target_reward": 1.0,
            "test_frac": options.test_frac,
            "eval_concurrency": EVAL_CONCURRENCY,
            "noise": "no",
        }

    async def run(self) -> Comparison | None:
        """What came of both sides, or None when it was cancelled."""
        with self._view or nullcontext():
            return await until_interrupted(self._both)

    async def _both(self) -> Comparison:
        view, domain = self._view, self._domain
        options = options_for(domain, self._watched(view.merge_event if view else None))
        async with Evolution(domain.tasks, domain.reward, run_dir=self._directory, **options) as self._run:
            merge = await self._run.result()
        self._merged = True
        fork = await async_run_fork_baseline(domain, **self._watched(view.fork_event if view else None))
        return Comparison(title=self._title, guess=majority_rate(domain.tasks), merge=merge, fork=fork)

    def _watched(self, watch: Callable[[Event], None] | None) -> dict[str, Any]:
        return {**self._options, "on_event": watch}

    def cut_off(self) -> str:
        """What to say of a demo that was cancelled: what was cut off, and where to find what was kept."""
        if self._run is None:
            return "cancelled before anything began."
        if self._merged:
            said = "cancelled while the forks were at work; the side that merges was done."
        else:
            said = f"cancelled; {_cut_off(sorted(self._run.status().under_way.values()))}"
        ledger = RunDirectory(self._directory, {}).ledger
        return f"{said}\n{where_to_look(str(ledger))}" if ledger.exists() else said


def _cut_off(tasks: Sequence[str]) -> str:
    """That rollouts on these tasks were cut off, in words, and which tasks they are on a line of its own."""
    if not tasks:
        return "no rollout was under way."
    was, whose = ("was", "Its task") if len(tasks) == 1 else ("were", "Their tasks")
    listed = ", ".join(tasks[:LISTED]) + (", …" if len(tasks) > LISTED else "")
    return f"{counted(len(tasks), 'rollout')} {was} cut off.\n{whose}: {listed}"

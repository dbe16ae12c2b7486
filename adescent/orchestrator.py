"""The reference runtimes: a `Domain` put into the words of the front door, and the baseline that never merges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Unpack

import anyio
from attrs import field, frozen

from adescent.budget import Budget
from adescent.config import Options, RunConfig, Schedule
from adescent.domains.domain import Domain
from adescent.errors import ContractError, OptionError
from adescent.evolution import async_evolve, evolve
from adescent.executors.blocking import run_blocking
from adescent.runtime.result import EvolutionResult
from adescent.sidebyside import side_by_side
from adescent.tasks import Splits, Task

__all__ = [
    "AgentDescent",
    "AsyncAgentDescent",
    "ForkBaseline",
    "async_run_fork_baseline",
    "options_for",
    "run_fork_baseline",
]

See = Literal["cluster", "all"]

OF_THE_DOMAIN = ("agent", "run", "propose", "strategy", "initial_state")


class AgentDescent:
    """A domain evolved in rounds: every worker does one rollout, everything is merged, the next round begins.

    Takes the options of ``evolve`` but those the domain brings itself. One worker is the serial baseline.
    """

    def __init__(self, domain: Domain, **options: Unpack[Options]) -> None:
        self.domain = domain
        self._options = _described(domain, options, "rounds")

    def run(self) -> EvolutionResult:
        """Run and block until it is done. Raises what ``evolve`` raises."""
        return evolve(self.domain.tasks, self.domain.reward, **self._options)


class AsyncAgentDescent:
    """A domain evolved without a barrier: workers go on while one coroutine merges what they bring.

    Takes the options of ``async_evolve`` but those the domain brings itself.
    """

    def __init__(self, domain: Domain, **options: Unpack[Options]) -> None:
        self.domain = domain
        self._options = _described(domain, options, "stream")

    async def run(self) -> EvolutionResult:
        """Run in the event loop of the caller. Raises what ``async_evolve`` raises."""
        return await async_evolve(self.domain.tasks, self.domain.reward, **self._options)


def _described(domain: Domain, options: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    if options.get("schedule", schedule) != schedule or options.get("asynchronous") not in (None, schedule == "stream"):
        other = "AsyncAgentDescent" if schedule == "rounds" else "AgentDescent"
        raise OptionError(f"this runtime is schedule={schedule!r}; for the other one use {other}.")
    return options_for(domain, {**options, "schedule": schedule})


def options_for(domain: Domain, options: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of the front door for a domain: ``options`` and what the domain brings.

    Raises OptionError where an option would replace a part of the domain.
    """
    given = [name for name in OF_THE_DOMAIN if name in options]
    if given:
        raise OptionError(f"{', '.join(given)}: the domain brings that; use attrs.evolve(domain, …) to change it.")
    return {
        **options,
        "run": domain.run,
        "propose": domain.propose,
        "strategy": domain.strategy,
        "initial_state": domain.initial_state,
    }


# Forks: what comes of working apart -----------------------------------------------------------------------------------


def _as_tuple(forks: Iterable[EvolutionResult]) -> tuple[EvolutionResult, ...]:
    return tuple(forks)


@frozen(kw_only=True)
class ForkBaseline:
    """Copies of one artifact that were evolved apart.

    All are measured on the same held-out split, which has every cluster in it. ``held_out_reward`` is that of `best`,
    the fork that did best there (the first among equals): what one would deploy who has to choose one. ``mean_reward``
    is the mean of all. ``elapsed`` is the wall time of all together, in seconds.
    """

    forks: tuple[EvolutionResult, ...] = field(converter=_as_tuple)
    elapsed: float

    @property
    def best(self) -> EvolutionResult:
        """The fork with the highest held-out figure."""
        return max(self.forks, key=lambda fork: -1.0 if fork.final_reward is None else fork.final_reward)

    @property
    def held_out_reward(self) -> float | None:
        """The held-out figure of the best fork, in [0, 1]."""
        return self.best.final_reward

    @property
    def test_reward(self) -> float | None:
        """The best fork's figure on the sealed split, in [0, 1], or None without one."""
        return self.best.test_reward

    @property
    def mean_reward(self) -> float | None:
        """Mean of the forks' held-out figures, in [0, 1], or None without any."""
        figures = [fork.final_reward for fork in self.forks if fork.final_reward is not None]
        return fmean(figures) if figures else None

    @property
    def rollouts(self) -> int:
        """Rollouts of all forks."""
        return sum(fork.rollouts for fork in self.forks)

    @property
    def calls(self) -> int:
        """Calls of all forks, for any purpose."""
        return sum(fork.calls for fork in self.forks)

    @property
    def error(self) -> str:
        """Why the first fork that broke off did, or ``""``."""
        return next((fork.error for fork in self.forks if fork.error), "")


def run_fork_baseline(domain: Domain, *, see: See = "cluster", **options: Unpack[Options]) -> ForkBaseline:
    """`async_run_fork_baseline` for scripts: blocks until it is done, in rounds by default.

    Raises LoopRunning inside an event loop.
    """
    if "asynchronous" not in options:
        options.setdefault("schedule", "rounds")
    run = partial(async_run_fork_baseline, domain, see=see, **options)
    return run_blocking(run, name="run_fork_baseline()", instead="async_run_fork_baseline(…)")


async def async_run_fork_baseline(domain: Domain, *, see: See = "cluster", **options: Unpack[Options]) -> ForkBaseline:
    """Let ``n_workers`` forks evolve a copy each, side by side, none of which ever sees what another has learnt.

    Each fork is a run with one worker. With ``see="cluster"`` it works on its own clusters only (the k-th of N forks
    on the k-th, the (k+N)-th … cluster by name; with fewer clusters than forks several work on one), with
    ``see="all"`` on all of them, each fork beginning at another task. Its gate measures on the whole held-out split, as
    that of a run that merges does.

    The options are those of ``async_evolve``. The budget's rollouts and calls are those of all forks together: they are
    split evenly, and what does not divide goes to the first; ``seconds`` is the limit of each, as they run at the same
    time. A fork's artifact is called after it (``fork-0`` …), and so is its directory below ``run_dir``. A caller's
    error in one fork ends all and is raised bare.
    """
    if see not in ("cluster", "all"):
        raise OptionError(f"see={see!r} must be 'cluster' or 'all'.")
    if "artifact_id" in options or "max_concurrency" in options:
        raise OptionError("artifact_id=, max_concurrency=: forks are named by number and have one worker each.")
    whole = RunConfig.from_options(domain.tasks, domain.reward, options_for(domain, options), "stream")
    splits = whole.splits()
    runs = [
        partial(
            async_evolve,
            _seen(splits.train, fork, whole.n_workers, see),
            domain.reward,
            **options_for(domain, _fork_options(whole, options, splits, fork)),
        )
        for fork in range(whole.n_workers)
    ]
    started = anyio.current_time()
    forks = await side_by_side(*runs, name="fork")
    return ForkBaseline(forks=forks, elapsed=anyio.current_time() - started)


def _seen(train: Sequence[Task], fork: int, n_forks: int, see: See) -> Sequence[Task]:
    """The tasks one fork works on, in the order in which it does."""
    if see == "all":
        start = fork * len(train) // n_forks
        return [*train[start:], *train[:start]]
    clusters = sorted({task.cluster for task in train})
    if clusters == [""]:
        raise ContractError("no task has meta['cluster'], which see='cluster' goes by: set it, or use see='all'.")
    own = frozenset(clusters[fork % len(clusters) :: n_forks])
    return [task for task in train if task.cluster in own]


def _fork_options(whole: RunConfig, options: Mapping[str, Any], splits: Splits, fork: int) -> dict[str, Any]:
    own: dict[str, Any] = {name: value for name, value in options.items() if name not in ("held_out_frac", "test_frac")}
    own |= {
        "n_workers": 1,
        "held_out": splits.held_out,
        "test": splits.test,
        "artifact_id": f"fork-{fork}",
        "budget": _share(whole.budget, fork, whole.n_workers),
        "run_dir": None if whole.run_dir is None else Path(whole.run_dir) / f"fork-{fork}",
    }
    return own


def _share(budget: Budget, fork: int, n_forks: int) -> Budget:
    """One fork's part. A limit too small to be split is a ContractError, as Budget itself says."""

    def part(total: int | None) -> int | None:
        return None if total is None else total // n_forks + (fork < total % n_forks)

    return Budget(rollouts=part(budget.rollouts), calls=part(budget.calls), seconds=budget.seconds)

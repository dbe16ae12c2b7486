"""The configuration of a run: every option once, with its default, checked before anything is run."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from attrs import NOTHING, Attribute, evolve, field, fields, frozen

from adescent.budget import Budget
from adescent.checks import is_number, need_share, need_whole, shown
from adescent.errors import ContractError, OptionError
from adescent.evolvable import Evolvable
from adescent.governance import ensure_not_frozen
from adescent.policies import ParallelPlan, Policies, Strategy, TaskSampler
from adescent.policies.conformance import Check, fits
from adescent.refs import Resolver
from adescent.tasks import Splits, Task, make_splits

__all__ = ["Options", "RunConfig", "Schedule", "front_door_signature"]

Schedule = Literal["rounds", "stream"]
Rows = Iterable[Task | Mapping[str, Any]]

DEFAULT_ROUNDS = 15
"""Rounds of a run that names no other end."""

ROUNDS_ONLY = {"refresh_interval": "async_ratio", "round_timeout": "rollout_timeout"}
STREAM_ONLY = {
    "async_ratio": "refresh_interval",
    "max_unmerged": "n_workers (a round has one unmerged card a unit)",
    "resync_on_commit": "refresh_interval",
}

BUNDLED = {"task_sampler": "task_sampler", "confirm_repeats": "acceptance"}
"""Keywords that say what a field of `Policies` says too."""


class Options(TypedDict, total=False):
    """The keywords of ``evolve`` and ``async_evolve``, for type checkers. See `RunConfig` for what they mean."""

    agent: Any
    run: Any
    propose: Any
    hide: Iterable[str]
    strategy: Strategy
    initial_state: Mapping[str, str] | str | None
    artifact_id: str
    blast_radius: float
    schedule: Schedule
    asynchronous: bool
    n_workers: int
    rounds: int | None
    parallel: ParallelPlan
    task_sampler: TaskSampler
    max_concurrency: int | None
    eval_concurrency: int
    async_ratio: int
    max_unmerged: int | None
    resync_on_commit: bool
    refresh_interval: int
    budget: Budget
    target_reward: float | None
    patience: int | None
    rollout_timeout: float | None
    round_timeout: float | None
    held_out_frac: float
    held_out: Rows | None
    test_frac: float
    test: Rows | None
    seed: int
    cheap_eval_tasks: int
    eval_repeats: int
    confirm_repeats: int
    noise: Literal["auto", "yes", "no"]
    oracle: Any
    oracle_budget: int
    self_verify: bool
    solved_threshold: float
    policies: Policies
    run_dir: str | Path | None
    on_event: Callable[[Any], Awaitable[None] | None] | None
    strict: bool
    allow: Iterable[str]


def _unless_default(check: Check) -> Check:
    """A check that lets None pass where it is the default."""

    def checked(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None or attribute.default is not None:
            check(instance, attribute, value)

    return checked


def _whole(least: int) -> Check:
    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        need_whole(attribute.name, value, least, ContractError)

    return _unless_default(check)


@_unless_default
def _seconds(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if not is_number(value) or not value > 0:
        raise ContractError(f"{attribute.name}={shown(value)} must be a number of seconds above 0, or None.")


@_unless_default
def _share(_: Any, attribute: Attribute[Any], value: Any) -> None:
    need_share(attribute.name, value, ContractError)


def _one_of(*choices: str) -> Callable[[Any, Attribute[Any], Any], None]:
    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value not in choices:
            raise ContractError(f"{attribute.name}={shown(value)} must be one of {', '.join(map(repr, choices))}.")

    return check


@_unless_default
def _flag(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if not isinstance(value, bool):
        raise ContractError(f"{attribute.name}={shown(value)} must be True or False.")


def _texts(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
        raise ContractError(f"{attribute.name}={value!r:.60} must be a text or a list of texts.")


def _as_texts(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, Iterable) else value


def _directory(_: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, Path):
        raise ContractError(f"{attribute.name}={shown(value)} must be the path of a directory.")
    if value is not None and not _can_be_named(value):
        raise ContractError(f"{attribute.name}={shown(value)} has characters that no path can have.")


def _can_be_named(path: Path) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _as_path(value: Any) -> Any:
    # Absolute from the start: an actor may change the working directory, and a run never leaves its place.
    return Path(value).absolute() if isinstance(value, (str, PathLike)) and value else value


@frozen(kw_only=True, eq=False)
class RunConfig:
    """What a run was asked to do: each field is a keyword of the front door.

    None of an option that belongs to one schedule means the default there.
    """

    # What is worked on, and by whom.
    tasks: Any
    reward: Any
    agent: Any = None
    run: Any = None
    propose: Any = None
    hide: tuple[str, ...] = field(default=("gold",), converter=_as_texts, validator=_texts)

    # What evolves.
    strategy: Strategy | None = field(default=None, validator=fits(Strategy))
    initial_state: Mapping[str, str] | str | None = None
    artifact_id: str = "artifact"
    blast_radius: float = 0.2

    # The loop.
    schedule: Schedule = field(default="rounds", validator=_one_of("rounds", "stream"))
    n_workers: int = field(default=4, validator=_whole(1))
    rounds: int | None = field(default=None, validator=_whole(1))
    parallel: ParallelPlan | None = field(default=None, validator=fits(ParallelPlan))
    task_sampler: TaskSampler | None = field(default=None, validator=fits(TaskSampler))
    max_concurrency: int | None = field(default=None, validator=_whole(1))
    eval_concurrency: int = field(default=8, validator=_whole(1))
    async_ratio: int | None = field(default=None, validator=_whole(0))
    max_unmerged: int | None = field(default=None, validator=_whole(1))
    resync_on_commit: bool | None = field(default=None, validator=_flag)
    refresh_interval: int | None = field(default=None, validator=_whole(1))

    # When it ends, and how long it waits.
    budget: Budget = Budget()
    target_reward: float | None = field(default=None, validator=_share)
    patience: int | None = field(default=None, validator=_whole(1))
    rollout_timeout: float | None = field(default=None, validator=_seconds)
    round_timeout: float | None = field(default=None, validator=_seconds)

    # How it measures.
    held_out_frac: float = 0.4
    held_out: Any = None
    test_frac: float = 0.0
    test: Any = None
    seed: int = field(default=0, validator=_whole(-(2**63)))
    cheap_eval_tasks: int = field(default=8, validator=_whole(1))
    eval_repeats: int = field(default=1, validator=_whole(1))
    confirm_repeats: int = field(default=2, validator=_whole(1))
    noise: str = field(default="auto", validator=_one_of("auto", "yes", "no"))
    oracle: Any = None
    oracle_budget: int = field(default=200, validator=_whole(0))
    self_verify: bool = field(default=False, validator=_flag)
    solved_threshold: float = field(default=0.999, validator=_share)

    # What it runs on, and who watches.
    policies: Policies = Policies()
    run_dir: Path | None = field(default=None, converter=_as_path, validator=_directory)
    on_event: Any = None
    strict: bool = field(default=False, validator=_flag)
    allow: tuple[str, ...] = field(default=(), converter=_as_texts, validator=_texts)

    @classmethod
    def from_options(cls, tasks: Any, reward: Any, options: Mapping[str, Any], schedule: Schedule) -> RunConfig:
        """Check the keywords of a call. ``schedule`` is the front door's own default.

        Raises OptionError for a keyword that does not exist, contradicts another or means nothing in this schedule,
        and ContractError for a value out of range.
        """
        known = {f.name for f in fields(cls)} | {"asynchronous"}
        unknown = sorted(set(options) - known)
        if unknown:
            raise OptionError(_no_such_option(unknown[0], sorted(known)))
        given = dict(options)
        given["schedule"] = _schedule_of(given, schedule)
        _refuse_other_schedule(given)
        config = cls(tasks=tasks, reward=reward, **given)
        config._check_what_evolves()
        config._check_bundle(given)
        return config._with_agent()

    def _check_what_evolves(self) -> None:
        Evolvable(self.artifact_id, blast_radius=self.blast_radius)
        ensure_not_frozen(self.artifact_id)

    def _check_bundle(self, given: Mapping[str, Any]) -> None:
        if not isinstance(self.policies, Policies):
            raise OptionError(f"policies={self.policies!r:.60} must be a Policies(...) bundle.")
        if not isinstance(self.budget, Budget):
            raise OptionError(f"budget={self.budget!r:.60} must be a Budget(...).")
        if self.noise == "no" and self.eval_repeats > 1:
            raise OptionError(
                "noise='no' and eval_repeats= contradict each other: without noise one score says it all."
            )
        for keyword, bundled in BUNDLED.items():
            if given.get(keyword) is not None and getattr(self.policies, bundled) is not None:
                raise OptionError(f"{keyword}= and Policies({bundled}=) are both given; keep one.")

    def _with_agent(self) -> RunConfig:
        if self.agent is not None:
            if self.run is not None or self.propose is not None:
                raise OptionError("agent= and run=/propose= are both given; keep one.")
            missing = [name for name in ("solve", "propose") if not callable(getattr(self.agent, name, None))]
            if missing:
                raise ContractError(f"agent={self.agent!r:.60} has no method {' and '.join(missing)}.")
            return evolve(self, agent=None, run=self.agent.solve, propose=self.agent.propose)
        if self.run is None or self.propose is None:
            raise ContractError("a run needs agent=, or both run= and propose=.")
        return self

    def with_rows_read(self) -> RunConfig:
        """The same, with tasks that can be counted and gone through again, whatever they came from."""
        rows = {name: _read(getattr(self, name)) for name in ("tasks", "held_out", "test")}
        return evolve(self, **rows)

    @property
    def n_rows(self) -> int:
        """How many rows have been read."""
        return sum(len(rows) for rows in (self.tasks, self.held_out, self.test) if isinstance(rows, tuple))

    def splits(self) -> Splits:
        """The tasks by purpose. Raises ContractError for bad ids, rows, fractions or too few tasks."""
        return make_splits(
            self.tasks,
            held_out_frac=self.held_out_frac,
            test_frac=self.test_frac,
            held_out=self.held_out,
            test=self.test,
            seed=self.seed,
        )

    def resolver(self) -> Resolver:
        """What may resolve in this run."""
        return Resolver(self.allow)

    @property
    def noisy(self) -> bool | None:
        """Whether one artifact may score differently when measured twice; None where that is to be found out."""
        if self.noise == "auto":
            return True if self.eval_repeats > 1 else None
        return self.noise == "yes"

    @property
    def total_rollouts(self) -> int | None:
        """How many leases the run hands out: rounds × workers, 15 rounds where nothing else ends it, else no limit."""
        bounded = self.budget != Budget() or self.patience is not None
        rounds = DEFAULT_ROUNDS if self.rounds is None and not bounded else self.rounds
        return None if rounds is None else rounds * self.n_workers


def _read(rows: Any) -> Any:
    return tuple(rows) if isinstance(rows, Iterable) else rows


def _no_such_option(name: str, known: list[str]) -> str:
    alike = get_close_matches(name, known, n=1)
    meant = f" Did you mean {alike[0]}=?" if alike else ""
    return f"there is no option {name}=.{meant} The options are {', '.join(known)}."


def _schedule_of(options: dict[str, Any], default: Schedule) -> Schedule:
    flag = options.pop("asynchronous", None)
    if flag is None:
        return cast(Schedule, options.get("schedule", default))
    if not isinstance(flag, bool):
        raise ContractError(f"asynchronous={flag!r} must be True or False.")
    meant: Schedule = "stream" if flag else "rounds"
    if options.get("schedule", meant) != meant:
        raise OptionError(f"asynchronous={flag} and schedule={options['schedule']!r} contradict each other; keep one.")
    return meant


def _refuse_other_schedule(options: Mapping[str, Any]) -> None:
    schedule = options["schedule"]
    foreign = STREAM_ONLY if schedule == "rounds" else ROUNDS_ONLY
    for name in foreign:
        if options.get(name) is not None:
            raise OptionError(f"{name}= means nothing with schedule={schedule!r}; there it is {foreign[name]}.")


def front_door_signature(schedule: Schedule) -> Signature:
    """The signature that ``help()`` shows for the front door: one keyword for each field of `RunConfig`."""
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("tasks", "reward")]
    for attribute in fields(RunConfig):
        if attribute.name in ("tasks", "reward"):
            continue
        default = schedule if attribute.name == "schedule" else attribute.default
        assert default is not NOTHING
        parameters.append(Parameter(attribute.name, Parameter.KEYWORD_ONLY, default=default))
    parameters.append(Parameter("asynchronous", Parameter.KEYWORD_ONLY, default=None))
    return Signature(parameters)

"""What a run reports: the artifact it ended with, its figures, and how everything that was tried ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from attrs import field, frozen

from adescent.policies import Commit, Outcome, SweepReport
from adescent.stats import Interval

__all__ = ["EvolutionResult", "Figure", "RoundInfo"]


@frozen
class Figure:
    """A mean score in [0, 1] with its 95 % interval and the number of scores it rests on; None without any."""

    value: float | None = None
    interval: Interval = Interval(0.0, 1.0)
    trials: int = 0


@frozen
class RoundInfo:
    """One row of a run's history: a round, or a merge sweep in stream.

    ``held_out_reward`` is the head's pooled figure after it; ``rollouts``, ``calls`` and ``elapsed`` (seconds) count
    from the start of the run.
    """

    index: int
    held_out_reward: float | None
    committed: int
    considered: int
    discarded_stale: int
    conflicts_dropped: int
    fused: int
    rollouts: int
    calls: int
    elapsed: float

    @classmethod
    def of(
        cls,
        index: int,
        sweeps: Sequence[SweepReport],
        *,
        held_out: float | None,
        rollouts: int,
        calls: int,
        elapsed: float,
    ) -> Self:
        """The row for these sweeps."""
        return cls(
            index=index,
            held_out_reward=held_out,
            committed=sum(sweep.version is not None for sweep in sweeps),
            considered=sum(sweep.considered for sweep in sweeps),
            discarded_stale=sum(sweep.count(Outcome.STALE) for sweep in sweeps),
            conflicts_dropped=sum(sweep.count(Outcome.CONFLICT_DROPPED) for sweep in sweeps),
            fused=sum(sweep.fused for sweep in sweeps),
            rollouts=rollouts,
            calls=calls,
            elapsed=elapsed,
        )


@frozen(kw_only=True)
class EvolutionResult:
    """The end of a run.

    ``rendered`` and ``state`` are the head of dev at ``version``; ``resumed_from`` is the version a run directory was
    continued at (0: a new run). ``final`` is measured anew on the held-out split, which selected; ``test`` once on the
    sealed split, which did not. ``error`` says why a run broke off (``""`` when it did not) and ``exception`` holds
    the error itself in the process that saw it. ``causes`` says what went wrong in actors, in words, and how often (at
    most five different causes of each). ``under_way`` lists leases that were cut off.
    """

    artifact_id: str
    rendered: str
    state: Mapping[str, str]
    version: int
    stable_version: int
    stop_reason: str
    error: str = ""
    exception: BaseException | None = field(default=None, eq=False, repr=False)
    seed: Figure = Figure()
    stable: Figure = Figure()
    final: Figure = Figure()
    test: Figure = Figure()
    noisy: bool = False
    resumed_from: int = 0
    rollouts: int = 0
    elapsed: float = 0.0
    history: tuple[RoundInfo, ...] = field(default=(), repr=False)
    outcome_counts: Mapping[str, int] = field(factory=dict)
    fusion: Mapping[str, int] = field(factory=dict)
    counters: Mapping[str, int] = field(factory=dict)
    causes: Mapping[str, int] = field(factory=dict)
    calls_by_purpose: Mapping[str, int] = field(factory=dict)
    ledger: str = ""
    log: tuple[Commit, ...] = field(default=(), repr=False)
    under_way: tuple[str, ...] = ()

    @property
    def seed_reward(self) -> float | None:
        """Mean held-out score of what the run started from."""
        return self.seed.value

    @property
    def stable_reward(self) -> float | None:
        """Mean held-out score of the version on stable."""
        return self.stable.value

    @property
    def final_reward(self) -> float | None:
        """Mean held-out score of the head, measured anew at the end."""
        return self.final.value

    @property
    def test_reward(self) -> float | None:
        """Mean score of the head on the sealed split, or None without one."""
        return self.test.value

    @property
    def calls(self) -> int:
        """Calls of run, propose and oracle for any purpose."""
        return sum(self.calls_by_purpose.values())

    def outcomes(self) -> dict[str, int]:
        """How the cards ended, by outcome; the numbers add up to the cards ingested."""
        return dict(self.outcome_counts)

    def fusion_stats(self) -> dict[str, int]:
        """How often unions were fused or refused, won, lost or tied where they were ranked, and why there was none."""
        return dict(self.fusion)

    def to_json(self) -> str:
        """The result as one JSON object (without ``exception``)."""
        return str(_converter().dumps(self, indent=2))

    @classmethod
    def from_json(cls, text: str) -> EvolutionResult:
        """What `to_json` wrote. Raises ContractError for anything else."""
        from adescent.errors import ContractError

        try:
            result: EvolutionResult = _converter().loads(text, cls)
        except Exception as error:
            raise ContractError(f"this is no stored result: {error}") from error
        return result


def _converter() -> Any:
    """Loaded on first use: cattrs takes longer to import than everything else here."""
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
    from cattrs.preconf.json import make_converter

    converter = make_converter()
    left_out = override(omit=True)
    converter.register_unstructure_hook(
        EvolutionResult, make_dict_unstructure_fn(EvolutionResult, converter, exception=left_out)
    )
    converter.register_structure_hook(
        EvolutionResult, make_dict_structure_fn(EvolutionResult, converter, exception=left_out)
    )
    return converter

"""Tells a run that merely has failures from one in which nothing works."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import Literal

from adescent.errors import ActorsNeverWorked, AdescentError, ContractError, RefError
from adescent.runtime.control import Control
from adescent.workspec import Failure, Result

__all__ = ["Health"]

logger = logging.getLogger("adescent")

CAUSES = 5
"""Different causes of each actor that are kept to be listed."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

NEEDED = ("worker", "run", "propose")
"""Without whom a run learns nothing; the scorer is the caller's."""


class Health:
    """Watches every rollout and proposal for the first success of each actor.

    ``run``, ``propose`` or a worker that should run them never once succeeding in ``patience`` tries breaks the run
    off; a scorer that gives no valid score in as many calls is the caller's to fix, and with ``strict`` its first void
    is. So are, at once, actors that cannot be called where the work runs: with arguments of theirs that are wrong, or
    Refs that do not resolve there. Once an actor has succeeded, its failures only count.

    Until then rollouts are looked at in the order they were begun, and proposals when `judge` is called: in the order
    of their ends, the verdict would depend on which of several under way came back first.
    """

    def __init__(self, control: Control, *, patience: int, strict: bool, count: Callable[[str], None]) -> None:
        self._control = control
        self._patience = patience
        self._strict = strict
        self._count = count
        self._worked: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._first: dict[str, Failure] = {}
        self._causes: dict[str, Counter[str]] = {}
        self._begun = 0
        self._looked_at = 0
        self._ended: dict[int, Failure | Literal["withdrawn"] | None] = {}

    def begin(self) -> int:
        """A rollout or an evaluation begins; its number."""
        self._begun += 1
        return self._begun - 1

    def observe(self, number: int, result: Result) -> None:
        """A rollout or an evaluation ended."""
        failure = result.error
        if failure is not None:
            self._count("rollouts_failed" if failure.stage == "run" else f"{failure.stage}_failed")
            self._note(failure.stage, failure)
            if failure.type == "VoidScore":
                self._count("scores_void")
                if self._strict:
                    self._control.fail(_as_caller_error(failure))
        if "reward" not in self._worked:
            self._look_in_order(number, failure)

    def withdrawn(self, number: int) -> None:
        """A rollout or an evaluation was cut off."""
        if "reward" not in self._worked:
            self._look_in_order(number, "withdrawn")

    def proposed(self) -> None:
        """The proposer returned, with or without a proposal."""
        self._worked.add("propose")

    def propose_failed(self, failure: Failure) -> None:
        """The proposer raised, did not answer, or answered what nobody can read."""
        self._count("proposals_failed")
        self._note("propose", failure)
        if "propose" not in self._worked:
            self._tried("propose", failure)

    def judge(self) -> None:
        """End the run if there is an actor that has had its tries and never worked."""
        if self._control.stopping:
            return
        for actor, tries in self._tries.items():
            if tries < self._patience or actor in self._worked:
                continue
            if actor == "reward":
                self._control.fail(self._never_scored())
            else:
                self._control.break_off(self._never_worked(actor))

    def conclude(self) -> AdescentError | None:
        """At the end: the error of an actor that was tried and never worked, however few the tries."""
        for actor in NEEDED:
            if self._tries[actor] and actor not in self._worked:
                return self._never_worked(actor)
        if self._tries["reward"] and "reward" not in self._worked:
            self._control.fail(self._never_scored())
        return None

    def _look_in_order(self, number: int, end: Failure | Literal["withdrawn"] | None) -> None:
        self._ended[number] = end
        while self._looked_at in self._ended:
            earliest = self._ended.pop(self._looked_at)
            self._looked_at += 1
            if earliest is None:
                self._worked.update(("worker", "run", "reward"))
                self._ended.clear()
            elif earliest != "withdrawn":
                self._failed(earliest)

    def _failed(self, failure: Failure) -> None:
        if failure.stage != "worker":
            self._worked.add("worker")
        elif failure.kind == "caller" and "worker" not in self._worked:
            self._control.fail(_as_caller_error(failure))
        if failure.stage == "reward":
            self._worked.add("run")
        if failure.stage not in self._worked:
            self._tried(failure.stage, failure)
            self.judge()

    def _tried(self, actor: str, failure: Failure) -> None:
        self._tries[actor] += 1
        self._first.setdefault(actor, failure)

    def _note(self, actor: str, failure: Failure) -> None:
        """Keep the cause to be listed, and log one that is new: a run that goes on in spite of it says so."""
        cause = f"{failure.type}: {_ADDRESS.sub('', failure.message)}"
        causes = self._causes.setdefault(actor, Counter())
        if cause not in causes:
            if len(causes) == CAUSES:
                return
            logger.warning("%s: %s", actor, cause)
        causes[cause] += 1

    @property
    def causes(self) -> dict[str, int]:
        """What went wrong, in words, and how often."""
        return {f"{actor}: {cause}": n for actor, causes in self._causes.items() for cause, n in causes.items()}

    def _never_worked(self, actor: str) -> AdescentError:
        error = ActorsNeverWorked(actor, self._tries[actor], tuple(self._causes[actor]))
        error.__cause__ = self._first[actor].cause
        return error

    def _never_scored(self) -> ContractError:
        causes = "; ".join(self._causes["reward"])
        error = ContractError(f"the scorer gave no valid score in {self._tries['reward']} calls. {causes}")
        error.__cause__ = self._first["reward"].cause
        return error


def _as_caller_error(failure: Failure) -> BaseException:
    """The error itself where it happened in this process, else one that says the same."""
    if isinstance(failure.cause, AdescentError):
        return failure.cause
    same = {"ContractError": ContractError, "RefError": RefError}.get(failure.type)
    return ContractError(str(failure)) if same is None else same(failure.message)

"""What evolves, and what is tried next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from adescent.evolvable import Diff, State
from adescent.policies.records import Assignment, ProposalContext
from adescent.tasks import Score, Task

__all__ = [
    "ParallelPlan",
    "Planner",
    "ProposalPolicy",
    "Strategy",
    "TaskDraw",
    "TaskSampler",
]


class Strategy(Protocol):
    """What an artifact is made of, and how a proposal becomes a diff.

    Two optional extras are used where a strategy has them: ``violation(state) -> str`` names what makes a state
    invalid (``""`` when it is fine), and ``takes_rivals`` (True unless said otherwise) tells whether a diff that
    overwrites newer text may compete with it. ``repr()`` names the strategy with all its options: a run directory is
    continued only where it is the same.
    """

    def initial(self, initial_state: Mapping[str, str] | str | None) -> State:
        """The state a run starts from, given what the caller passed (None: the strategy's own start)."""
        ...

    def render(self, state: State) -> str:
        """The text an agent is run with."""
        ...

    def to_diff(self, state: State, proposal: Any, target: str) -> Diff:
        """The change that ``proposal`` (whatever ``propose`` returned) means to ``state``; no ops means no change.

        Raises ContractError when the proposal is of a type the strategy does not take (the proposer is written wrongly)
        and ProposalError when it has the type and cannot be read all the same (a failed proposal, as models make them).
        """
        ...


class ProposalPolicy(Protocol):
    """Whether and how a failed task becomes a proposal."""

    async def propose(self, context: ProposalContext, ask: Callable[[ProposalContext], Awaitable[Any]]) -> Any:
        """A proposal or None. ``ask`` calls the proposer the run was given; each call is paid from the budget."""
        ...


class TaskDraw(Protocol):
    """Draws tasks for one run and remembers how they went."""

    def draw(self, assignment: Assignment, turn: int) -> Task:
        """The task of the next lease, out of the assignment's."""
        ...

    def observe(self, task: Task, score: Score) -> None:
        """How a lease of ``task`` went."""
        ...


class TaskSampler(Protocol):
    """Which of its tasks a unit tries next."""

    def begin(self, tasks: Sequence[Task], seed: int) -> TaskDraw:
        """A draw for one run over the train split."""
        ...


class Planner(Protocol):
    """Splits the work of one run into assignments.

    An optional ``observe(assignment, score)`` is told once how each went; the score is None when the lease gave none.
    """

    def assign(self, turn: int, unit: int) -> Assignment:
        """What unit ``unit`` (0 … n_units - 1) works on in its turn ``turn`` (0, 1, …): one lease, under way."""
        ...


class ParallelPlan(Protocol):
    """How parallel units share the work."""

    def begin(self, tasks: Sequence[Task], n_units: int, artifact_id: str, solved_threshold: float) -> Planner:
        """A planner for one run."""
        ...

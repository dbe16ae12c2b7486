"""What workers see of an artifact: the newest published head, and nothing older unless they keep it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from adescent.errors import ContractError
from adescent.evolvable import Evolvable, State, VersionVector
from adescent.policies import Strategy

__all__ = ["HeadCell", "Snapshot", "rendered_by", "started_by"]


def rendered_by(strategy: Strategy, state: State) -> str:
    """The text of a state. Raises ContractError when the strategy makes something else of it."""
    rendered = strategy.render(state)
    if not isinstance(rendered, str):
        raise ContractError(f"{_part(strategy)}.render returned a {type(rendered).__name__}; it must return text.")
    return rendered


def started_by(strategy: Strategy, initial_state: Mapping[str, str] | str | None) -> State:
    """The state a run begins with. Raises ContractError when the strategy gives none."""
    state = strategy.initial(initial_state)
    if not isinstance(state, Mapping):
        raise ContractError(
            f"{_part(strategy)}.initial returned a {type(state).__name__}; it must return texts under text keys."
        )
    return state


def _part(strategy: Strategy) -> str:
    return f"the strategy {type(strategy).__name__}"


@frozen(eq=False)
class Snapshot:
    """One version of an artifact, rendered once for everyone who works on it."""

    artifact: Evolvable
    rendered: str
    versions: VersionVector


class HeadCell:
    """A newest-wins cell: publishing never waits, and who reads late misses what was in between.

    ``epoch`` grows when workers are asked to let go of older snapshots.
    """

    def __init__(self, artifact: Evolvable, strategy: Strategy) -> None:
        self._strategy = strategy
        self.epoch = 0
        self.current = self._snapshot(artifact)

    def publish(self, artifact: Evolvable) -> None:
        """Make ``artifact`` the head, unless a newer one already is."""
        if artifact.version > self.current.artifact.version:
            self.current = self._snapshot(artifact)

    def refresh(self) -> None:
        """Ask every worker to take the newest head at its next lease."""
        self.epoch += 1

    def _snapshot(self, artifact: Evolvable) -> Snapshot:
        versions = VersionVector({artifact.id: artifact.version})
        return Snapshot(artifact, rendered_by(self._strategy, artifact.state), versions)

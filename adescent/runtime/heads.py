"""What workers see of an artifact: the newest published head, and nothing older unless they keep it."""

from __future__ import annotations

from attrs import frozen

from adescent.evolvable import Evolvable, VersionVector
from adescent.policies import Strategy

__all__ = ["HeadCell", "Snapshot"]


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
        return Snapshot(artifact, self._strategy.render(artifact.state), versions)

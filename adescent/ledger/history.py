"""Looking back: what was committed, and an artifact as it was."""

from __future__ import annotations

from collections.abc import Iterator

from adescent.errors import UnknownArtifact
from adescent.evolvable import Evolvable
from adescent.ledger.objects import GitCommit
from adescent.ledger.parsed import ParsedObjects
from adescent.ledger.trailers import read_note
from adescent.policies import Commit

__all__ = ["entries", "version_of"]


def newest_first(parsed: ParsedObjects, tip: bytes | None) -> Iterator[tuple[bytes, GitCommit]]:
    """The commits of a branch from its tip to its first."""
    while tip is not None:
        commit = parsed.commit(tip)
        yield tip, commit
        tip = commit.parents[0] if commit.parents else None


def entries(parsed: ParsedObjects, tip: bytes | None) -> Iterator[Commit]:
    """One entry for each artifact a commit changed; commits that no ledger made are passed over."""
    for name, commit in newest_first(parsed, tip):
        if (note := read_note(commit.message)) is not None:
            for artifact_id, version in note.changed:
                yield Commit(name.hex(), commit.tree.hex(), artifact_id, version, note.message, note.decision)


def version_of(
    parsed: ParsedObjects, tip: bytes | None, artifact_id: str, version: int
) -> tuple[bytes, bytes, Evolvable]:
    """A commit that holds this version, the blob it is in, and the artifact.

    The head is found at once, an older version by the trailers of the commits. Raises UnknownArtifact.
    """
    blob = parsed.blob_of(tip, artifact_id)
    if tip is None or blob is None:
        raise UnknownArtifact(artifact_id)
    newest = parsed.artifact(blob, artifact_id)
    if newest.version == version:
        return tip, blob, newest
    if not 1 <= version < newest.version:
        raise UnknownArtifact(artifact_id, version)
    for name, commit in newest_first(parsed, tip):
        note = read_note(commit.message)
        if note is None or (artifact_id, version) not in note.changed:
            continue
        if (found := parsed.blob_of(name, artifact_id)) is not None:
            return name, found, parsed.artifact(found, artifact_id)
    raise UnknownArtifact(artifact_id, version)

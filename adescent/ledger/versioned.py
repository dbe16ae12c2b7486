"""What a ledger does, over any keeper of git objects: versions, compare-and-swap, promotion, history."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

from attrs import define, field

from adescent.errors import CASConflict, ContractError, LedgerError, UnknownArtifact
from adescent.evolvable import Diff, Evolvable, VersionVector, check_artifact_id
from adescent.governance import ensure_not_frozen
from adescent.ledger.codec import encode, stored
from adescent.ledger.history import entries, version_of
from adescent.ledger.keeper import Keeper, Move, RefMoved
from adescent.ledger.objects import GitCommit, GitObject, git_object, write_commit
from adescent.ledger.parsed import ParsedObjects
from adescent.ledger.trailers import Note, write_note
from adescent.policies import Commit

__all__ = ["VersionedLedger"]

T = TypeVar("T")

DEV, STABLE = "dev", "stable"
BRANCHES = (DEV, STABLE)
PROMOTED_FROM = "Promoted-From"
ATTEMPTS = 8
"""How often a commit is rebuilt when something that does not take the ledger's lock moves the branch meanwhile."""


@define
class _Draft:
    """What one operation wants to publish.

    The objects, each with what it says; where branches go; and when that is, in seconds since 1970.
    """

    objects: dict[GitObject, object] = field(factory=dict)
    moves: list[Move] = field(factory=list)
    seconds: int = field(factory=lambda: int(time.time()))

    def add_blob(self, artifact: Evolvable) -> bytes:
        """Take the artifact in; its blob's name."""
        blob = git_object("blob", encode(artifact))
        self.objects[blob] = artifact
        return blob.id


class VersionedLedger:
    """The `Ledger` protocol. Reads need no lock of the keeper's: objects never change and a branch moves at once."""

    blocking: bool
    location: str

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._parsed = ParsedObjects(keeper)
        self._threads = threading.RLock()

    # Reading ----------------------------------------------------------------------------------------------------------

    def head(self, artifact_id: str, branch: str = DEV) -> Evolvable:
        """The newest version on a branch."""
        with self._threads:
            return self._held(self._tip(branch), artifact_id)

    def versions(self, branch: str = DEV) -> VersionVector:
        """The versions of all artifacts on a branch."""
        return VersionVector({artifact_id: held.version for artifact_id, held in self.snapshot(branch).items()})

    def snapshot(self, branch: str = DEV) -> Mapping[str, Evolvable]:
        """All artifacts of a branch at one commit; a read-only mapping."""
        with self._threads:
            return MappingProxyType(self._parsed.artifacts(self._tip(branch)))

    def history(self, artifact_id: str) -> Sequence[Commit]:
        """The commits on dev that changed an artifact, newest first."""
        with self._threads:
            tip = self._tip(DEV)
            self._held(tip, artifact_id)
            return tuple(entry for entry in entries(self._parsed, tip) if entry.artifact_id == artifact_id)

    def log(self, limit: int | None = None) -> Sequence[Commit]:
        """What was committed to dev, newest first, at most ``limit`` entries; one entry an artifact and commit."""
        with self._threads:
            return tuple(islice(entries(self._parsed, self._tip(DEV)), limit))

    def diff(self, artifact_id: str, old: int, new: int) -> Diff:
        """What changed between two versions on dev."""
        with self._threads:
            tip = self._tip(DEV)
            before, after = (version_of(self._parsed, tip, artifact_id, version)[2] for version in (old, new))
            return before.diff(after)

    # Writing ----------------------------------------------------------------------------------------------------------

    def register(self, artifact: Evolvable) -> Evolvable:
        """Take in an artifact as version 1 on both branches.

        One that is held already is returned as it is when it is the same. Under another contract major it becomes the
        next version on dev, and gets to stable by promotion. Raises ContractError when it differs otherwise.
        """
        self._check_writable(artifact.id)

        def draft() -> tuple[_Draft, Evolvable]:
            tip = self._tip(DEV)
            if self._parsed.blob_of(tip, artifact.id) is None:
                return self._first_version(tip, stored(artifact, 1))
            held = self._held(tip, artifact.id)
            if encode(held) == encode(stored(artifact, held.version)):
                return _Draft(), held
            if held.contract.major == artifact.contract.major:
                raise ContractError(
                    f"{artifact.id!r} is held already, at version {held.version} and with another content: "
                    f"commit(artifact, {held.version}) changes it."
                )
            following = stored(artifact, held.version + 1)
            return self._next_versions(tip, [following], f"register {artifact.id} again"), following

        return self._write(draft)

    def commit(
        self, artifact: Evolvable, base_version: int, *, message: str = "", decision: Mapping[str, str] | None = None
    ) -> Evolvable:
        """Compare-and-swap on dev: the artifact as its next version, if the head is still ``base_version``.

        Other artifacts may have been committed meanwhile. Raises CASConflict when this one has been, and ContractError
        for another contract major, which has to be registered.
        """
        (committed,) = self.commit_atomic([artifact], {artifact.id: base_version}, message=message, decision=decision)
        return committed

    def commit_atomic(
        self,
        artifacts: Sequence[Evolvable],
        base_versions: Mapping[str, int],
        *,
        message: str = "",
        decision: Mapping[str, str] | None = None,
    ) -> tuple[Evolvable, ...]:
        """All or nothing, in one commit: each artifact is compared with its own entry of ``base_versions``."""
        self._check_batch(artifacts, base_versions)
        nexts = [stored(artifact, base_versions[artifact.id] + 1) for artifact in artifacts]

        def draft() -> tuple[_Draft, tuple[Evolvable, ...]]:
            tip = self._tip(DEV)
            for following in nexts:
                held = self._held(tip, following.id)
                if held.version != following.version - 1:
                    raise CASConflict(following.id, following.version - 1, held.version)
                self._check_major(held, following)
            return self._next_versions(tip, nexts, message, decision), tuple(nexts)

        return self._write(draft)

    def promote(self, artifact_id: str, version: int) -> Evolvable:
        """Make exactly this version of dev the one on stable."""
        self._check_writable(artifact_id)

        def draft() -> tuple[_Draft, Evolvable]:
            origin, blob, artifact = version_of(self._parsed, self._tip(DEV), artifact_id, version)
            stable = self._tip(STABLE)
            drafted = _Draft()
            if self._parsed.blob_of(stable, artifact_id) != blob:
                note = Note(
                    f"promote {artifact_id}@{version}", ((artifact_id, version),), {PROMOTED_FROM: origin.hex()}
                )
                self._advance(drafted, STABLE, stable, {artifact_id: blob}, note)
            return drafted, artifact

        return self._write(draft)

    def rollback(self, artifact_id: str, version: int, *, message: str = "") -> Evolvable:
        """Commit the state of an old version as a new one; history is never rewritten.

        Raises ContractError when the contract major has changed since: register the old one to go back across it.
        """
        self._check_writable(artifact_id)

        def draft() -> tuple[_Draft, Evolvable]:
            tip = self._tip(DEV)
            held, old = self._held(tip, artifact_id), version_of(self._parsed, tip, artifact_id, version)[2]
            self._check_major(held, old)
            words = message or f"roll {artifact_id} back to version {version}"
            following = stored(old, held.version + 1)
            return self._next_versions(tip, [following], words), following

        return self._write(draft)

    def close(self) -> None:
        """Leave the repository tidy. Idempotent; the ledger may still be used."""
        with self._threads:
            self._keeper.close()

    # Inside -----------------------------------------------------------------------------------------------------------

    def _tip(self, branch: str) -> bytes | None:
        if branch not in BRANCHES:
            raise ContractError(f"a ledger has no branch {branch!r}: ask for one of {', '.join(BRANCHES)}.")
        return self._keeper.tip(branch)

    def _held(self, tip: bytes | None, artifact_id: str) -> Evolvable:
        blob = self._parsed.blob_of(tip, artifact_id)
        if blob is None:
            raise UnknownArtifact(artifact_id)
        return self._parsed.artifact(blob, artifact_id)

    def _check_writable(self, artifact_id: str) -> None:
        check_artifact_id(artifact_id)
        ensure_not_frozen(artifact_id)

    def _check_batch(self, artifacts: Sequence[Evolvable], base_versions: Mapping[str, int]) -> None:
        for artifact in artifacts:
            self._check_writable(artifact.id)
            if artifact.id not in base_versions:
                raise ContractError(f"no base version for {artifact.id!r}: name the head version it was made from.")
        if not artifacts or len({artifact.id for artifact in artifacts}) < len(artifacts):
            raise ContractError("a commit takes one artifact or more, each of them once.")

    def _check_major(self, held: Evolvable, following: Evolvable) -> None:
        if held.contract.major != following.contract.major:
            raise ContractError(
                f"{held.id!r} is held under contract major {held.contract.major}, not {following.contract.major}: "
                "register() the artifact to take in another contract."
            )

    def _first_version(self, tip: bytes | None, first: Evolvable) -> tuple[_Draft, Evolvable]:
        """Stable moves first: whoever dies in between has registered nothing, and registering again puts it right."""
        drafted, stable = _Draft(), self._tip(STABLE)
        blobs = {first.id: drafted.add_blob(first)}
        note = Note(f"register {first.id}", ((first.id, 1),))
        self._advance(drafted, STABLE, stable, blobs, note)
        self._advance(drafted, DEV, tip, blobs, note)
        return drafted, first

    def _next_versions(
        self,
        tip: bytes | None,
        nexts: Sequence[Evolvable],
        message: str,
        decision: Mapping[str, str] | None = None,
    ) -> _Draft:
        drafted = _Draft()
        blobs = {following.id: drafted.add_blob(following) for following in nexts}
        note = Note(message, tuple((following.id, following.version) for following in nexts), decision or {})
        self._advance(drafted, DEV, tip, blobs, note)
        return drafted

    def _advance(self, drafted: _Draft, branch: str, tip: bytes | None, blobs: Mapping[str, bytes], note: Note) -> None:
        trees, root = self._parsed.grown(tip, blobs)
        parents = () if tip is None else (tip,)
        said = GitCommit(root, parents, write_note(note))
        commit = write_commit(said, drafted.seconds)
        drafted.objects.update({**trees, commit: said})
        drafted.moves.append(Move(branch, tip, commit.id))

    def _write(self, draft: Callable[[], tuple[_Draft, T]]) -> T:
        with self._threads, self._keeper.exclusive():
            for _ in range(ATTEMPTS):
                drafted, result = draft()
                try:
                    self._keeper.publish(list(drafted.objects), drafted.moves)
                except RefMoved:
                    continue
                for written, said in drafted.objects.items():
                    self._parsed.remember(written, said)
                return result
        raise LedgerError("another program keeps moving the ledger's branches: leave dev and stable to the ledger.")

"""Git objects as the ledger thinks of them, each parsed once: trees as folders, blobs as artifacts, commits as notes.

An object's name is its content, so what was parsed stays true for ever; only memory bounds what is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from adescent.errors import LedgerCorrupt
from adescent.evolvable import Evolvable
from adescent.ledger.codec import decode, file_name, shard_of
from adescent.ledger.keeper import Keeper
from adescent.ledger.objects import GitCommit, GitObject, Kind, read_commit, read_tree, write_tree

__all__ = ["ParsedObjects"]

T = TypeVar("T")
Entries = Mapping[str, bytes]
"""File name → object name."""

REMEMBERED_BYTES = 32 * 2**20
OVERHEAD_BYTES = 600
"""What an entry costs beside its bytes, roughly."""


class ParsedObjects:
    """Reads through a keeper and remembers what it read, least recently used first out."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._known: OrderedDict[object, tuple[object, int]] = OrderedDict()
        self._bytes = 0

    def commit(self, name: bytes) -> GitCommit:
        """A commit."""
        return self._parsed(name, "commit", read_commit)

    def folders(self, tip: bytes | None) -> Entries:
        """Folder → its tree, at a commit; empty before the first."""
        return {} if tip is None else self._tree(self.commit(tip).tree)

    def blob_of(self, tip: bytes | None, artifact_id: str) -> bytes | None:
        """The name of the blob an artifact is in, or None where there is no such artifact."""
        folder = self.folders(tip).get(shard_of(artifact_id))
        return None if folder is None else self._tree(folder).get(file_name(artifact_id))

    def artifact(self, blob: bytes, artifact_id: str) -> Evolvable:
        """The artifact in a blob. Raises LedgerCorrupt when the blob holds another one."""
        found = self._parsed(blob, "blob", lambda data: decode(data, f"blob {blob.hex()}"))
        if found.id != artifact_id:
            raise LedgerCorrupt(f"the file of {artifact_id!r} holds {found.id!r}: restore the repository from a copy.")
        return found

    def artifacts(self, tip: bytes | None) -> dict[str, Evolvable]:
        """All artifacts at a commit."""
        found: dict[str, Evolvable] = {}
        for folder in self.folders(tip).values():
            found.update(self._folder(folder))
        return found

    def _folder(self, folder: bytes) -> Mapping[str, Evolvable]:
        key = ("artifacts", folder)
        if (known := self._recall(key)) is not None:
            return cast("Mapping[str, Evolvable]", known)
        files = self._tree(folder).items()
        named = ((name.rpartition(".")[0], blob) for name, blob in files)
        held = {artifact_id: self.artifact(blob, artifact_id) for artifact_id, blob in named}
        self._remember(key, held, OVERHEAD_BYTES * len(held))
        return held

    def grown(self, tip: bytes | None, blobs: Mapping[str, bytes]) -> tuple[dict[GitObject, Entries], bytes]:
        """The tree of a commit with some artifacts' blobs replaced: the trees with their entries, and the root's name.

        Each tree is built once, however many of its entries change.
        """
        folders = dict(self.folders(tip))
        changes: dict[str, dict[str, bytes]] = {}
        for artifact_id, blob in blobs.items():
            changes.setdefault(shard_of(artifact_id), {})[file_name(artifact_id)] = blob
        trees: dict[GitObject, Entries] = {}
        for shard, files in changes.items():
            entries = {**(self._tree(folders[shard]) if shard in folders else {}), **files}
            tree = write_tree(entries, of="blob")
            folders[shard] = tree.id
            trees[tree] = entries
        root = write_tree(folders, of="tree")
        return {**trees, root: folders}, root.id

    def remember(self, written: GitObject, value: object) -> None:
        """Keep what an object says that was just published, so that it is not read back."""
        self._remember((written.kind, written.id), value, len(written.data))

    def _tree(self, name: bytes) -> Entries:
        return self._parsed(name, "tree", read_tree)

    def _parsed(self, name: bytes, kind: Kind, parse: Callable[[bytes], T]) -> T:
        known = self._recall((kind, name))
        if known is None:
            data = self._keeper.read(name, kind)
            known = parse(data)
            self._remember((kind, name), known, len(data))
        return cast("T", known)

    def _recall(self, key: object) -> object:
        if (entry := self._known.get(key)) is None:
            return None
        self._known.move_to_end(key)
        return entry[0]

    def _remember(self, key: object, value: object, size: int) -> None:
        """Keep a value; what was not used for longest goes when the room is full."""
        weight = size + OVERHEAD_BYTES
        self._bytes += weight - self._known.pop(key, (None, 0))[1]
        self._known[key] = (value, weight)
        while self._bytes > REMEMBERED_BYTES:
            _, (_, freed) = self._known.popitem(last=False)
            self._bytes -= freed

"""How packs gather and are put together, in slices that hold nobody up.

Packs have levels by what is in them. Those of single commits are the lowest: when 32 have gathered, they are written as
one, with deltas. Of higher levels, eight are joined into one of the next, until a pack is so large that it stays as it
is. So there are some hundred files, and two more for every 2000 commits; an object is written about four times in all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from attrs import frozen

from adescent.ledger.files import remove, rename, sync_folder, write_unseen
from adescent.ledger.objects import GitObject
from adescent.ledger.packfile import Pack, joined, pack_of
from adescent.ledger.packindex import COUNT_AT, PackIndex

__all__ = ["PackFolder"]

GATHERED_COMMITS = 32
GATHERED_PACKS = 8
LEVELS = ((128, 128 * 2**10), (1024, 2**20), (8192, 4 * 2**20))
"""A pack is of the first level whose bounds (objects, bytes) it is below; beyond the last it is left alone."""
SLICE_BYTES = (512 * 2**10, 8 * 2**20, 8 * 2**20)
"""How many bytes of packs one slice of a level takes on."""
PASSING_BYTES = 64 * 2**10
"""Packs of single commits below this are surely written anew, and not compressed before."""
RECENT_BYTES = 4 * 2**20
"""How much of what was added is remembered until it is written anew; the rest is read back."""

BESIDE_A_PACK = (".rev", ".bitmap", ".mtimes")
"""What other programs may have put beside a pack, and is void without it."""


@frozen
class _Held:
    """A pack in the folder: how many objects and bytes, and when it was written (nanoseconds)."""

    name: str
    objects: int
    size: int
    written: int

    @property
    def level(self) -> int:
        """Index into `LEVELS`, or beyond it."""
        fits = (place for place, (objects, size) in enumerate(LEVELS) if self.objects < objects and self.size < size)
        return next(fits, len(LEVELS))


class PackFolder:
    """``objects/pack`` of a repository; files that have served there wait in another folder to be written over.

    Whoever calls a method that writes holds the ledger's file lock.
    """

    def __init__(self, folder: str, *, spares: str, sync: bool, read: Callable[[bytes], GitObject]) -> None:
        self._folder = folder
        self._spares = spares
        self._spare: list[str] = []
        self._sync = sync
        self._read = read
        self._since_look = 0
        self._files: frozenset[str] = frozenset()
        self._known: dict[str, _Held] = {}
        self._recent: dict[str, Sequence[GitObject]] = {}
        self._recent_bytes = 0

    def add(self, objects: Sequence[GitObject]) -> None:
        """Keep objects in a pack of their own; on return they are there, and on disk where that is asked for."""
        size = sum(len(made.data) for made in objects)
        pack = pack_of(objects, passing=size < PASSING_BYTES and len(objects) < LEVELS[0][0])
        self._put(pack)
        self._known[pack.name] = _Held(pack.name, len(objects), len(pack.data), time.time_ns())
        self._since_look += 1
        self._recent_bytes += size
        if self._recent_bytes <= RECENT_BYTES:
            self._recent[pack.name] = objects

    def slice_due(self) -> bool:
        """Whether enough has been added to look what has gathered, or the last look found something."""
        return self._since_look >= GATHERED_COMMITS

    def pack_slice(self, *, closing: bool = False) -> bool:
        """Put together what has gathered on the lowest level that has enough; tell whether there was something.

        On closing, two packs of single commits are enough.
        """
        held = self._look()
        for level, slice_bytes in enumerate(SLICE_BYTES):
            gathered = [pack for pack in held if pack.level == level]
            enough = GATHERED_PACKS if level else 2 if closing else GATHERED_COMMITS
            if len(gathered) < enough:
                continue
            slice_ = _first_of(gathered, slice_bytes)
            self._replace(slice_, self._joined(slice_) if level else self._rewritten(slice_))
            self._since_look = GATHERED_COMMITS
            return True
        return False

    def _look(self) -> list[_Held]:
        """The packs in the folder, oldest first. A pack's name stands for its content, so each is looked at once."""
        self._since_look = 0
        self._files = frozenset(os.listdir(self._folder))  # noqa: PTH208 - names are wanted, not paths
        self._spare = os.listdir(self._spares)  # noqa: PTH208 - as above
        names = [file[:-4] for file in self._files if file.endswith(".idx")]
        ours = [name for name in names if f"{name}.pack" in self._files and f"{name}.keep" not in self._files]
        self._known = {name: self._known.get(name) or self._looked_at(name) for name in ours}
        return sorted(self._known.values(), key=lambda pack: pack.written)

    def _looked_at(self, name: str) -> _Held:
        status = Path(self._folder, f"{name}.pack").stat()
        with Path(self._folder, f"{name}.idx").open("rb") as file:
            file.seek(COUNT_AT)
            count = int.from_bytes(file.read(4), "big")
        return _Held(name, count, status.st_size, status.st_mtime_ns)

    def _index(self, pack: _Held) -> PackIndex:
        return PackIndex.from_bytes(Path(self._folder, f"{pack.name}.idx").read_bytes())

    def _rewritten(self, packs: list[_Held]) -> Pack:
        """One pack with deltas; oldest first, so that later objects find what they changed."""
        rewritten = pack_of(dict.fromkeys(made for pack in packs for made in self._objects(pack)))
        self._recent.clear()
        self._recent_bytes = 0
        return rewritten

    def _objects(self, pack: _Held) -> Iterable[GitObject]:
        return self._recent.get(pack.name) or [self._read(name) for name in self._index(pack).names]

    def _joined(self, packs: list[_Held]) -> Pack:
        """One pack of several bodies. What a body before holds already is left out, since git wants no object twice."""
        parts: list[tuple[bytes, PackIndex]] = []
        seen: set[bytes] = set()
        for pack in packs:
            data, index = Path(self._folder, f"{pack.name}.pack").read_bytes(), self._index(pack)
            if not seen.isdisjoint(index.names):
                rest = pack_of(self._read(name) for name in index.names if name not in seen)
                data, index = rest.data, PackIndex.from_bytes(rest.index)
            parts.append((data, index))
            seen.update(index.names)
        return joined(parts)

    def _replace(self, packs: list[_Held], by: Pack) -> None:
        """First the new pack is there, then the old ones go, index first: at no time does an object have no pack."""
        self._put(by)
        remove(f"{self._folder}/multi-pack-index")
        for pack in packs:
            if pack.name != by.name:
                for suffix in (".idx", *BESIDE_A_PACK, ".pack"):
                    if pack.name + suffix in self._files:
                        self._retire(pack.name + suffix)
        if self._sync:
            # Else a power cut might bring back the old name of a file that has been written over.
            sync_folder(self._folder)

    def _retire(self, file: str) -> None:
        rename(f"{self._folder}/{file}", f"{self._spares}/{file}")
        self._spare.append(file)

    def _put(self, pack: Pack) -> None:
        """The index makes a pack visible, so it gets its name last."""
        for suffix, data in ((".pack", pack.data), (".idx", pack.index)):
            unseen = f"{self._spares}/{self._spare.pop() if self._spare else 'new'}"
            write_unseen(unseen, data, sync=self._sync)
            rename(unseen, f"{self._folder}/{pack.name}{suffix}")
        if self._sync:
            sync_folder(self._folder)

    def close(self) -> None:
        """Leave no file but packs and their indexes."""
        for file in os.listdir(self._spares):  # noqa: PTH208 - names are wanted, not paths
            remove(f"{self._spares}/{file}")
        self._spare.clear()


def _first_of(packs: list[_Held], size: int) -> list[_Held]:
    """The first two, and as many more as stay within ``size`` bytes together."""
    taken, total = packs[:2], sum(pack.size for pack in packs[:2])
    for pack in packs[2:]:
        total += pack.size
        if total > size:
            break
        taken.append(pack)
    return taken

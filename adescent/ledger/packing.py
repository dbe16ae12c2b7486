"""How packs gather and are put together, in slices that hold nobody up.

Packs have levels by what is in them. Those of single commits are the lowest: when 32 have gathered, they are written as
one, with deltas. Of higher levels, eight are joined into one of the next, until a pack is so large that it stays as it
is. So there are at most some fifty files beside one for every 2000 commits, an object is written about four times in
all, and the largest slice is a few megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import frozen

from adescent.ledger.files import sync_folder, write_new
from adescent.ledger.objects import GitObject
from adescent.ledger.packfile import Entry, Pack, joined, pack_of, read_index

__all__ = ["PackFolder"]

GATHERED_COMMITS = 32
GATHERED_PACKS = 8
LEVELS = ((128, 128 * 2**10), (1024, 2**20), (8192, 8 * 2**20))
"""A pack is of the first level whose bounds (objects, bytes) it is below; beyond the last it is left alone."""
SLICE_BYTES = (512 * 2**10, 16 * 2**20, 16 * 2**20)
"""How many bytes of packs one slice of a level takes on."""

COUNT_AT = 8 + 255 * 4
"""Where a pack index says how many objects there are."""
BESIDE_A_PACK = (".rev", ".bitmap", ".mtimes")
"""What other programs may have put beside a pack, and is void without it."""


@frozen
class _Held:
    """A pack in the folder: how many objects and bytes, and when it was written (nanoseconds)."""

    stem: Path
    objects: int
    size: int
    written: int

    @property
    def level(self) -> int:
        """Index into `LEVELS`, or beyond it."""
        fits = (place for place, (objects, size) in enumerate(LEVELS) if self.objects < objects and self.size < size)
        return next(fits, len(LEVELS))


class PackFolder:
    """``objects/pack`` of a repository. Whoever calls a method that writes holds the ledger's file lock."""

    def __init__(self, folder: Path, *, sync: bool, read: Callable[[bytes], GitObject]) -> None:
        self._folder = folder
        self._sync = sync
        self._read = read
        self._since_look = 0
        self._known: dict[str, _Held] = {}

    def add(self, objects: Iterable[GitObject]) -> None:
        """Keep objects in a pack of their own; on return they are there, and on disk where that is asked for."""
        self._put(pack_of(objects))
        self._since_look += 1

    def slice_due(self) -> bool:
        """Whether enough has been added to look what has gathered, or the last look found something."""
        return self._since_look >= GATHERED_COMMITS

    def pack_slice(self, *, closing: bool = False) -> bool:
        """Put together what has gathered on the lowest level that has enough; tell whether there was something.

        On closing, two packs of single commits are enough.
        """
        held = self._held()
        self._since_look = 0
        for level, slice_bytes in enumerate(SLICE_BYTES):
            gathered = [pack for pack in held if pack.level == level]
            enough = GATHERED_PACKS if level else 2 if closing else GATHERED_COMMITS
            if len(gathered) < enough:
                continue
            slice_ = _first_of(gathered, slice_bytes)
            self._replace(slice_, self._rewritten(slice_) if level == 0 else self._joined(slice_))
            self._since_look = GATHERED_COMMITS
            return True
        return False

    def _held(self) -> list[_Held]:
        """The packs in the folder, oldest first. A pack's name stands for its content, so each is looked at once."""
        files = {path.name for path in self._folder.iterdir()}
        names = [file[:-4] for file in files if file.endswith(".idx") and f"{file[:-4]}.keep" not in files]
        self._known = {name: self._known.get(name) or self._looked_at(name) for name in names}
        return sorted(self._known.values(), key=lambda pack: pack.written)

    def _looked_at(self, name: str) -> _Held:
        stem = self._folder / name
        status = stem.with_suffix(".pack").stat()
        with stem.with_suffix(".idx").open("rb") as file:
            file.seek(COUNT_AT)
            count = int.from_bytes(file.read(4), "big")
        return _Held(stem, count, status.st_size, status.st_mtime_ns)

    def _entries(self, pack: _Held) -> list[Entry]:
        return read_index(pack.stem.with_suffix(".idx").read_bytes())

    def _rewritten(self, packs: list[_Held]) -> Pack:
        """One pack with deltas; oldest first, so that later objects find what they changed."""
        names = dict.fromkeys(entry.name for pack in packs for entry in self._entries(pack))
        return pack_of(map(self._read, names), deltas=True)

    def _joined(self, packs: list[_Held]) -> Pack:
        return joined([(pack.stem.with_suffix(".pack").read_bytes(), self._entries(pack)) for pack in packs])

    def _replace(self, packs: list[_Held], by: Pack) -> None:
        """First the new pack is there, then the old ones go, index first: at no time does an object have no pack."""
        self._put(by)
        (self._folder / "multi-pack-index").unlink(missing_ok=True)
        for pack in packs:
            if pack.stem.name != by.name:
                for suffix in (".idx", *BESIDE_A_PACK, ".pack"):
                    pack.stem.with_suffix(suffix).unlink(missing_ok=True)

    def _put(self, pack: Pack) -> None:
        """The index makes a pack visible, so it gets its name last."""
        stem = self._folder / pack.name
        for suffix, data in ((".pack", pack.data), (".idx", pack.index)):
            unfinished = self._folder / f"tmp_ledger{suffix}"
            write_new(unfinished, data, sync=self._sync)
            unfinished.rename(stem.with_suffix(suffix))
        if self._sync:
            sync_folder(self._folder)


def _first_of(packs: list[_Held], size: int) -> list[_Held]:
    """The first two, and as many more as stay within ``size`` bytes together."""
    taken, total = packs[:2], sum(pack.size for pack in packs[:2])
    for pack in packs[2:]:
        total += pack.size
        if total > size:
            break
        taken.append(pack)
    return taken

"""The index of a pack (gitformat-pack(5), version 2): which objects are in it, and where."""

from __future__ import annotations

import hashlib
import struct
from itertools import accumulate
from typing import Self

from attrs import field, frozen

from adescent.errors import LedgerCorrupt
from adescent.ledger.objects import NAME_BYTES

__all__ = ["COUNT_AT", "PackIndex"]

_MAGIC = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = struct.Struct(">256I")
_START = len(_MAGIC) + _FANOUT.size
COUNT_AT = _START - 4
"""Where the number of objects stands: the last of the 256 running totals by first byte."""


@frozen
class PackIndex:
    """Object names, the CRC-32 of their bytes in the pack, and where those begin, in the order of the pack.

    Three columns and not one list of entries, since the thousands of tuples of that set off the garbage collector.
    """

    names: list[bytes] = field(factory=list)
    crcs: list[int] = field(factory=list)
    offsets: list[int] = field(factory=list)

    def add(self, name: bytes, crc: int, offset: int) -> None:
        """One more object."""
        self.names.append(name)
        self.crcs.append(crc)
        self.offsets.append(offset)

    def add_all(self, other: PackIndex, shift: int) -> None:
        """The objects of another pack whose body has been moved by ``shift`` bytes."""
        self.names.extend(other.names)
        self.crcs.extend(other.crcs)
        self.offsets.extend(offset + shift for offset in other.offsets)

    def to_bytes(self, checksum: bytes) -> bytes:
        """The index file of the pack with this checksum."""
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        counts = [0] * 256
        for name in self.names:
            counts[name[0]] += 1
        numbers = struct.Struct(f">{len(order)}I")
        parts = [_MAGIC, _FANOUT.pack(*accumulate(counts))]
        parts += map(self.names.__getitem__, order)
        parts += [numbers.pack(*map(column.__getitem__, order)) for column in (self.crcs, self.offsets)]
        body = b"".join([*parts, checksum])
        return body + hashlib.sha1(body, usedforsecurity=False).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read an index file. Raises LedgerCorrupt unless it is one of a pack below 2 GiB."""
        if not data.startswith(_MAGIC) or len(data) < _START:
            raise LedgerCorrupt("a pack index of the ledger cannot be read: `git index-pack` makes it anew.")
        count = int.from_bytes(data[COUNT_AT:_START], "big")
        if len(data) != _START + count * (NAME_BYTES + 8) + 2 * NAME_BYTES:
            raise LedgerCorrupt("a pack index of the ledger is of another length than it says.")
        numbers = struct.Struct(f">{count}I")
        crcs = numbers.unpack_from(data, _START + count * NAME_BYTES)
        offsets = numbers.unpack_from(data, _START + count * (NAME_BYTES + 4))
        order = sorted(range(count), key=offsets.__getitem__)
        names = [data[at : at + NAME_BYTES] for at in (_START + place * NAME_BYTES for place in order)]
        return cls(names, [crcs[place] for place in order], [offsets[place] for place in order])

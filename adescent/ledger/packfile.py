"""Pack files and their indexes (gitformat-pack(5), version 2), written and put together.

A commit's objects go into one pack of their own: two files instead of one for every object. Packs that have gathered
are written anew as one, where an object that resembles an earlier one is stored as what changed.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter

from attrs import frozen

from adescent.errors import LedgerCorrupt
from adescent.ledger.delta import DeltaBases
from adescent.ledger.objects import NAME_BYTES, GitObject

__all__ = ["Pack", "joined", "pack_of", "read_index"]

_TYPES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_OFFSET_DELTA = 6
_PACK_HEADER = struct.Struct(">4sII")
_INDEX_MAGIC = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = struct.Struct(">256I")
COMPRESSION_LEVEL = 1
"""zlib's fastest: half a commit's time would go into the next few per cent."""


Entry = tuple[bytes, int, int]
"""An object's name, the CRC-32 of its bytes in the pack, and where they begin. Plain, because a pack has thousands."""

WORTH_COMPRESSING = 64
"""Bytes below which zlib's own header and trees cost more than they save."""


@frozen
class Pack:
    """A pack file and its index, as bytes; ``name`` is what git calls both."""

    name: str
    data: bytes
    index: bytes


def pack_of(objects: Iterable[GitObject], *, passing: bool = False) -> Pack:
    """A pack of these objects in this order, as changes to earlier ones where that is shorter.

    One that is ``passing`` will be written anew soon, and is made fast rather than small.
    """
    chunks: list[bytes] = []
    entries: list[Entry] = []
    offset = _PACK_HEADER.size
    bases = DeltaBases()
    for made in objects:
        found = None if passing else bases.delta_for(made, offset)
        if found is None:
            head, payload = _type_and_size(_TYPES[made.kind], len(made.data)), made.data
        else:
            head = _type_and_size(_OFFSET_DELTA, len(found.delta)) + _distance(offset - found.offset)
            payload = found.delta
        chunk = head + (_stored(payload) if passing or len(payload) < WORTH_COMPRESSING else _compressed(payload))
        entries.append((made.id, zlib.crc32(chunk), offset))
        chunks.append(chunk)
        offset += len(chunk)
    return _pack(chunks, entries)


def joined(packs: Sequence[tuple[bytes, Sequence[Entry]]]) -> Pack:
    """One pack out of several (pack file and entries of each), bodies copied as they are.

    A delta names its base by the distance between the two, which copying a whole body does not change.
    """
    chunks: list[bytes] = []
    entries: list[Entry] = []
    shift = 0
    for data, inside in packs:
        chunks.append(data[_PACK_HEADER.size : -NAME_BYTES])
        entries += [(name, crc, offset + shift) for name, crc, offset in inside]
        shift += len(chunks[-1])
    return _pack(chunks, entries)


def _pack(chunks: Iterable[bytes], entries: list[Entry]) -> Pack:
    body = _PACK_HEADER.pack(b"PACK", 2, len(entries)) + b"".join(chunks)
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    return Pack(f"pack-{checksum.hex()}", body + checksum, _index(entries, checksum))


def _index(entries: list[Entry], checksum: bytes) -> bytes:
    entries.sort()
    counts = [0] * 256
    for name, _, _ in entries:
        counts[name[0]] += 1
    numbers = struct.Struct(f">{len(entries)}I")
    parts = [
        _INDEX_MAGIC,
        _FANOUT.pack(*accumulate(counts)),
        *(name for name, _, _ in entries),
        numbers.pack(*(crc for _, crc, _ in entries)),
        numbers.pack(*(offset for _, _, offset in entries)),
        checksum,
    ]
    body = b"".join(parts)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def read_index(data: bytes) -> list[Entry]:
    """What an index lists, in the order of the pack. Raises LedgerCorrupt unless it is one of a pack below 2 GiB."""
    start = len(_INDEX_MAGIC) + _FANOUT.size
    if not data.startswith(_INDEX_MAGIC) or len(data) < start:
        raise LedgerCorrupt("a pack index of the ledger cannot be read: `git index-pack` makes it anew.")
    count = struct.unpack_from(">I", data, start - 4)[0]
    if len(data) != start + count * (NAME_BYTES + 8) + 2 * NAME_BYTES:
        raise LedgerCorrupt("a pack index of the ledger is of another length than it says.")
    numbers = struct.Struct(f">{count}I")
    crcs = numbers.unpack_from(data, start + count * NAME_BYTES)
    offsets = numbers.unpack_from(data, start + count * (NAME_BYTES + 4))
    names = (data[at : at + NAME_BYTES] for at in range(start, start + count * NAME_BYTES, NAME_BYTES))
    return sorted(zip(names, crcs, offsets, strict=True), key=itemgetter(2))


def _compressed(data: bytes) -> bytes:
    """Deflated with a window no larger than the data: zlib's default needs 256 KiB fresh from the system each time."""
    window = min(15, max(9, len(data).bit_length()))
    stream = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, window, min(8, window - 6))
    return stream.compress(data) + stream.flush()


def _stored(data: bytes) -> bytes:
    """The zlib stream of data as it is (RFC 1950 and 1951), which costs a hundredth of compressing it."""
    blocks = [data[start : start + 0xFFFF] for start in range(0, len(data), 0xFFFF)] or [b""]
    heads = [struct.pack("<BHH", block is blocks[-1], len(block), len(block) ^ 0xFFFF) for block in blocks]
    body = b"".join(part for pair in zip(heads, blocks, strict=True) for part in pair)
    return b"\x78\x01" + body + struct.pack(">I", zlib.adler32(data))


def _type_and_size(kind: int, size: int) -> bytes:
    """Four bits of the size beside the type, then seven a byte, lowest first."""
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 128
        head.append(size & 127)
        size >>= 7
    return bytes(head)


def _distance(value: int) -> bytes:
    """How far back a delta's base lies: seven bits a byte, highest first, each further byte counting one more."""
    head = bytearray([value & 127])
    while value := value >> 7:
        value -= 1
        head.append(128 | value & 127)
    return bytes(reversed(head))

"""Pack files (gitformat-pack(5), version 2), written and put together.

A commit's objects go into one pack of their own: two files instead of one for every object. Packs that have gathered
are written anew as one, where an object that resembles an earlier one is stored as what changed.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable

from attrs import frozen

from adescent.ledger.delta import DeltaBases
from adescent.ledger.objects import NAME_BYTES, GitObject
from adescent.ledger.packindex import PackIndex

__all__ = ["Pack", "joined", "pack_of"]

_TYPES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_OFFSET_DELTA = 6
_PACK_HEADER = struct.Struct(">4sII")
COMPRESSION_LEVEL = 1
"""zlib's fastest: half a commit's time would go into the next few per cent."""
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
    index = PackIndex()
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
        index.add(made.id, zlib.crc32(chunk), offset)
        chunks.append(chunk)
        offset += len(chunk)
    return _pack(chunks, index)


def joined(packs: Iterable[tuple[bytes, PackIndex]]) -> Pack:
    """One pack out of several (pack file and index of each), bodies copied as they are.

    A delta names its base by the distance between the two, which copying a whole body does not change.
    """
    chunks: list[bytes] = []
    index = PackIndex()
    shift = 0
    for data, inside in packs:
        chunks.append(data[_PACK_HEADER.size : -NAME_BYTES])
        index.add_all(inside, shift)
        shift += len(chunks[-1])
    return _pack(chunks, index)


def _pack(chunks: Iterable[bytes], index: PackIndex) -> Pack:
    body = _PACK_HEADER.pack(b"PACK", 2, len(index.names)) + b"".join(chunks)
    checksum = hashlib.sha1(body, usedforsecurity=False).digest()
    return Pack(f"pack-{checksum.hex()}", body + checksum, index.to_bytes(checksum))


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

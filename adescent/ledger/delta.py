"""What changed between two objects, in the form git stores it (gitformat-pack(5), "Deltified representation").

A ledger's objects change a little at a time: a tree in one entry, an artifact in a few lines. Their common beginning
and end are found by bisection; what lies between is compared line by line.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from adescent.ledger.objects import GitObject

__all__ = ["DeltaBases", "Found", "delta"]

ALIKE_BYTES = 64
"""Objects of one kind that begin or end with the same this many bytes are taken for versions of one thing."""
LONGEST_CHAIN = 32
"""A delta may build on a delta; git reads through up to 50 by default, and each costs a reader time."""
LONGEST_COPY = 0xFFFF
LONGEST_INSERT = 127


@frozen
class _Base:
    data: bytes
    offset: int
    depth: int


@frozen
class Found:
    """A delta, and the offset in the pack of what it builds on."""

    delta: bytes
    offset: int


class DeltaBases:
    """The objects of a pack under way, by how they begin and end."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str, bytes], _Base] = {}

    def delta_for(self, made: GitObject, offset: int) -> Found | None:
        """The shortest delta to an earlier object, if it is worth having; the object becomes a base itself."""
        if len(made.data) < 2 * ALIKE_BYTES or made.kind == "commit":
            return None
        keys = [(made.kind, "begin", made.data[:ALIKE_BYTES]), (made.kind, "end", made.data[-ALIKE_BYTES:])]
        bases = {base.offset: base for base in map(self._alike.get, keys) if base and base.depth < LONGEST_CHAIN}
        best, base = self._shortest(made.data, list(bases.values()))
        worth = base is not None and len(best) < len(made.data) // 2
        depth = base.depth + 1 if worth and base else 0
        self._alike.update(dict.fromkeys(keys, _Base(made.data, offset, depth)))
        return Found(best, base.offset) if worth and base else None

    def _shortest(self, target: bytes, bases: list[_Base]) -> tuple[bytes, _Base | None]:
        best: tuple[bytes, _Base | None] = (target, None)
        for base in bases:
            if len(found := delta(base.data, target)) < len(best[0]):
                best = found, base
            if len(best[0]) < len(target) // 8:  # good enough
                break
        return best


def delta(base: bytes, target: bytes) -> bytes:
    """Instructions that make ``target`` out of ``base``."""
    begin = _common(base, target, backwards=False)
    end = min(_common(base, target, backwards=True), min(len(base), len(target)) - begin)
    parts = [_size(len(base)), _size(len(target)), *_copy(0, begin)]
    parts += _by_lines(base, begin, len(base) - end, target[begin : len(target) - end])
    parts += _copy(len(base) - end, end)
    return b"".join(parts)


def _common(a: bytes, b: bytes, *, backwards: bool) -> int:
    """Length of the longest common beginning (or end), found by halving."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        same = a[-middle:] == b[-middle:] if backwards else a[:middle] == b[:middle]
        low, high = (middle, high) if same else (low, middle - 1)
    return low


def _by_lines(base: bytes, start: int, stop: int, target: bytes) -> Iterator[bytes]:
    """Copy lines the base has between start and stop, insert the others; neighbours go together."""
    places: dict[bytes, int] = {}
    place = start
    for line in base[start:stop].splitlines(keepends=True):
        places[line] = place
        place += len(line)
    fresh, copied, copied_from = bytearray(), 0, 0
    for line in target.splitlines(keepends=True):
        place = places.get(line, -1)
        if copied and place == copied_from + copied:
            copied += len(line)
            continue
        yield from _copy(copied_from, copied)
        copied = 0
        if place < 0 or len(line) < 8:
            fresh += line
        else:
            yield from _insert(bytes(fresh))
            fresh.clear()
            copied_from, copied = place, len(line)
    yield from _copy(copied_from, copied)
    yield from _insert(bytes(fresh))


def _copy(offset: int, length: int) -> Iterator[bytes]:
    """Each instruction names the bytes of offset and length that are not zero, and gives those."""
    while length > 0:
        part = min(length, LONGEST_COPY)
        numbers = offset.to_bytes(4, "little") + part.to_bytes(3, "little")
        given = [place for place, byte in enumerate(numbers) if byte]
        yield bytes([128 | sum(1 << place for place in given), *(numbers[place] for place in given)])
        offset += part
        length -= part


def _insert(fresh: bytes) -> Iterator[bytes]:
    for start in range(0, len(fresh), LONGEST_INSERT):
        part = fresh[start : start + LONGEST_INSERT]
        yield bytes([len(part)]) + part


def _size(value: int) -> bytes:
    """Seven bits a byte, lowest first."""
    size = bytearray()
    while value > 127:
        size.append(128 | value & 127)
        value >>= 7
    size.append(value)
    return bytes(size)

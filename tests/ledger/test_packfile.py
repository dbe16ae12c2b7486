"""Packs, indexes and deltas, read back by libgit2 and by git."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import LedgerCorrupt
from adescent.ledger.delta import LONGEST_CHAIN, delta
from adescent.ledger.objects import GitObject, git_object, write_tree
from adescent.ledger.packfile import Pack, joined, pack_of
from adescent.ledger.packindex import PackIndex

Git = Callable[..., str]

LINES = st.lists(
    st.sampled_from([b"alpha alpha\n", b"beta beta beta\n", b"\n", b"no end", b"\x00\xff" * 9]), max_size=30
)
TEXTS = LINES.map(b"".join) | st.binary(max_size=300)


def applied(base: bytes, instructions: bytes) -> bytes:
    """What a reader of packs makes of a delta, after gitformat-pack(5)."""
    position = 0

    def size() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = instructions[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    assert size() == len(base)
    target, out = size(), b""
    while position < len(instructions):
        code = instructions[position]
        position += 1
        if code < 128:
            assert code, "zero is no instruction"
            out += instructions[position : position + code]
            position += code
            continue
        numbers = [0] * 7
        for place in range(7):
            if code & 1 << place:
                numbers[place] = instructions[position]
                position += 1
        offset, length = int.from_bytes(bytes(numbers[:4]), "little"), int.from_bytes(bytes(numbers[4:]), "little")
        assert 0 < length <= len(base) - offset
        out += base[offset : offset + length]
    assert len(out) == target
    return out


@given(TEXTS, TEXTS)
def test_a_delta_makes_the_target_out_of_the_base(base: bytes, target: bytes) -> None:
    assert applied(base, delta(base, target)) == target


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 200_000))
def test_what_is_inserted_into_a_large_text_makes_a_small_delta(begin: bytes, fresh: bytes, size: int) -> None:
    end = b"x" * size
    made = delta(begin + end, begin + fresh + end)
    assert applied(begin + end, made) == begin + fresh + end
    assert len(made) < 60 + len(fresh)


def blobs(*texts: bytes) -> list[GitObject]:
    return [git_object("blob", text) for text in texts]


def versions_of_an_artifact(count: int) -> list[GitObject]:
    """Texts and trees that change a little at a time, as those of a ledger do."""
    lines = [b'    "rule-%d": "%s",\n' % (number, b"text" * 10) for number in range(20)]
    made = []
    for turn in range(count):
        lines[turn % 20] = b'    "rule-%d": "another text %d",\n' % (turn % 20, turn)
        blob = git_object("blob", b"".join(lines))
        made += [blob, write_tree({**{f"f{n}": bytes([n]) * 20 for n in range(20)}, "f7": blob.id}, of="blob")]
    return made


def put(folder: Path, pack: Pack) -> None:
    for suffix, data in ((".pack", pack.data), (".idx", pack.index)):
        (folder / "objects" / "pack" / (pack.name + suffix)).write_bytes(data)


def check_readable(folder: Path, pack: Pack, objects: list[GitObject], git: Git) -> None:
    put(folder, pack)
    database = pygit2.Odb(str(folder / "objects"))
    for made in objects:
        _, data = database.read(pygit2.Oid(raw=made.id))
        assert data == made.data
    said = git(folder, "verify-pack", "-v", f"objects/pack/{pack.name}.idx")
    assert sum(line[:40] in {made.id.hex() for made in objects} for line in said.splitlines()) == len(objects)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    pygit2.init_repository(str(tmp_path / "git"), bare=True)
    return tmp_path / "git"


@pytest.mark.parametrize("passing", [True, False])
@pytest.mark.parametrize("sizes", [[0], [1, 15, 16, 17, 2047, 2048, 2049, 65_534, 65_535, 65_536, 200_000], []])
def test_git_reads_objects_of_any_size(passing: bool, sizes: list[int], repository: Path, git: Git) -> None:
    objects = blobs(*(bytes(number % 251 for number in range(size)) for size in sizes))
    check_readable(repository, pack_of(objects, passing=passing), objects, git)


def test_git_reads_deltas_and_they_are_worth_it(repository: Path, git: Git) -> None:
    objects = versions_of_an_artifact(100)
    small, large = pack_of(objects), pack_of(objects, passing=True)
    check_readable(repository, small, objects, git)
    assert len(small.data) < len(large.data) / 5
    said = git(repository, "verify-pack", "-v", f"objects/pack/{small.name}.idx")
    assert f"chain length = {LONGEST_CHAIN}:" in said
    assert f"chain length = {LONGEST_CHAIN + 1}:" not in said


def test_git_reads_packs_that_were_joined(repository: Path, git: Git) -> None:
    objects = versions_of_an_artifact(30)
    parts = [pack_of(objects[start : start + 20]) for start in range(0, 60, 20)]
    check_readable(repository, joined([(part.data, PackIndex.from_bytes(part.index)) for part in parts]), objects, git)


@given(st.lists(TEXTS, max_size=8, unique=True))
def test_an_index_gives_back_what_went_in(texts: list[bytes]) -> None:
    pack = pack_of(blobs(*texts))
    index = PackIndex.from_bytes(pack.index)
    assert index.names == [made.id for made in blobs(*texts)]
    for crc, (offset, end) in zip(index.crcs, pairwise([*index.offsets, len(pack.data) - 20]), strict=True):
        assert zlib.crc32(pack.data[offset:end]) == crc


@given(st.data())
def test_a_damaged_index_is_refused(data: st.DataObject) -> None:
    index = pack_of(blobs(b"a", b"b")).index
    cut = data.draw(st.integers(0, len(index) - 1))
    with pytest.raises(LedgerCorrupt):
        PackIndex.from_bytes(index[:cut])
    with pytest.raises(LedgerCorrupt):
        PackIndex.from_bytes(b"x" + index[1:])

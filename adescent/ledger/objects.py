"""Git's objects as bytes and names: what a blob, a tree and a commit are made of, without any library.

The formats are those of gitformat-pack(5), gitglossary(7) and ``git cat-file -p``; an object's name is the SHA-1 of its
kind, size and bytes. Names are the raw 20 bytes everywhere in this room and hexadecimal where a person reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal

from attrs import field, frozen

from adescent.errors import LedgerCorrupt

__all__ = ["GitCommit", "GitObject", "Kind", "git_object", "read_commit", "read_tree", "write_commit", "write_tree"]

Kind = Literal["commit", "tree", "blob", "tag"]

NAME_BYTES = 20
AUTHOR = b"adescent <adescent@localhost>"
_MODES = {"blob": b"100644 ", "tree": b"40000 "}


@frozen
class GitObject:
    """An object and its name, which alone tells it from others."""

    kind: Kind = field(eq=False)
    data: bytes = field(eq=False)
    id: bytes


def git_object(kind: Kind, data: bytes) -> GitObject:
    """The object with these bytes, named."""
    digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    digest.update(data)
    return GitObject(kind, data, digest.digest())


def write_tree(entries: Mapping[str, bytes], *, of: Literal["blob", "tree"]) -> GitObject:
    """A tree whose entries (file name → object name) are all blobs or all trees."""
    # Git sorts a folder as if its name ended in a slash.
    end = b"/" if of == "tree" else b""
    mode = _MODES[of]
    named = sorted((name.encode() + end, target) for name, target in entries.items())
    cut = -1 if end else None
    return git_object("tree", b"".join(mode + name[:cut] + b"\0" + target for name, target in named))


def read_tree(data: bytes) -> dict[str, bytes]:
    """File name → object name. Raises LedgerCorrupt for bytes that are no tree."""
    return dict(_entries(data))


def _entries(data: bytes) -> Iterator[tuple[str, bytes]]:
    position = 0
    while position < len(data):
        space, zero = data.find(b" ", position), data.find(b"\0", position)
        following = zero + 1 + NAME_BYTES
        if not position < space < zero or following > len(data):
            raise LedgerCorrupt("a tree of the ledger cannot be read: restore the repository from a copy.")
        yield data[space + 1 : zero].decode(errors="replace"), data[zero + 1 : following]
        position = following


@frozen
class GitCommit:
    """What a commit says: its tree, the commits it follows, and its message."""

    tree: bytes
    parents: tuple[bytes, ...]
    message: str


def write_commit(commit: GitCommit, seconds: int) -> GitObject:
    """The commit object, made at ``seconds`` since 1970. The author is the ledger's own, whoever the user is."""
    lines = [b"tree " + commit.tree.hex().encode()]
    lines += [b"parent " + parent.hex().encode() for parent in commit.parents]
    lines += [b"%s %s %d +0000" % (role, AUTHOR, seconds) for role in (b"author", b"committer")]
    return git_object("commit", b"\n".join([*lines, b"", commit.message.encode() + b"\n"]))


def read_commit(data: bytes) -> GitCommit:
    """Read a commit object. Raises LedgerCorrupt for bytes that are none."""
    head, _, message = data.partition(b"\n\n")
    fields = [line.split(b" ", 1) for line in head.split(b"\n") if b" " in line]
    try:
        trees = [bytes.fromhex(value.decode()) for key, value in fields if key == b"tree"]
        parents = tuple(bytes.fromhex(value.decode()) for key, value in fields if key == b"parent")
        return GitCommit(trees[0], parents, message.decode(errors="replace").removesuffix("\n"))
    except (IndexError, ValueError):
        raise LedgerCorrupt("a commit of the ledger cannot be read: restore the repository from a copy.") from None

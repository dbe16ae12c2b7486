"""Commit messages: words for a person, then trailers that say what was decided and for which artifacts.

The trailers are git's own (git-interpret-trailers(1)), so ``git log --format='%(trailers)'`` reads them too. They are
always the last paragraph, which is how a message that looks like trailers itself stays apart from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from adescent.errors import ContractError
from adescent.evolvable import ARTIFACT_ID

__all__ = ["ARTIFACT", "Note", "read_note", "write_note"]

ARTIFACT = "Artifact"
"""The trailer that names what a commit changed, ``id@version``, once an artifact."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*\Z")
_TRAILER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*): (.*)\Z", re.DOTALL)
_CHANGED = re.compile(rf"({ARTIFACT_ID})@([1-9][0-9]*)\Z")


@frozen
class Note:
    """What a commit of a ledger says: words, the artifacts it changed with their versions, and the decision."""

    message: str
    changed: tuple[tuple[str, int], ...] = ()
    decision: Mapping[str, str] = field(factory=dict, hash=False)


def write_note(note: Note) -> str:
    """The commit message. Raises ContractError for words or trailers that git could not keep as they are."""
    named = [f"{artifact_id}@{version}" for artifact_id, version in note.changed]
    words = note.message.strip() or ", ".join(named)
    _check_text(words, "message")
    trailers = [f"{ARTIFACT}: {name}" for name in named]
    trailers += [f"{key}: {_quoted(key, value)}" for key, value in note.decision.items() if _checked(key)]
    return words + "\n\n" + "\n".join(trailers)


def _checked(key: str) -> bool:
    if not _KEY.match(key) or key == ARTIFACT:
        raise ContractError(
            f"decision key {key!r} cannot be a trailer: use letters, digits and hyphens, and not {ARTIFACT!r}."
        )
    return True


def _quoted(key: str, value: str) -> str:
    """The value as it is if it fits a line, else as a JSON string."""
    if not isinstance(value, str):
        raise ContractError(f"decision[{key!r}] is a {type(value).__name__}: hand it in as text.")
    _check_text(value, f"decision[{key!r}]")
    plain = value and value == value.strip() and value.isprintable() and not value.startswith('"')
    return value if plain else json.dumps(value, ensure_ascii=False)


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ContractError(f"{where}: a lone surrogate is not valid text; decode with errors='replace'.") from None
    if "\0" in text and where == "message":
        raise ContractError("message: git keeps no zero byte in a commit message; leave it out.")


def read_note(text: str) -> Note | None:
    """What `write_note` wrote, or None for a commit that no ledger made."""
    words, _, block = text.rpartition("\n\n")
    changed: list[tuple[str, int]] = []
    decision: dict[str, str] = {}
    for key, value in _trailers(block.split("\n")):
        if key == ARTIFACT:
            changed += [(found[1], int(found[2])) for found in [_CHANGED.match(value)] if found]
        else:
            decision[key] = _unquoted(value)
    return Note(words, tuple(changed), decision) if changed else None


def _trailers(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in map(_TRAILER.match, lines) if found]


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:  # somebody's own commit: theirs to quote
        return value

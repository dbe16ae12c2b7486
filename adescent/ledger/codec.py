"""An artifact as a document: what lies in a blob, and in which folder of the tree.

One JSON document an artifact, one line a key, so that ``git show`` and ``git diff`` speak for themselves. Equal
artifacts at equal versions give equal bytes, and so equal names in git. Writing is exact; reading is lenient: fields
it does not know are left alone, and documents of an older schema are brought up to date first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import fields

from adescent.canonical import check_json
from adescent.errors import ContractError, LedgerCorrupt, LedgerError
from adescent.evolvable import Contract, Evolvable

__all__ = ["MIGRATIONS", "SCHEMA", "decode", "encode", "file_name", "shard_of", "stored"]

SCHEMA = 1
SHARDS = 32
"""Folders below the root. A commit writes the root and one folder: 32 keeps both small up to some 1000 artifacts."""

SUFFIX = ".json"

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema number → what turns a document of that schema into one of the next."""

_CONTRACT_FIELDS = tuple(field.name for field in fields(Contract))


def shard_of(artifact_id: str) -> str:
    """The folder an artifact lies in: the same in every ledger."""
    return f"{hashlib.sha1(artifact_id.encode(), usedforsecurity=False).digest()[0] % SHARDS:02x}"


def file_name(artifact_id: str) -> str:
    """The file an artifact lies in."""
    return artifact_id + SUFFIX


def stored(artifact: Evolvable, version: int) -> Evolvable:
    """What a ledger keeps of an artifact, with numbers of one type."""
    radius = float(artifact.blast_radius)
    return Evolvable(artifact.id, artifact.state, version, artifact.contract, radius)


def encode(artifact: Evolvable) -> bytes:
    """The document. Raises ContractError naming the field that cannot be text or JSON.

    The version comes last before the state, so that documents of one artifact begin alike and pack well.
    """
    parts = {
        "id": _line(artifact.id),
        "schema": str(SCHEMA),
        "contract": _block(_promises(artifact.contract)),
        "blast_radius": _line(artifact.blast_radius),
        "version": str(artifact.version),
        "state": _block(artifact.state),
    }
    text = "{\n" + ",\n".join(f'  "{name}": {part}' for name, part in parts.items()) + "\n}\n"
    try:
        return text.encode()
    except UnicodeEncodeError:
        check_json(artifact.state, f"artifact {artifact.id!r}: state")
        check_json(_promises(artifact.contract), f"artifact {artifact.id!r}: contract")
        raise


def _promises(contract: Contract) -> dict[str, Any]:
    return {name: getattr(contract, name) for name in _CONTRACT_FIELDS}


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _block(mapping: Mapping[str, Any]) -> str:
    """One line a key. ``indent=`` would leave the C encoder, which is ten times as fast; a separator does not."""
    text = json.dumps(dict(mapping), ensure_ascii=False, separators=(",\n    ", ": "))
    return "{\n    " + text[1:-1] + "\n  }" if mapping else "{}"


def decode(data: bytes, where: str) -> Evolvable:
    """The artifact in a document. Raises LedgerCorrupt saying ``where`` when there is none in it."""
    try:
        document = json.loads(data)
        schema = document["schema"]
        if schema > SCHEMA:
            raise LedgerError(f"{where} was written by a newer adescent (schema {schema}): update this one to read it.")
        for step in range(schema, SCHEMA):
            document = MIGRATIONS[step](document)
        return _artifact(document)
    except (ValueError, TypeError, LookupError, AttributeError, ContractError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LedgerCorrupt(f"{where} holds no artifact ({what}): restore the repository from a copy.") from error


def _artifact(document: Mapping[str, Any]) -> Evolvable:
    promises = dict(document.get("contract", {}))
    contract = Contract(**{name: promises[name] for name in _CONTRACT_FIELDS if name in promises})
    version = document["version"]
    if type(version) is not int or version < 1 or type(contract.major) is not int:
        raise ValueError("version and contract.major must be whole numbers, the version at least 1")
    radius = float(document.get("blast_radius", fields(Evolvable).blast_radius.default))
    return Evolvable(document["id"], document["state"], version, contract, radius)

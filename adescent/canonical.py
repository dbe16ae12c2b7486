"""JSON as identity: one spelling for equal values, a digest of it, and a refusal that names the field.

What is stored, sent or used as a cache key passes here first. JSON has holes that turn one value into another on the
way (NaN becomes null, a large integer a float, a lone surrogate an encoding error), so they are refused at the door.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from adescent.errors import ContractError

__all__ = ["as_dict", "canonical_json", "check_json", "digest_of", "digest_of_text"]

MAX_INTEGER = 2**63
MAX_DEPTH = 64


def check_json(value: Any, where: str, *, error: type[ContractError] = ContractError, depth: int = 0) -> None:
    """Raise ``error`` naming the field (``where`` and the path below it) unless ``value`` is plain, finite JSON."""
    if depth > MAX_DEPTH:
        raise error(f"{where}: nested deeper than {MAX_DEPTH} levels; flatten it.")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, where, error)
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value < MAX_INTEGER:
            raise error(f"{where}: an integer beyond 64 bits does not survive JSON; pass it as a string.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise error(f"{where}: {value} is not JSON; use None or leave it out.")
    elif isinstance(value, (dict, Mapping)):  # dict first: to ask an abstract class takes longer
        for key, item in value.items():
            if not isinstance(key, str):
                raise error(f"{where}: the key {key!r} is a {type(key).__name__}; JSON keys are strings.")
            _check_text(key, where, error)
            if item is not None and not (type(item) is str and item.isascii()):  # most need no look, nor a name
                check_json(item, f"{where}.{key}", error=error, depth=depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_json(item, f"{where}[{index}]", error=error, depth=depth + 1)
    else:
        raise error(f"{where}: a {type(value).__name__} cannot be stored as JSON; keep plain values there.")


def _check_text(text: str, where: str, error: type[ContractError]) -> None:
    if text.isascii():  # known without a look at it, however long it is
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise error(f"{where}: a lone surrogate is not valid text; decode with errors='replace'.") from None


def canonical_json(value: Any) -> bytes:
    """Sorted keys, no spaces, UTF-8: the same JSON gives the same bytes; 1, 1.0 and true are three values.

    The value must pass `check_json`; what does not may raise a ContractError that cannot name the field.
    """
    try:
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(f"not to be written as JSON: {error}") from error


def as_dict(value: object) -> dict[Any, Any]:
    """What an encoder that knows dicts alone is to write for a mapping of another kind. Raises TypeError for others."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=as_dict)


def digest_of(value: Any) -> str:
    """32 hexadecimal digits (BLAKE2b, 128 bits) of the canonical JSON of ``value``."""
    return hashlib.blake2b(canonical_json(value), digest_size=16).hexdigest()


def digest_of_text(text: str) -> str:
    """32 hexadecimal digits (BLAKE2b, 128 bits) of ``text`` in UTF-8. Raises ContractError for lone surrogates."""
    try:
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    except UnicodeEncodeError as error:
        raise ContractError("a lone surrogate is not valid text; decode with errors='replace'.") from error

"""What is let through for each type of a message's fields: that type, and nothing that could be turned into it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from adescent.canonical import MAX_DEPTH, MAX_INTEGER

__all__ = ["CHECKS", "Hook"]

Hook = Callable[[Any, Any], Any]
"""Takes a value and its type, as cattrs calls it; returns the value, or raises TypeError."""


_LEAVES = frozenset((str, bool, type(None)))
"""Types of which every value is JSON, with nothing below it."""
_STR = frozenset((str,))


def _refuse(value: object, wanted: str) -> NoReturn:
    # By its type only: what is refused may be large, or a secret.
    raise TypeError(f"a {type(value).__name__} stands where {wanted} belongs")


def _exactly(kind: type) -> Hook:
    def check(value: Any, _: Any = None) -> Any:
        if type(value) is not kind:
            _refuse(value, kind.__name__)
        return value

    return check


def _number(value: Any, _: Any = None) -> float:
    if type(value) is int:
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        _refuse(value, "a finite number")
    return value


def _number_or_none(value: Any, _: Any = None) -> float | None:
    return None if value is None else _number(value)


def _strings(value: Any, _: Any = None) -> list[str]:
    if type(value) is not list or not all(type(item) is str for item in value):
        _refuse(value, "a list of strings")
    return value


def _numbers(value: Any, _: Any = None) -> dict[str, float]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        _refuse(value, "numbers by name")
    return {name: _number(item) for name, item in value.items()}


def _object(value: Any, _: Any = None) -> dict[str, Any]:
    if type(value) is not dict:
        _refuse(value, "a JSON object")
    _json(value)
    return value


def _json(value: Any, _: Any = None) -> Any:
    """Refuse what msgpack carries and JSON does not, level by level: so the depth is bounded, and no call nested."""
    if type(value) in _LEAVES or _is_number(value):  # most outputs
        return value
    level = [value]
    for _depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in _LEAVES:
                continue
            if kind is dict:
                below += item.values()
                if not set(map(type, item)) <= _STR:
                    _refuse(item, "an object with strings for keys")
            elif kind is list:
                below += item
            elif not _is_number(item):
                _refuse(item, "JSON (numbers are finite and have at most 64 bits)")
        if not below:
            return value
        level = below
    _refuse(value, f"JSON of at most {MAX_DEPTH} levels")


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return -MAX_INTEGER <= value < MAX_INTEGER
    return type(value) is float and math.isfinite(value)


def _or_none(check: Hook) -> Hook:
    def optional(value: Any, _: Any = None) -> Any:
        return None if value is None else check(value, _)

    return optional


CHECKS: tuple[tuple[Any, Hook], ...] = (
    (int, _exactly(int)),
    (str, _exactly(str)),
    (bool, _exactly(bool)),
    (float, _number),
    (int | None, _or_none(_exactly(int))),
    (float | None, _number_or_none),
    (list[str], _strings),
    (dict[str, float], _numbers),
    (dict[str, Any], _object),
    (dict[str, Any] | None, _or_none(_object)),
    (Any, _json),
)
"""Every type of a field, Literals aside. What cattrs would do by itself is turn "12" into 12, and "abc" into a list."""

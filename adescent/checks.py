"""What passes for a number where options are checked, and the words for what does not."""

from __future__ import annotations

import math
import sys
from typing import TypeGuard

from adescent.errors import ContractError

__all__ = ["is_duration", "is_number", "is_whole", "need_share", "need_whole", "shown"]


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a float, or an int that one can hold: True and False are neither; NaN is one, in no range."""
    if isinstance(value, float):
        return True
    return is_whole(value) and abs(value) <= sys.float_info.max


def is_duration(value: object) -> TypeGuard[float]:
    """Whether it is a number of seconds that passes: above 0, and finite."""
    return is_number(value) and 0 < value < math.inf


def is_whole(value: object, least: float = -math.inf) -> TypeGuard[int]:
    """Whether it is an int of at least ``least``: True, False and 2.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def need_whole(
    name: str, value: object, least: int, error: type[ContractError], *, of: str = "", otherwise: str = ""
) -> None:
    """Raise ``error`` unless the option ``name`` (of what is called ``of``) is a whole number of at least ``least``.

    ``otherwise`` ends the message: what else may be given.
    """
    if not is_whole(value, least):
        given = f"{name}={shown(value)}"
        raise error(f"{f'{of}({given})' if of else given} must be a whole number of at least {least}{otherwise}.")


def need_share(name: str, value: object, error: type[ContractError]) -> None:
    """Raise ``error`` unless the option ``name`` is a number from 0 to 1."""
    if not is_number(value) or not 0.0 <= value <= 1.0:
        raise error(f"{name}={shown(value)} must lie in [0, 1].")


def shown(value: object) -> str:
    """What was given, for a message: at most 60 characters of its `repr`, or its type where it has none."""
    try:
        return f"{value!r:.60}"
    except Exception:  # noqa: BLE001 - somebody else's repr; that of an int of 5000 digits raises too
        return f"a {type(value).__name__}"

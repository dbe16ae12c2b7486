"""What passes for a number where options are checked, and the words for what does not."""

from __future__ import annotations

import math
from typing import TypeGuard

from adescent.errors import ContractError

__all__ = ["is_number", "is_whole", "need_share", "need_whole"]


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is an int or a float: True and False are neither, and NaN is one that lies in no range."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
        shown = f"{name}={value!r:.60}"
        raise error(f"{f'{of}({shown})' if of else shown} must be a whole number of at least {least}{otherwise}.")


def need_share(name: str, value: object, error: type[ContractError]) -> None:
    """Raise ``error`` unless the option ``name`` is a number from 0 to 1."""
    if not is_number(value) or not 0.0 <= value <= 1.0:
        raise error(f"{name}={value!r:.60} must lie in [0, 1].")

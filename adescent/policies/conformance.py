"""Whether what a caller handed in is a policy of the kind asked for, told before anything is run with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Attribute

from adescent.checks import shown
from adescent.errors import OptionError

__all__ = ["Check", "fits", "is_a", "makes", "need_fit", "need_record"]

Check = Callable[[Any, "Attribute[Any]", Any], None]


def need_fit(name: str, value: object, protocol: type) -> None:
    """Raise OptionError unless the option ``name`` is None, or an object with every member of ``protocol``."""
    if value is None:
        return
    _refuse_class(name, value)
    members = [member for member in (*vars(protocol), *protocol.__annotations__) if not member.startswith("_")]
    missing = [member for member in members if not hasattr(value, member)]
    if missing:
        raise OptionError(f"{name}={shown(value)} is no {protocol.__name__}: it has no {', '.join(missing)}.")


def need_record(name: str, value: object, record: type) -> None:
    """Raise OptionError unless the option ``name`` is None, or a ``record``."""
    if value is None or isinstance(value, record):
        return
    _refuse_class(name, value)
    raise OptionError(f"{name}={shown(value)} must be made as {record.__name__}(…).")


def _refuse_class(name: str, value: object) -> None:
    if isinstance(value, type):
        raise OptionError(f"{name}= takes an object, not a class: write {value.__name__}(…).")


def fits(protocol: type) -> Check:
    """`need_fit` as an attrs validator."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        need_fit(attribute.name, value, protocol)

    return check


def is_a(record: type) -> Check:
    """`need_record` as an attrs validator."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        need_record(attribute.name, value, record)

    return check


def makes(product: str) -> Check:
    """An attrs validator: None, or something to call for a ``product``. Raises OptionError."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None and not callable(value):
            raise OptionError(f"{attribute.name}={shown(value)} must be a class or function that makes {product}.")

    return check

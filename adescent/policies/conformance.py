"""Whether what a caller handed in is a policy of the kind asked for, told before anything is run with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import Attribute

from adescent.errors import OptionError

__all__ = ["Check", "fits", "is_a", "makes"]

Check = Callable[[Any, "Attribute[Any]", Any], None]


def fits(protocol: type) -> Check:
    """An attrs validator: None, or an object with every member of ``protocol``. Raises OptionError."""
    members = [name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")]

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is None:
            return
        _refuse_class(attribute, value)
        missing = [name for name in members if not hasattr(value, name)]
        if missing:
            raise OptionError(
                f"{attribute.name}={value!r:.60} is no {protocol.__name__}: it has no {', '.join(missing)}."
            )

    return check


def is_a(record: type) -> Check:
    """An attrs validator: None, or a ``record``. Raises OptionError."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is None or isinstance(value, record):
            return
        _refuse_class(attribute, value)
        raise OptionError(f"{attribute.name}={value!r:.60} must be a {record.__name__}(…).")

    return check


def _refuse_class(attribute: Attribute[Any], value: Any) -> None:
    if isinstance(value, type):
        raise OptionError(f"{attribute.name}= takes an object, not a class: write {value.__name__}(…).")


def makes(product: str) -> Check:
    """An attrs validator: None, or something to call for a ``product``. Raises OptionError."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None and not callable(value):
            raise OptionError(f"{attribute.name}={value!r:.60} must be a class or function that makes {product}.")

    return check

"""The values of the variables a worker was given by name must leave it nowhere: not in an output, log or traceback.

Found is what is written as it is, or as JSON or ``repr`` would write it. A value that was encoded, split or otherwise
transformed passes: redaction saves from accidents; against code that means harm, hand in no secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from attrs import frozen

__all__ = ["Redactor"]

LEAST_CHARACTERS = 4
"""Shorter values are left: they would shred ordinary text, and guessing them takes no leak."""
LEAST_CHARACTERS_OF_LINE = 8


@frozen
class Redactor:
    """Puts «NAME» in the place of the value of the variable NAME.

    ``values`` are pairs of a text and what replaces it, longest first. Truthy when there is anything to replace.
    """

    values: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, names: Iterable[str], environ: Mapping[str, str]) -> Self:
        """For the values of ``names`` in ``environ``; names that are not set and short values count for nothing.

        Of a value of several lines each line of 8 characters is replaced too.
        """
        labels: dict[str, str] = {}
        for name in names:
            for text in _spellings(environ.get(name, "")):
                labels.setdefault(text, f"«{name}»")
        return cls(tuple(sorted(labels.items(), key=lambda pair: (-len(pair[0]), pair))))

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def longest(self) -> int:
        """The characters of the longest value; 0 when there is none."""
        return len(self.values[0][0]) if self.values else 0

    def boundary(self, text: str, at: int) -> int:
        """The first place from ``at`` on where ``text`` can be cut without cutting a value in two."""
        return next((stop for start, stop, _ in _merged(self._found(text)) if start < at < stop), at)

    def text(self, text: str) -> str:
        """``text`` without a character of any value: where several overlap, one label stands for them all."""
        if not any(value in text for value, _ in self.values):
            return text
        pieces, end = [], 0
        for start, stop, label in _merged(self._found(text)):
            pieces += [text[end:start], label]
            end = stop
        return "".join([*pieces, text[end:]])

    def json(self, value: Any) -> Any:
        """``value`` (plain JSON) with every string in it redacted, at any depth, keys too."""
        if not self.values:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return [self.json(item) for item in value]
        return value

    def _mapping(self, value: Mapping[str, Any]) -> dict[str, Any]:
        redacted: dict[str, Any] = {}
        for key, item in value.items():
            shown = self.text(key)
            while shown in redacted:  # two keys that only a value told apart: keep both
                shown += "′"
            redacted[shown] = self.json(item)
        return redacted

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        for value, label in self.values:
            start = text.find(value)
            while start >= 0:
                yield start, start + len(value), label
                start = text.find(value, start + 1)  # not behind it: a value may overlap itself


def _merged(found: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    """Stretches that share a character become one, under the label of the longest value in it."""
    start, stop, label, longest = 0, 0, "", 0
    for first, last, name in sorted(found):
        if first >= stop:
            if longest:
                yield start, stop, label
            start, stop, label, longest = first, last, name, last - first
            continue
        stop = max(stop, last)
        if last - first > longest:
            label, longest = name, last - first
    if longest:
        yield start, stop, label


def _spellings(value: str) -> Iterator[str]:
    parts = [part.strip() for part in value.splitlines()]
    lines = [part for part in parts if len(part) >= LEAST_CHARACTERS_OF_LINE] if len(parts) > 1 else []
    for text in [value, *lines]:
        if len(text) >= LEAST_CHARACTERS:
            yield from (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])

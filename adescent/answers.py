"""What an answer in free words says: its text, its numbers, its items, its JSON. All of it is pure."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections import Counter, deque
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

__all__ = ["Number", "items_in", "json_in", "last_number_in", "normal_text", "same_json", "squad_words", "text_of"]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_FENCE = re.compile(r"```[\w-]*[ ]*\n(.*?)```", re.DOTALL)
_ITEM_END = re.compile(r"[,;\n]")
_BULLET = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\{(\d{1,9})\}\{(\d{1,9})\}", re.ASCII)
# The first look-behinds keep out digits of words (x2), parts of versions (1.2.3) and minus signs that subtract (5-3).
_NUMBER = re.compile(
    r"""(?<!\w)(?<!\d\.)
    (?P<sign>[-+\u2212]?[$€£¥]?[-\u2212]?)
    (?:
        (?<!/)(?:(?P<whole>\d{1,3})[ ])?(?P<top>\d{1,9})/(?P<bottom>[1-9]\d{0,8})(?!\d|/|\.\d)
      | (?P<decimal>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\.)\.\d+)(?P<exponent>[eE][-+]?\d{1,3}(?!\d))?
    )""",
    re.ASCII | re.VERBOSE,
)


class Number(NamedTuple):
    """A number as it was written, and its exact value."""

    written: str
    value: Fraction


def text_of(output: object) -> str | None:
    """Text as it is, None as no text, any other JSON value as its JSON with sorted keys; None for what is not JSON."""
    if output is None or isinstance(output, str):
        return output or ""
    try:
        return json.dumps(output, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def normal_text(text: str, *, ignore_case: bool, ignore_punctuation: bool = False) -> str:
    """Unicode NFC, runs of white space as one space, none at the ends; case and ASCII punctuation gone if asked for."""
    text = unicodedata.normalize("NFC", text)
    if ignore_punctuation:
        text = text.translate(_PUNCTUATION)
    if ignore_case:
        text = text.casefold()
    # Again, since a dropped character or a folded one may have stood between two that compose.
    return " ".join(unicodedata.normalize("NFC", text).split())


def squad_words(text: str) -> Counter[str]:
    """The words and their counts after SQuAD's normalisation: lower case, no ASCII punctuation, no a, an, the."""
    return Counter(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def last_number_in(text: str) -> Number | None:
    r"""The last number of the text, exactly, or None.

    Read are `-3` (also with U+2212), `1,234.5`, `.5`, `1e3`, `$5` and `-$5`, `50%` (as 50), fractions and mixed numbers
    `3/4`, `1 3/4`, `\frac{3}{4}`. Not read: digits in words (`x2`), decimal commas, number words, other bases.
    """
    numbers = deque(_NUMBER.finditer(_LATEX_FRACTION.sub(r"\1/\2", text)), maxlen=1)
    if not numbers:
        return None
    last = numbers[0]
    try:
        size = _size(last)
    except ValueError:  # more digits than the interpreter is willing to convert
        return None
    negative = last["sign"].strip("+$€£¥") != ""
    return Number(last[0], -size if negative else size)


def _size(number: re.Match[str]) -> Fraction:
    if number["bottom"] is not None:
        return int(number["whole"] or 0) + Fraction(int(number["top"]), int(number["bottom"]))
    return Fraction(number["decimal"].replace(",", "") + (number["exponent"] or ""))


def json_in(output: object) -> Any:
    """The JSON value that an output is, is written as, or holds in a code fence (the last one that parses).

    Raises ValueError when there is none; NaN and infinities are none.
    """
    text = text_of(output)
    if text is None:
        raise ValueError("the output is not JSON")
    for candidate in (text, *reversed(_FENCE.findall(text))):
        try:
            return json.loads(candidate, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
    raise ValueError("the output holds no JSON")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def items_in(output: object) -> list[str]:
    """The items of a JSON list, or of text cut at commas, semicolons and line ends; blank ones left out.

    An item of cut text loses its bullet or number and the quotes around it; one that is not text is taken as its JSON.
    """
    try:
        listed = json_in(output)
    except ValueError:
        listed = None
    if isinstance(listed, list):
        texts = [text_of(item) or "" for item in listed]
    else:
        texts = [
            _BULLET.sub("", part.strip(), count=1).strip("\"'` ") for part in _ITEM_END.split(text_of(output) or "")
        ]
    return [text for text in texts if text.strip()]


def same_json(one: object, other: object) -> bool:
    """Equality of JSON values: 1 equals 1.0, but neither true nor "1"; key order does not count, list order does."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same_json, one, other))
    return one == other

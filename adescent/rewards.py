"""Scorers that a Ref can name: `Ref("adescent.rewards:last_number", {"gold_key": "answer"})`.

Each function here is a factory: called with its settings it returns `(task, output) -> Score`, deterministic and
without state. What was expected comes from `task.meta[gold_key]`; a task without it (or with None) is a ContractError
that names the task. Where several answers are accepted, the gold is a list of them and the best match counts. Feedback
says what was expected and what was found, in words for a proposer; at full score it is empty.

Outputs are read as text: text as it is, None as no text, any other JSON value as its JSON (`3`, `true`, `["a"]`). What
is no JSON value (bytes, a set, NaN, an object) scores 0, and the feedback says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from adescent.answers import items_in, json_in, last_number_in, normal_text, same_json, squad_words, text_of
from adescent.checks import is_number, shown
from adescent.errors import ContractError, OptionError
from adescent.refs import nameable
from adescent.tasks import Score, Task

__all__ = ["contains", "exact_match", "f1_match", "json_field_match", "last_number", "numeric_close", "set_match"]

Scorer = Callable[[Task, object], Score]
Path = tuple[str | int, ...]

QUOTED_CHARACTERS = 200
LISTED_ITEMS = 10


@nameable
def exact_match(gold_key: str = "gold", *, ignore_case: bool = True, ignore_punctuation: bool = False) -> Scorer:
    """1 when the output is the gold text, else 0.

    Both are compared in Unicode form NFC, with runs of white space as one space and none at the ends;
    `ignore_punctuation` leaves ASCII punctuation out too.
    """

    def normal(text: str) -> str:
        return normal_text(text, ignore_case=ignore_case, ignore_punctuation=ignore_punctuation)

    def compare(golds: list[str], text: str) -> Score:
        if normal(text) in map(normal, golds):
            return Score(1.0)
        return Score(0.0, f"expected exactly {_any_of(golds)}, found {_quoted(text)}")

    return _text_scorer(gold_key, compare)


@nameable
def contains(gold_key: str = "gold", *, ignore_case: bool = True, whole_words: bool = False) -> Scorer:
    """1 when the gold text occurs in the output, else 0; of several accepted answers one is enough.

    Text is normalised as in `exact_match`. With `whole_words` an occurrence inside a longer word or number does not
    count: gold `4` is not in `14`. A blank gold, which everything contains, is a ContractError.
    """

    def holds(text: str, gold: str) -> bool:
        wanted = normal_text(gold, ignore_case=ignore_case)
        if whole_words:
            return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text) is not None
        return wanted in text

    def compare(golds: list[str], text: str) -> Score:
        if not all(map(str.strip, golds)):
            raise _BadGold("is blank, and every output contains that")
        normal = normal_text(text, ignore_case=ignore_case)
        if any(holds(normal, gold) for gold in golds):
            return Score(1.0)
        return Score(0.0, f"expected the output to contain {_any_of(golds)}, found {_quoted(text)}")

    return _text_scorer(gold_key, compare)


@nameable
def last_number(gold_key: str = "gold") -> Scorer:
    r"""1 when the last number in the output equals the gold exactly, else 0.

    Read as numbers: `-3` (also with U+2212), `1,234.5`, `.5`, `1e3`, `$5` and `-$5`, `50%` (as 50, never as 0.5),
    fractions and mixed numbers `3/4`, `1 3/4`, `\frac{3}{4}`. `0.75` equals `3/4`, and `2` equals `2.00`. Not read:
    digits in words (`x2`), decimal commas, number words, other bases. The gold is a number, or a text whose last number
    counts; a gold without one is a ContractError.
    """
    return _numeric_scorer(gold_key, lambda found, gold: found == gold)


@nameable
def numeric_close(gold_key: str = "gold", *, rel_tol: float = 1e-6, abs_tol: float = 0.0) -> Scorer:
    """1 when the last number in the output is near the gold: `|found - gold| <= max(rel_tol * |gold|, abs_tol)`.

    Otherwise 0. Numbers are read as in `last_number`. A tolerance that is negative or not finite is an OptionError.
    """
    relative, absolute = _tolerance("rel_tol", rel_tol), _tolerance("abs_tol", abs_tol)
    return _numeric_scorer(gold_key, lambda found, gold: abs(found - gold) <= max(relative * abs(gold), absolute))


@nameable
def set_match(gold_key: str = "gold", *, exact: bool = False, ignore_case: bool = True) -> Scorer:
    """Jaccard similarity of two sets of items, `|both| / |either|`; with `exact` 1 when they are equal, else 0.

    Items are those of a JSON list (also inside a code fence), or of text cut at commas, semicolons and line ends,
    without bullets, numbering, and quotes around an item; blank items do not count. Two empty sets are equal. Here a
    list as gold is the set itself. Metrics: `precision` and `recall`.
    """
    _check_gold_key(gold_key)

    def items(value: object) -> dict[str, str]:
        return {normal_text(item, ignore_case=ignore_case): item for item in items_in(value)}

    def score(task: Task, output: object) -> Score:
        expected = items(_gold(task, gold_key))
        if text_of(output) is None:
            return _unreadable(output)
        found = items(output)
        both = len(expected.keys() & found.keys())
        value = _share(both, len(expected.keys() | found.keys()))
        metrics = {"precision": _share(both, len(found)), "recall": _share(both, len(expected))}
        if value == 1.0:
            return Score(1.0, metrics=metrics)
        missing = [item for key, item in expected.items() if key not in found]
        needless = [item for key, item in found.items() if key not in expected]
        words = f"missing: {_listed(missing)}; not expected: {_listed(needless)}"
        return Score(0.0 if exact else value, words, metrics)

    return score


@nameable
def f1_match(gold_key: str = "gold") -> Scorer:
    """F1 of the words shared with the gold, as SQuAD defines it (Rajpurkar et al. 2016, arXiv:1606.05250).

    Words count with their repetitions, in lower case, without ASCII punctuation and the articles a, an, the. Without a
    word on one side it is 1 when the other has none either, else 0. Metrics: `precision` and `recall` against the best
    of the accepted answers.
    """

    def compare(golds: list[str], text: str) -> Score:
        value, precision, recall, best = max((*_f1(text, gold), gold) for gold in golds)
        metrics = {"precision": precision, "recall": recall}
        if value == 1.0:
            return Score(1.0, metrics=metrics)
        missing = (squad_words(best) - squad_words(text)).elements()
        needless = (squad_words(text) - squad_words(best)).elements()
        words = f"expected {_quoted(best)}, found {_quoted(text)}; "
        return Score(value, words + f"missing words: {_listed(missing)}; needless words: {_listed(needless)}", metrics)

    return _text_scorer(gold_key, compare)


@nameable
def json_field_match(gold_key: str = "gold", *, fields: Sequence[str | Sequence[str | int]] | None = None) -> Scorer:
    """The share of fields in which the output, read as JSON, equals the gold.

    A field is a dotted path, `"address.city"` or `"items.0.name"`, or a list of its steps where a key holds a dot; None
    takes every top-level key of the gold. Gold and output are JSON values or their text, the output's perhaps in a code
    fence. Values are equal as JSON: `1` equals `1.0` but neither `true` nor `"1"`; key order does not count, list order
    does. Metrics: 1 or 0 under each field's name. A path that is none is an OptionError, a gold without one of the
    fields a ContractError.
    """
    _check_gold_key(gold_key)
    wanted = None if fields is None else [_path(field) for field in _listed_fields(fields)]

    def score(task: Task, output: object) -> Score:
        expected = _expected_fields(task, gold_key, wanted)
        if text_of(output) is None:
            return _unreadable(output)
        try:
            found = json_in(output)
        except ValueError:
            names = _listed(map(_name, expected))
            return Score(0.0, f"expected a JSON object with {names}, found {_quoted(text_of(output) or '')}")
        differences = {_name(path): _difference(found, path, gold) for path, gold in expected.items()}
        metrics = {name: 0.0 if difference else 1.0 for name, difference in differences.items()}
        words = "; ".join(f"{name}: {difference}" for name, difference in differences.items() if difference)
        return Score(sum(metrics.values()) / len(metrics), words, metrics)

    return score


class _BadGold(Exception):
    """A gold the scorer cannot work with; whoever knows the task turns it into a ContractError."""


def _text_scorer(gold_key: str, compare: Callable[[list[str], str], Score]) -> Scorer:
    """A scorer from a comparison of the accepted texts with the output's text."""
    _check_gold_key(gold_key)

    def score(task: Task, output: object) -> Score:
        gold = _gold(task, gold_key)
        golds = [text_of(each) for each in (gold if isinstance(gold, (list, tuple)) else [gold])]
        readable = [text for text in golds if text is not None]
        text = text_of(output)
        try:
            if not golds or len(readable) < len(golds):
                raise _BadGold("is neither a JSON value nor a list of accepted ones")
            return _unreadable(output) if text is None else compare(readable, text)
        except _BadGold as error:
            raise ContractError(f"task {task.id!r}: meta[{gold_key!r}] {error}: correct the task.") from None

    return score


def _numeric_scorer(gold_key: str, agree: Callable[[Fraction, Fraction], bool]) -> Scorer:
    def compare(golds: list[str], text: str) -> Score:
        accepted = [last_number_in(gold) for gold in golds]
        if None in accepted:
            raise _BadGold("holds no number")
        found = last_number_in(text)
        if found is None:
            return Score(0.0, f"expected the number {_any_of(golds)}, found no number in {_quoted(text)}")
        if any(agree(found.value, gold.value) for gold in accepted if gold is not None):
            return Score(1.0)
        return Score(0.0, f"expected the number {_any_of(golds)}, found {_quoted(found.written)} as the last number")

    return _text_scorer(gold_key, compare)


def _check_gold_key(gold_key: object) -> None:
    if not isinstance(gold_key, str) or not gold_key:
        raise OptionError(f"gold_key={gold_key!r}: give the key of task.meta that holds the expected answer.")


def _tolerance(name: str, value: object) -> Fraction:
    if not is_number(value) or not 0 <= value < math.inf:
        raise OptionError(f"{name}={shown(value)}: a tolerance is a finite number, zero or more.")
    return Fraction(str(value))  # 0.1 as it was written, not as its binary neighbour


def _gold(task: Task, gold_key: str) -> Any:
    gold = task.meta.get(gold_key)
    if gold is None:
        raise ContractError(
            f"task {task.id!r}: meta has no {gold_key!r} to score against (it has {sorted(map(str, task.meta))}): "
            "add it to the task, or name another key with gold_key=."
        )
    return gold


def _share(part: int, whole: int) -> float:
    """Part of the whole; all of nothing is everything."""
    return part / whole if whole else 1.0


def _f1(text: str, gold: str) -> tuple[float, float, float]:
    found, expected = squad_words(text), squad_words(gold)
    if not found or not expected:
        same = float(found == expected)
        return same, same, same
    both = (found & expected).total()
    precision, recall = both / found.total(), both / expected.total()
    return (2 * precision * recall / (precision + recall) if both else 0.0), precision, recall


def _listed_fields(fields: object) -> Collection[object]:
    if isinstance(fields, (list, tuple)) and fields:
        return fields
    raise OptionError(f"fields={fields!r}: give a list of paths such as ['name', 'address.city'], or leave it out.")


def _path(field: object) -> Path:
    steps = tuple(field.split(".")) if isinstance(field, str) else field
    if isinstance(steps, (list, tuple)) and steps and all(type(s) is int or (isinstance(s, str) and s) for s in steps):
        return tuple(steps)
    raise OptionError(
        f"fields holds {field!r}: a path is 'address.city', or the list of its steps ['address', 'city']."
    )


def _name(path: Path) -> str:
    dotted = any("." in step for step in path if isinstance(step, str))
    return text_of(path) or "" if dotted else ".".join(map(str, path))


def _at(value: Any, path: Path) -> Any:
    """What stands at the path; raises LookupError when nothing does."""
    for step in path:
        if isinstance(value, Mapping):
            value = value[str(step)]
        elif isinstance(value, (list, tuple)) and str(step).isdecimal():
            value = value[int(step)]
        else:
            raise LookupError(step)
    return value


def _expected_fields(task: Task, gold_key: str, wanted: Sequence[Path] | None) -> dict[Path, Any]:
    try:
        gold = json_in(_gold(task, gold_key))
        paths = wanted or [(key,) for key in gold if isinstance(gold, Mapping)]
        expected = {path: _at(gold, path) for path in paths}
    except (ValueError, LookupError, TypeError) as error:
        raise ContractError(
            f"task {task.id!r}: meta[{gold_key!r}] lacks a field ({error}): correct it or fields=."
        ) from error
    if not expected:
        raise ContractError(f"task {task.id!r}: meta[{gold_key!r}] is no JSON object with a field: correct the task.")
    return expected


def _difference(found: Any, path: Path, gold: Any) -> str:
    try:
        value = _at(found, path)
    except LookupError:
        return f"expected {_quoted(gold)}, found no such field"
    return "" if same_json(value, gold) else f"expected {_quoted(gold)}, found {_quoted(value)}"


def _unreadable(output: object) -> Score:
    return Score(0.0, f"expected text or another JSON value, found a {type(output).__name__}")


def _quoted(value: object) -> str:
    """JSON, so that "3" and 3 look different, and cut: feedback goes into prompts."""
    text = "null" if value is None else text_of(value) or ""
    short = text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}…"
    return f'"{short}"' if isinstance(value, str) else short


def _any_of(golds: Sequence[str]) -> str:
    return _quoted(golds[0]) if len(golds) == 1 else f"one of {_listed(golds)}"


def _listed(items: Iterable[str]) -> str:
    texts = [_quoted(item) for item in items]
    more = f" and {len(texts) - LISTED_ITEMS} more" if len(texts) > LISTED_ITEMS else ""
    return (", ".join(texts[:LISTED_ITEMS]) or "nothing") + more

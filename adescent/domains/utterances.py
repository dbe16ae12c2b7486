"""Real texts to route: utterances in ten languages to their language, or the texts of a file to their labels."""

from __future__ import annotations

import json
import random
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import Any

from adescent.canonical import digest_of
from adescent.checks import need_whole
from adescent.domains.domain import Domain
from adescent.domains.keywords import OTHERWISE, keyword_run, majority_label, propose_keywords, words_of
from adescent.errors import ContractError, OptionError
from adescent.rewards import exact_match
from adescent.strategies import KeyedRules
from adescent.tasks import Task

__all__ = ["LANGUAGES", "jsonl_domain", "utterance_domain"]

LANGUAGES = (
    "dutch",
    "english",
    "french",
    "german",
    "indonesian",
    "italian",
    "portuguese",
    "spanish",
    "swedish",
    "turkish",
)

PER_LANGUAGE = 50
LEAST_WORDS = 3
"""Shorter utterances are mostly names and interjections, which say little about their language."""
LONGEST = 200

LEAST_TASKS = 10
"""A file needs that many texts: splits of less than a handful of tasks tell nothing."""

KINDS = {
    bool: "a truth value",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "a list",
    NoneType: "null",
    str: "a text",
}
"""What the values of a JSON document are called."""

Labelled = tuple[str, str]
"""(text, label)."""


def utterance_domain(*, per_language: int = PER_LANGUAGE, seed: int = 0, delay: float = 0.0) -> Domain:
    """Utterances of the ``chatterbot-corpus`` package, to be routed to their language by keyword rules.

    Up to ``per_language`` of each of `LANGUAGES` are drawn with ``seed`` (the smallest has 45): by default 495 tasks,
    and 0.4 of them is a split of about 200. Kept are utterances of at least three words and at most 200 characters
    which occur in one language only. ``delay`` seconds are slept in each rollout.

    Raises ContractError where the extra ``demo`` is not installed, OptionError for a ``per_language`` below 1.
    """
    need_whole("per_language", per_language, 1, OptionError)
    by_language: defaultdict[str, list[str]] = defaultdict(list)
    for text, language in _distinct(_corpus()):
        if len(words_of(text)) >= LEAST_WORDS and len(text) <= LONGEST:
            by_language[language].append(text)
    rng = random.Random(f"{seed}:utterances")
    drawn = [
        (text, language)
        for language, texts in by_language.items()
        for text in rng.sample(texts, min(per_language, len(texts)))
    ]
    return _domain(drawn, delay)


def jsonl_domain(path: str | Path, *, delay: float = 0.0) -> Domain:
    """The texts of a JSONL file, one ``{"text": …, "label": …}`` a line, to be routed to their labels.

    A label may be a whole number, which is taken as its digits. Blank lines are passed over, and so are further fields.
    A text that appears again is taken once, and one that appears under several labels not at all. ``delay`` seconds are
    slept in each rollout.

    Raises ContractError for a file that cannot be read, for the first line that does not have the form, for fewer than
    10 texts and for fewer than two labels.
    """
    path = Path(path)
    tasks = list(_distinct(_lines(path)))
    if len(tasks) < LEAST_TASKS:
        raise ContractError(f"{path} holds {len(tasks)} texts that can be told apart: give at least {LEAST_TASKS}.")
    if len({label for _, label in tasks}) < 2:
        raise ContractError(f"{path} holds one label only, {tasks[0][1]!r}: there is nothing to learn from it.")
    return _domain(tasks, delay)


def _domain(labelled: Iterable[Labelled], delay: float) -> Domain:
    tasks = [
        Task(f"{label}-{digest_of([text, label])[:10]}", text, {"gold": label, "cluster": label})
        for text, label in labelled
    ]
    return Domain(
        tasks=tasks,
        reward=exact_match(),
        run=keyword_run(delay),
        propose=propose_keywords,
        strategy=KeyedRules(),
        initial_state={OTHERWISE: majority_label(tasks)},
    )


def _distinct(labelled: Iterable[Labelled]) -> Iterator[Labelled]:
    """Each text once, in the form it has first; those under several labels left out, as nobody could tell them."""
    labels: defaultdict[str, set[str]] = defaultdict(set)
    first: dict[str, Labelled] = {}
    for raw, label in labelled:
        text = " ".join(unicodedata.normalize("NFC", raw).split())
        folded = " ".join(words_of(text))
        if folded:
            labels[folded].add(label)
            first.setdefault(folded, (text, label))
    return (pair for folded, pair in first.items() if len(labels[folded]) == 1)


def _corpus() -> Iterator[Labelled]:
    """Every line anybody says in the package's conversations, with the language it is said in."""
    spec = find_spec("chatterbot_corpus")
    if spec is None or spec.origin is None or find_spec("yaml") is None:
        raise ContractError(
            "the utterances are not installed: pip install 'adescent[demo]', or in a clone pip install -e '.[demo]'"
        )
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar is text: `no` is a word here, not a boolean
    for language in LANGUAGES:
        for path in sorted((Path(spec.origin).parent / "data" / language).glob("*.yml")):
            document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - makes texts only
            for conversation in document["conversations"]:
                turns = [conversation] if isinstance(conversation, str) else conversation
                yield from ((turn, language) for turn in turns)


def _lines(path: Path) -> Iterator[Labelled]:
    try:
        # Not splitlines: what Unicode calls the end of a line may stand in a JSON text as it is.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise ContractError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ContractError(f"{path} is no UTF-8 text ({error.reason} at byte {error.start}): convert it.") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _labelled(line, f"{path}, line {number}")


def _labelled(line: str, where: str) -> Labelled:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ContractError(f'{where} is no JSON ({_why(error)}): write {{"text": …, "label": …}}.') from error
    if not isinstance(row, dict):
        raise ContractError(f'{where} is {_kind(row)}: write {{"text": …, "label": …}}.')
    label = _field(row, "label", where)
    if len(label.splitlines()) > 1:
        raise ContractError(f"{where}: the label {label!r:.40} has several lines: a label is one.")
    return _field(row, "text", where), label


def _why(error: Exception) -> str:
    """What is wrong with a line, without the line number that it has by itself, which is always 1."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _field(row: dict[str, Any], name: str, where: str) -> str:
    if name not in row:
        raise ContractError(f"{where} has no key {name!r}; it has {', '.join(map(repr, row)) or 'none'}.")
    value = row[name]
    if name == "label" and type(value) is int:  # `True` is one, too, and a slip
        return str(value)
    if not isinstance(value, str):
        wholes = " or a whole number" if name == "label" else ""
        raise ContractError(f"{where}: {name!r} is {_kind(value)}: give a text{wholes}.")
    if not value.strip():
        raise ContractError(f"{where}: {name!r} is blank: give a text.")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ContractError(f"{where}: {name!r} holds half a character (a lone surrogate): take it out.")
    return value.strip()


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    return KINDS[type(value)]

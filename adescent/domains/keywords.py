"""Routing texts by keyword rules that evolve: how rules read a text, and who writes the next ones.

The artifact is a list of rules ``keyword: label``. A text is looked at as its words, lower case, with an underscore at
every edge of a word (``_wie_geht_es_dir_``), and a rule matches where its keyword occurs in that: ``_es_`` is a
whole word, ``cht_`` an ending, ``ß`` a letter. The label whose matched keywords have the most characters wins, the one
whose rule stands first among equals. Where nothing matches the label of the rule `OTHERWISE` is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache

import anyio

from adescent.policies import Outcome, ProposalContext
from adescent.tasks import Score, Task

__all__ = ["OTHERWISE", "edged", "keyword_run", "majority_label", "majority_rate", "propose_keywords", "words_of"]

OTHERWISE = "(otherwise)"
"""The name of the rule for texts that no keyword matches; no word of a text looks like this."""

KEYWORDS_PER_PROPOSAL = 6
"""As many as a run takes in one diff by default."""

SHORT = 6
"""Up to so many characters a word is likely to be one of those that every text of a language is full of."""

REFUSED = frozenset({Outcome.BELOW_THRESHOLD, Outcome.TIE, Outcome.DUPLICATE, Outcome.CONFLICT_DROPPED})

_WORD = re.compile(r"[^\W\d_]+")
_DOT_ABOVE = "\N{COMBINING DOT ABOVE}"  # what lower case makes of a Turkish capital would cut the word in two
_RULE = re.compile(r"- ([^:\n]+): (.+)")


def words_of(text: str) -> list[str]:
    """The words of a text in their order, lower case, without digits and punctuation."""
    return _WORD.findall(text.lower().replace(_DOT_ABOVE, ""))


def edged(text: str) -> str:
    """What keywords are looked for in: the words of a text, each with an underscore on both sides."""
    return f"_{'_'.join(words_of(text))}_"


@lru_cache(maxsize=64)  # a candidate is read once, not once a task
def _rules(rendered: str) -> Mapping[str, str]:
    """The rules of a rendered artifact, in their order; lines that are no rules are passed over."""
    return {rule[1]: rule[2] for line in rendered.splitlines() if (rule := _RULE.fullmatch(line))}


def _route(rules: Mapping[str, str], text: str) -> str:
    matched: Counter[str] = Counter()
    looked_at = edged(text)
    for keyword, label in rules.items():
        if keyword in looked_at:
            matched[label] += len(keyword)
    if not matched:
        return rules.get(OTHERWISE, "")
    return max(matched, key=matched.__getitem__)


def keyword_run(delay: float = 0.0) -> Callable[[str, Task], Awaitable[str]]:
    """An actor ``run(rendered, task)`` that routes the task's text by the rules; ``delay`` seconds a rollout are slept.

    The output is the label, or ``""`` where nothing matches and there is no rule `OTHERWISE`.
    """

    async def run(rendered: str, task: Task) -> str:
        if delay:
            await anyio.sleep(delay)
        return _route(_rules(rendered), task.prompt)

    return run


async def propose_keywords(
    rendered: str, task: Task, output: str, score: Score, context: ProposalContext
) -> dict[str, str] | None:
    """New rules from one text that went to the wrong label, or None when it holds nothing more to try.

    Knows what a person knows who reads that one text, its label, the rules, and how recent proposals ended: short words
    first, since those come again in other texts, then letters outside ASCII, endings, and long words. What has a rule
    already or was recently refused is left out.
    """
    label = str(task.meta["gold"])
    rules, refused = _rules(rendered), set(_refused(context, label))
    fresh = [word for word in _telling(task.prompt) if word not in rules and word not in refused]
    return dict.fromkeys(fresh[:KEYWORDS_PER_PROPOSAL], label) or None


def _telling(text: str) -> Iterable[str]:
    """The keywords a text offers, each once, the most telling first."""
    return dict.fromkeys(_offered(text))


def _offered(text: str) -> Iterator[str]:
    words = list(dict.fromkeys(words_of(text)))
    whole = sorted((word for word in words if len(word) > 1), key=len)
    yield from (f"_{word}_" for word in whole if len(word) <= SHORT)
    yield from (letter for word in words for letter in word if not letter.isascii())
    yield from (f"{word[-3:]}_" for word in words if len(word) > 4)
    yield from (f"_{word}_" for word in whole if len(word) > SHORT)


def _refused(context: ProposalContext, label: str) -> Iterator[str]:
    for settled in context.history:
        if settled.outcome in REFUSED:
            yield from (keyword for keyword, value in settled.card.diff.ops.items() if value == label)


def majority_label(tasks: Iterable[Task]) -> str:
    """The most frequent gold label, the first by name among equals."""
    counts = _gold_labels(tasks)
    return min(counts, key=lambda label: (-counts[label], label))


def majority_rate(tasks: Iterable[Task]) -> float:
    """The score in [0, 1] of answering with the most frequent label of these tasks each time: what needs no rule."""
    counts = _gold_labels(tasks)
    return max(counts.values()) / counts.total()


def _gold_labels(tasks: Iterable[Task]) -> Counter[str]:
    return Counter(str(task.meta["gold"]) for task in tasks)

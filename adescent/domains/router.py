"""The reference domain: texts are routed to a label by keyword rules, and every part of it is deterministic.

A text is a few filler words around one keyword, and the keyword decides the label. Each cluster of tasks has keywords
of its own, so who sees one cluster can learn the rules of that one only, and what several have learnt adds up. A
proposer reads the keyword off a failed text and is sometimes wrong. The start routes everything to one label (about 1
in 6 is right); knowing every keyword is a perfect score, unless clusters are made to contradict each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import anyio

from adescent.canonical import digest_of_text
from adescent.checks import is_number, need_whole, shown
from adescent.domains.domain import Domain
from adescent.domains.keywords import OTHERWISE
from adescent.errors import OptionError
from adescent.evolvable import State
from adescent.refs import nameable
from adescent.rewards import exact_match
from adescent.strategies import KeyedRules
from adescent.tasks import Score, Task

__all__ = ["LABELS", "route", "router_domain", "router_run"]

LABELS = ("billing", "delivery", "account", "returns", "technical", "sales")
_FILLER_TEXT = """
about after again always another anything around because before between could during every first from great have help
into just last maybe never nothing often other please question really request several should since something still
thank that their there thing think this though today until want weekend what when where which while with without would
yesterday your
"""
_FILLERS = tuple(_FILLER_TEXT.split())
_FILLERS_PER_TEXT = 6
_TEXTS_PER_KEYWORD = 4
"""Enough that most keywords come up in the train split and in the held-out one."""

_STRATEGY = KeyedRules(header="Route a text to the label of the keyword it holds.")


def route(rendered: str, text: str) -> str:
    """The label that the rendered rules give to ``text``.

    The rule of every word of the text is a vote; the label with the most wins, among equals the one voted for first.
    Without a vote the rule `OTHERWISE` decides, and without that one the answer is empty.
    """
    rules = _read(rendered)
    votes: dict[str, int] = {}
    for word in text.split():
        if word in rules:
            votes[rules[word]] = votes.get(rules[word], 0) + 1
    return max(votes, key=votes.__getitem__) if votes else rules.get(OTHERWISE, "")


@lru_cache(maxsize=256)
def _read(rendered: str) -> State:
    return _STRATEGY.initial(rendered)


@nameable
def router_run(delay: float = 0.0) -> Callable[[str, Task], Any]:
    """An async ``run(rendered, task)`` that routes ``task.prompt``, after ``delay`` seconds if that is above 0."""

    async def run(rendered: str, task: Task) -> str:
        if delay > 0.0:
            await anyio.sleep(delay)
        return route(rendered, task.prompt)

    return run


def router_domain(
    *,
    n_clusters: int = 6,
    tasks_per_cluster: int = 40,
    noise: float = 0.2,
    contradictions: float = 0.0,
    seed: int = 0,
    delay: float = 0.0,
) -> Domain:
    """The reference domain.

    A cluster has a keyword for every four of its tasks. ``noise`` in [0, 1] is the chance that a proposal is wrong;
    ``contradictions`` in [0, 1] the share of keywords that a cluster has in common with its neighbour (0 and 1, 2 and
    3, …) and that mean another label there, so that no artifact gets more than 1 - contradictions / 2 of those
    clusters right. ``delay`` seconds is what a rollout takes. The same options give the same domain, word for word.

    Raises OptionError for a number out of range.
    """
    _check(n_clusters, tasks_per_cluster, noise=noise, contradictions=contradictions, delay=delay)
    lexicon = _lexicon(n_clusters, max(1, tasks_per_cluster // _TEXTS_PER_KEYWORD), contradictions, seed)
    rules = {OTHERWISE: LABELS[0]}
    return Domain(
        tasks=tuple(_tasks(lexicon, tasks_per_cluster, seed)),
        reward=exact_match(),
        run=router_run(delay),
        propose=_proposer(frozenset().union(*lexicon), noise, seed),
        strategy=_STRATEGY,
        initial_state=rules,
        solution={**rules, **{word: label for cluster in reversed(lexicon) for word, label in cluster.items()}},
    )


def _check(n_clusters: int, tasks_per_cluster: int, **numbers: float) -> None:
    for name, count in (("n_clusters", n_clusters), ("tasks_per_cluster", tasks_per_cluster)):
        need_whole(name, count, 1, OptionError)
    for name, number in numbers.items():
        most = float("inf") if name == "delay" else 1.0
        if not is_number(number) or not 0.0 <= number <= most:
            raise OptionError(f"{name}={shown(number)} must be a number from 0 to {most}.")


def _lexicon(n_clusters: int, keywords: int, contradictions: float, seed: int) -> list[dict[str, str]]:
    """Keyword → label, cluster by cluster. Labels go round, one on with each cluster: all are equally common."""
    words = random.Random(f"{seed}:lexicon").sample(_WORDS, n_clusters * keywords)
    shared = round(contradictions * keywords)
    lexicon: list[dict[str, str]] = []
    for cluster in range(n_clusters):
        own = words[cluster * keywords : (cluster + 1) * keywords]
        if cluster % 2:
            own[:shared] = list(lexicon[-1])[:shared]
        lexicon.append({word: LABELS[(cluster + at) % len(LABELS)] for at, word in enumerate(own)})
    return lexicon


# Six letters, consonant and vowel in turn: easy to tell from the fillers by eye.
_SYLLABLES = tuple("".join(pair) for pair in product("bdfgklmnprstvz", "aeiou"))
_WORDS = tuple("".join(parts) for parts in product(_SYLLABLES, repeat=3))


def _tasks(lexicon: list[dict[str, str]], per_cluster: int, seed: int) -> Iterator[Task]:
    """Tasks of all clusters in turn; in each, its keywords in a new order every time round."""
    rng = random.Random(f"{seed}:tasks")
    orders: list[list[str]] = [[] for _ in lexicon]
    for number in range(per_cluster):
        for cluster, (labels, order) in enumerate(zip(lexicon, orders, strict=True)):
            order[:] = order or rng.sample(list(labels), len(labels))
            keyword = order.pop()
            words: list[str] = rng.sample(_FILLERS, _FILLERS_PER_TEXT)
            words.insert(rng.randrange(len(words) + 1), keyword)
            meta = {"cluster": f"c{cluster}", "gold": labels[keyword]}
            yield Task(f"c{cluster}-{number:03}", " ".join(words), meta)


def _proposer(keywords: frozenset[str], noise: float, seed: int) -> Callable[[str, Task, Any, Score], dict[str, Any]]:
    def propose(rendered: str, task: Task, output: Any, score: Score) -> dict[str, str | None]:
        # Chance hangs on what was seen and on nothing else: whoever asks, and whenever, gets the same answer.
        rng = random.Random(f"{seed}:{task.id}:{digest_of_text(rendered)}")
        words, gold = task.prompt.split(), str(task.meta["gold"])
        keyword = next(word for word in words if word in keywords)
        if rng.random() < noise:
            return _mistake(words, keyword, gold, rng)
        return _correction(_read(rendered), words, keyword, gold)

    return propose


def _mistake(words: list[str], keyword: str, gold: str, rng: random.Random) -> dict[str, str | None]:
    """One of two wrong lessons from a text: its keyword means something else, or a chance word means the label."""
    if rng.random() < 0.5:
        return {keyword: rng.choice([label for label in LABELS if label != gold])}
    return {rng.choice([word for word in words if word != keyword]): gold}


def _correction(rules: Mapping[str, str], words: list[str], keyword: str, gold: str) -> dict[str, str | None]:
    """The rule that is missing or wrong; where it is there, the rules of other words that outvoted it go."""
    if rules.get(keyword) != gold:
        return {keyword: gold}
    return {word: None for word in words if rules.get(word, gold) != gold}

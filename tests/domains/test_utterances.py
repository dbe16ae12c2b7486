from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.domains import utterances as module
from adescent.domains.domain import Domain
from adescent.domains.keywords import (
    KEYWORDS_PER_PROPOSAL,
    OTHERWISE,
    edged,
    keyword_run,
    majority_label,
    majority_rate,
    propose_keywords,
    words_of,
)
from adescent.domains.utterances import LANGUAGES, jsonl_domain, utterance_domain
from adescent.errors import ContractError, OptionError
from adescent.evolution import async_evolve
from adescent.evolvable import Diff, EvidenceCard, VersionVector
from adescent.policies import Outcome, ProposalContext, SettledCard
from adescent.strategies import KeyedRules
from adescent.tasks import Score, Task, make_splits

BAD = Score(0.0)


def rendered(**rules: str) -> str:
    return KeyedRules().render(rules)


async def routed(text: str, rules: dict[str, str]) -> str:
    with anyio.fail_after(5):
        return await keyword_run()(KeyedRules().render(rules), Task("t", text))


def context_of(task: Task, *, history: tuple[SettledCard, ...] = ()) -> ProposalContext:
    return ProposalContext("", {}, task, "", BAD, history)


def settled(ops: dict[str, str | None], outcome: Outcome) -> SettledCard:
    card = EvidenceCard(Diff("artifact", ops), VersionVector({"artifact": 1}), {}, ("artifact",))
    return SettledCard(card, outcome)


async def proposed(task: Task, rules: dict[str, str], *history: SettledCard) -> dict[str, str] | None:
    text = KeyedRules().render(rules)
    with anyio.fail_after(5):
        return await propose_keywords(text, task, "", BAD, context_of(task, history=history))


# How rules read a text ------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rules", "label"),
    [
        ({"_es_": "german"}, "german"),
        ({"es_": "german"}, "german"),
        ({"geh": "german"}, "german"),
        ({"_geh_": "german"}, ""),
        ({"ß": "german"}, "german"),
        ({"_ES_": "german"}, ""),
        ({OTHERWISE: "dutch"}, "dutch"),
        ({OTHERWISE: "dutch", "_es_": "german"}, "german"),
        ({"_wie_": "german", "_geht_es_": "dutch"}, "dutch"),
        ({"_es_": "german", "_dir": "dutch"}, "german"),
        ({"_dir": "dutch", "_es_": "german"}, "dutch"),
        ({"_wie_": "german", "_es_": "dutch", "_dir_": "dutch"}, "dutch"),
        ({}, ""),
    ],
)
async def test_the_most_matched_characters_win_and_the_first_rule_among_equals(
    rules: dict[str, str], label: str
) -> None:
    assert await routed("Wie geht es dir, Weiß?", rules) == label


@given(st.text())
def test_the_same_words_look_the_same_whatever_stands_between_them(text: str) -> None:
    words = words_of(text)
    assert edged(" -- ".join(words)) == edged(text)
    assert all(f"_{word}_" in edged(text) for word in words)


@given(st.text(min_size=1).filter(lambda text: words_of(text) != []))
def test_no_text_is_taken_for_the_rule_of_all_others(text: str) -> None:
    assert OTHERWISE not in edged(text)


@pytest.mark.anyio
async def test_run_sleeps_as_long_as_it_is_told() -> None:
    with anyio.move_on_after(0.05) as cut:
        await keyword_run(delay=60)("", Task("t", "x"))
    assert cut.cancelled_caught


# Who writes the rules -------------------------------------------------------------------------------------------------

GERMAN = Task("g", "Wie geht es dir und deiner großen Verwandtschaft?", {"gold": "german"})


@pytest.mark.anyio
async def test_short_words_are_proposed_first_and_few_at_a_time() -> None:
    proposal = await proposed(GERMAN, {})
    assert proposal == dict.fromkeys(("_es_", "_wie_", "_dir_", "_und_", "_geht_", "_deiner_"), "german")
    assert len(proposal) == KEYWORDS_PER_PROPOSAL


@pytest.mark.anyio
async def test_what_has_a_rule_or_was_refused_is_left_out() -> None:
    refused = settled({"_wie_": "german", "_dir_": "dutch"}, Outcome.BELOW_THRESHOLD)
    kept = settled({"_und_": "german"}, Outcome.COMMITTED)
    proposal = await proposed(GERMAN, {"_es_": "spanish"}, refused, kept)
    assert proposal is not None
    assert list(proposal) == ["_dir_", "_und_", "_geht_", "_deiner_", "_großen_", "ß"]


@pytest.mark.anyio
async def test_a_text_is_asked_until_it_has_nothing_more_to_offer() -> None:
    rules: dict[str, str] = {}
    while proposal := await proposed(GERMAN, rules):
        assert rules.keys().isdisjoint(proposal)
        rules |= proposal
    assert "_verwandtschaft_" in rules
    assert await proposed(GERMAN, rules) is None


@pytest.mark.anyio
async def test_a_proposal_turns_its_own_text() -> None:
    proposal = await proposed(GERMAN, {OTHERWISE: "dutch"})
    assert await routed(GERMAN.prompt, {OTHERWISE: "dutch"} | (proposal or {})) == "german"


# The utterances -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus() -> Domain:
    pytest.importorskip("chatterbot_corpus")
    return utterance_domain()


def test_ten_languages_are_there_about_equally_often(corpus: Domain) -> None:
    counts = Counter(task.cluster for task in corpus.tasks)
    assert tuple(sorted(counts)) == LANGUAGES
    assert min(counts.values()) >= 40
    assert majority_rate(corpus.tasks) == pytest.approx(max(counts.values()) / len(corpus.tasks))
    assert majority_rate(corpus.tasks) < 0.12
    assert corpus.initial_state == {OTHERWISE: majority_label(corpus.tasks)}


def test_two_splits_of_about_two_hundred_each_can_be_kept_away(corpus: Domain) -> None:
    splits = make_splits(corpus.tasks, test_frac=0.4)
    assert {len(splits.held_out), len(splits.test)} <= set(range(190, 215))
    assert {task.cluster for task in splits.train} == set(LANGUAGES)


def test_no_text_occurs_twice_or_holds_less_than_three_words(corpus: Domain) -> None:
    folded = [tuple(words_of(task.prompt)) for task in corpus.tasks]
    assert len(set(folded)) == len(folded)
    assert min(map(len, folded)) >= 3
    assert all(task.prompt == " ".join(task.prompt.split()) for task in corpus.tasks)


def test_the_same_seed_draws_the_same_tasks_and_ids_name_the_content(corpus: Domain) -> None:
    again, other = utterance_domain(), utterance_domain(seed=1)
    assert again.tasks == corpus.tasks
    assert other.tasks != corpus.tasks
    by_id = {task.id: task.prompt for task in corpus.tasks}
    shared = [task for task in other.tasks if task.id in by_id]
    assert shared
    assert all(by_id[task.id] == task.prompt for task in shared)


@pytest.mark.parametrize("per_language", [0, -1, 1.5, True])
def test_a_number_of_utterances_that_is_none_is_refused(per_language: Any) -> None:
    with pytest.raises(OptionError, match="per_language"):
        utterance_domain(per_language=per_language)


@pytest.mark.parametrize("missing", ["chatterbot_corpus", "yaml"])
def test_without_the_extra_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(ContractError, match=r"pip install 'adescent\[demo\]'"):
        utterance_domain()


@pytest.mark.anyio
@pytest.mark.parametrize("schedule", ["rounds", "stream"])
async def test_rules_that_are_learnt_hold_on_texts_nobody_saw(corpus: Domain, schedule: Any) -> None:
    with anyio.fail_after(30):
        result = await async_evolve(
            corpus.tasks,
            corpus.reward,
            run=corpus.run,
            propose=corpus.propose,
            strategy=corpus.strategy,
            initial_state=corpus.initial_state,
            schedule=schedule,
            n_workers=8,
            rounds=40,
            test_frac=0.4,
        )
    assert result.error == ""
    assert result.seed_reward is not None
    assert result.seed_reward < 0.12
    assert result.final_reward is not None
    assert result.final_reward > 0.6
    assert result.test_reward is not None
    assert result.test_reward > 0.55


# A file of one's own --------------------------------------------------------------------------------------------------


def row(number: int, label: str) -> dict[str, Any]:
    return {"text": f"{label} text {'abcdefghijklmnop'[number]}", "label": label, "source": number}


ROWS = [row(number, label) for number in range(6) for label in ("yes", "no")]


def written(path: Path, *rows: Any) -> Path:
    file = path / "rows.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in rows), encoding="utf-8")
    return file


def test_a_file_becomes_a_domain(tmp_path: Path) -> None:
    domain = jsonl_domain(written(tmp_path, *ROWS, "", {"text": "YES text: a", "label": "yes"}))
    assert len(domain.tasks) == 12
    assert domain.tasks[0].prompt == "yes text a"
    assert domain.tasks[0].meta == {"gold": "yes", "cluster": "yes"}
    assert domain.initial_state == {OTHERWISE: "no"}
    assert majority_rate(domain.tasks) == 0.5


def test_a_text_under_two_labels_is_left_out(tmp_path: Path) -> None:
    domain = jsonl_domain(written(tmp_path, *ROWS, {"text": "yes text a", "label": "no"}))
    assert len(domain.tasks) == 11
    assert "yes text a" not in {task.prompt for task in domain.tasks}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 13 is no JSON \(Expecting property name enclosed in double quotes at column 2\):"),
        ("[" * 100_000, r"line 13 is no JSON"),
        ('{"text": "x", "label": ' + "9" * 5000 + "}", r"line 13 is no JSON"),
        ("[1]", r"line 13 is a list"),
        ("7", r"line 13 is a number"),
        ({"text": "x", "Label": "yes"}, r"line 13 has no key 'label'; it has 'text', 'Label'\."),
        ({}, r"line 13 has no key 'label'; it has none\."),
        ({"text": 3, "label": "yes"}, r"line 13: 'text' is a number: give a text\."),
        ({"text": "x", "label": 0.5}, r"line 13: 'label' is a number: give a text or a whole number\."),
        ({"text": "x", "label": True}, r"line 13: 'label' is a truth value:"),
        ({"text": "x", "label": None}, r"line 13: 'label' is null:"),
        ({"text": ["x"], "label": "yes"}, r"line 13: 'text' is a list:"),
        ({"text": "x", "label": " "}, r"line 13: 'label' is blank:"),
        ({"text": "x", "label": "a\nb"}, r"line 13: the label .* several lines"),
        ({"text": "x", "label": "a\u2028b"}, r"line 13: the label .* several lines"),
        ({"text": "x\ud800", "label": "yes"}, r"line 13: 'text' .* half a character"),
        ({"text": "x", "label": "\udfff"}, r"line 13: 'label' .* half a character"),
    ],
)
def test_a_bad_line_is_named(line: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=message):
        jsonl_domain(written(tmp_path, *ROWS, line))


def test_a_label_that_is_a_whole_number_is_its_digits(tmp_path: Path) -> None:
    domain = jsonl_domain(written(tmp_path, *ROWS, {"text": "one", "label": 7}, {"text": "two", "label": "7"}))
    assert [task.meta["gold"] for task in domain.tasks[-2:]] == ["7", "7"]


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    separated = '{"text": "one\u2028two\x85three", "label": "yes"}'
    domain = jsonl_domain(written(tmp_path, *ROWS, separated))
    assert domain.tasks[-1].prompt == "one two three"
    file = tmp_path / "windows.jsonl"
    file.write_bytes("\r\n".join(map(json.dumps, ROWS)).encode())
    assert len(jsonl_domain(file).tasks) == 12


def test_too_little_to_learn_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"holds 9 texts .* at least 10"):
        jsonl_domain(written(tmp_path, *ROWS[:9]))
    with pytest.raises(ContractError, match="one label only, 'yes'"):
        jsonl_domain(written(tmp_path, *({"text": f"yes {chr(97 + n)}", "label": "yes"} for n in range(12))))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"absent\.jsonl cannot be read"):
        jsonl_domain(tmp_path / "absent.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "\xe9", "label": "x"}')
    with pytest.raises(ContractError, match=r"no UTF-8 text"):
        jsonl_domain(tmp_path / "latin.jsonl")
    with pytest.raises(ContractError, match="cannot be read"):
        jsonl_domain(tmp_path)


def test_nothing_is_read_before_it_is_asked_for() -> None:
    import subprocess

    script = "import sys, adescent.domains.utterances; print('yaml' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "False\n"

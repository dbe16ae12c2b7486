"""Lists of rules, each a unit of the merge: rules that are simply added, and rules under names.

Both render as a Markdown list in the order in which the rules came, the lines of a longer rule indented below its
first. Both read that form back, so what a run has learnt can be the start of another one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from adescent.canonical import check_json, digest_of_text
from adescent.checks import need_whole
from adescent.errors import ContractError, OptionError, ProposalError
from adescent.evolvable import Diff, State
from adescent.refs import nameable

__all__ = ["AppendRules", "KeyedRules"]

_MARKS = re.compile(r"(?:(?:[-*•]|\d{1,3}[.)])[ \t]+)+")
_LINE_STARTS = re.compile(r"\n(?!\n)")
_KEY_DIGITS = 12


def _check_limit(_: Any, __: Any, limit: int | None) -> None:
    if limit is not None:
        need_whole("max_rules", limit, 1, OptionError, otherwise=", or None for no limit")


@nameable
@frozen
class AppendRules:
    """Rules that are added one to another; a rule is known by its content, so the same rule is never held twice.

    White space at the ends of the text and of its lines, a leading list mark and the Unicode form do not count.

    A proposal is one of

    * a text: one rule, however many lines it has, or, where it is written as a list, one rule an item,
    * a list or tuple of texts: one rule each,
    * ``{"add": …, "remove": …}``, either of them left out or again a text or a list of texts. What is removed is named
      by its text or its key.

    Blank texts are left out. ``header`` stands above the list; a state with more than ``max_rules`` rules is invalid.
    """

    header: str = ""
    max_rules: int | None = field(default=None, validator=_check_limit)
    takes_rivals: ClassVar[bool] = True

    def initial(self, initial_state: Mapping[str, str] | str | None) -> State:
        """Rules to start with: a text with one a line (or as `render` writes them), or a mapping whose values they are.

        The keys of a mapping are made anew from the values. None starts without a rule.
        """
        if isinstance(initial_state, str):
            return _by_content(_listed(initial_state, self.header))
        if isinstance(initial_state, Mapping):
            return _by_content(_started_from(initial_state))
        if initial_state is None:
            return {}
        raise ContractError(f"AppendRules starts from a text or a mapping, not a {type(initial_state).__name__}.")

    def render(self, state: State) -> str:
        """The header and a list of the rules; only the header when there are none."""
        return _rendered(self.header, state.values())

    def to_diff(self, state: State, proposal: Any, target: str) -> Diff:
        """The rules to add that are not there yet, and those to remove.

        Raises ContractError for a proposal of another form, ProposalError for a removal of what is not there.
        """
        if isinstance(proposal, Mapping):
            if not proposal.keys() <= {"add", "remove"}:
                raise ContractError(f"AppendRules takes the keys 'add' and 'remove', not {sorted(map(str, proposal))}.")
            added, removed = _texts(proposal.get("add", ())), _texts(proposal.get("remove", ()))
        else:
            added, removed = _texts(proposal), []
        ops: dict[str, str | None] = {self._held(state, name): None for name in removed}
        ops.update(_by_content(added))
        return Diff(target, {key: rule for key, rule in ops.items() if rule != state.get(key)})

    def violation(self, state: State) -> str:
        """More rules than `max_rules`."""
        return _too_many(state, self.max_rules)

    @staticmethod
    def _held(state: State, name: str) -> str:
        for key in (name.strip(), _content_key(_cleaned(name))):
            if key in state:
                return key
        raise ProposalError(f"there is no rule {name!r:.80} to remove; give the text of a rule of the artifact.")


@nameable
@frozen
class KeyedRules:
    """Rules under names: two proposals for one name compete, proposals for different names add.

    A proposal is a mapping name → text, where None removes the rule, or a text with one ``name: rule`` a line: a
    leading list mark is dropped, an indented line continues the rule above it, and a name with nothing after it
    removes the rule. Names and rules lose white space at their ends. A name has one line, holds no colon and begins
    with no list mark; a rule is not blank.

    ``header`` stands above the list; a state with more than ``max_rules`` rules is invalid.
    """

    header: str = ""
    max_rules: int | None = field(default=None, validator=_check_limit)
    takes_rivals: ClassVar[bool] = True

    def initial(self, initial_state: Mapping[str, str] | str | None) -> State:
        """Rules to start with, in the form of a proposal (that is also what `render` writes). None: no rules."""
        if initial_state is None:
            return {}
        if not isinstance(initial_state, (str, Mapping)):
            raise ContractError(f"KeyedRules starts from a text or a mapping, not a {type(initial_state).__name__}.")
        return {name: rule for name, rule in self._read(initial_state).items() if rule is not None}

    def render(self, state: State) -> str:
        """The header and a list of ``name: rule``; only the header when there are none."""
        return _rendered(self.header, (f"{name}: {rule}" for name, rule in state.items()))

    def to_diff(self, state: State, proposal: Any, target: str) -> Diff:
        """The rules that would change.

        Raises ContractError for a proposal that is neither text nor a mapping of texts, ProposalError for a name or a
        line that does not have the form.
        """
        if not isinstance(proposal, (str, Mapping)):
            raise ContractError(
                f"KeyedRules takes a mapping name → text or lines 'name: rule', not a {type(proposal).__name__}."
            )
        read = self._read(proposal)
        return Diff(target, {name: rule for name, rule in read.items() if rule != state.get(name)})

    def violation(self, state: State) -> str:
        """More rules than `max_rules`."""
        return _too_many(state, self.max_rules)

    def _read(self, source: str | Mapping[str, Any]) -> dict[str, str | None]:
        if isinstance(source, str):
            return dict(_named(line) for line in _listed(source, self.header))
        return dict(_checked(name, rule) for name, rule in source.items())


def _cleaned(text: str) -> str:
    """A rule as it is kept; cleaning twice changes nothing."""
    check_json(text, "a rule", error=ProposalError)
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    cleaned = "\n".join(line.rstrip() for line in lines).strip()
    while mark := _MARKS.match(cleaned):
        cleaned = cleaned[mark.end() :].strip()
    return cleaned


def _content_key(rule: str) -> str:
    return digest_of_text(rule)[:_KEY_DIGITS]


def _by_content(texts: Iterable[str]) -> dict[str, str]:
    rules = (_cleaned(text) for text in texts)
    return {_content_key(rule): rule for rule in rules if rule}


def _items(text: str) -> list[str]:
    """The items of a text that is written as a list; any other text as it is. Lines without a mark go with the last."""
    items: list[str] = []
    for line in text.strip().splitlines():
        mark = _MARKS.match(line)
        if mark:
            items.append(line[mark.end() :])
        elif items:
            items[-1] += "\n" + line
        else:
            return [text]
    return items


def _texts(proposed: Any) -> list[str]:
    texts = _items(proposed) if isinstance(proposed, str) else proposed
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ContractError(
            f"AppendRules takes a text, a list of texts or {{'add': …, 'remove': …}}, not {proposed!r:.80}."
        )
    return list(texts)


def _started_from(initial_state: Mapping[str, Any]) -> Iterable[str]:
    for key, rule in initial_state.items():
        if not isinstance(rule, str):
            raise ContractError(f"AppendRules starts from texts, and initial_state[{key!r:.40}] is {rule!r:.40}.")
    return initial_state.values()


def _checked(name: Any, rule: Any) -> tuple[str, str | None]:
    if not isinstance(name, str) or not isinstance(rule, str | None):
        raise ContractError(f"KeyedRules takes texts (or None) under text names, not {name!r:.40}: {rule!r:.40}.")
    name, cleaned = _clean_name(name), None if rule is None else _cleaned_value(rule)
    if cleaned == "":
        raise ProposalError(f"the rule {name!r} is blank; write its text, or None to remove it.")
    return name, cleaned


def _named(line: str) -> tuple[str, str | None]:
    name, colon, rule = line.partition(":")
    if not colon:
        raise ProposalError(f"{line!r:.80} is no rule; write one 'name: rule' a line, and nothing around them.")
    return _clean_name(name), _cleaned_value(rule) or None


def _clean_name(name: str) -> str:
    cleaned = _cleaned(name)
    if not cleaned or ":" in cleaned or "\n" in cleaned:
        raise ProposalError(f"{name!r:.80} is no name for a rule: one line, not blank, without a colon.")
    return cleaned


def _cleaned_value(rule: str) -> str:
    check_json(rule, "a rule", error=ProposalError)
    lines = rule.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def _rendered(header: str, rules: Iterable[str]) -> str:
    listed = "\n".join("- " + _LINE_STARTS.sub("\n  ", rule) for rule in rules)
    return f"{header}\n\n{listed}" if header and listed else header or listed


def _listed(text: str, header: str) -> list[str]:
    """The items of a rendered list, or the lines of a text without marks; an indented line belongs to the one above."""
    items: list[str] = []
    for line in text.removeprefix(header).replace("\r\n", "\n").split("\n"):
        if items and (not line.strip() or line[0] in " \t"):
            items[-1] += "\n" + (line[2:] if line.startswith("  ") else line.lstrip())
        elif line.strip():
            mark = _MARKS.match(line)
            items.append(line[mark.end() :] if mark else line)
    return items


def _too_many(state: State, limit: int | None) -> str:
    return f"holds {len(state)} rules where {limit} are allowed" if limit is not None and len(state) > limit else ""

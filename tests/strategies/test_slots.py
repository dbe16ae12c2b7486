from __future__ import annotations

from typing import Any

import pytest

from adescent.errors import ContractError, ProposalError
from adescent.evolvable import changed
from adescent.strategies import SingleSlot


def test_a_proposal_replaces_the_text_to_the_letter() -> None:
    state = SingleSlot().initial("Be brief.\n")
    diff = SingleSlot().to_diff(state, "  Be kind.\n", "prompt")
    assert (diff.target, diff.ops) == ("prompt", {"text": "  Be kind.\n"})
    assert SingleSlot().render(changed(state, diff.ops)) == "  Be kind.\n"


@pytest.mark.parametrize("proposal", ["", " \n\t", "Be brief."])
def test_blank_and_equal_proposals_change_nothing(proposal: str) -> None:
    assert SingleSlot().to_diff({"text": "Be brief."}, proposal, "prompt").ops == {}


def test_starts_empty_or_from_its_own_slot() -> None:
    strategy = SingleSlot(slot="system")
    assert strategy.initial(None) == {"system": ""}
    assert strategy.initial({"system": "Be kind."}) == {"system": "Be kind."}


@pytest.mark.parametrize("start", [{"other": "text"}, {"text": "a", "more": "b"}, {}, 3])
def test_another_start_is_refused(start: Any) -> None:
    with pytest.raises(ContractError, match="starts from"):
        SingleSlot().initial(start)


@pytest.mark.parametrize("proposal", [7, None, ["text"], {"text": "a"}, b"text"])
def test_what_is_no_text_is_the_callers_mistake(proposal: Any) -> None:
    with pytest.raises(ContractError, match="takes the new text") as raised:
        SingleSlot().to_diff({"text": ""}, proposal, "prompt")
    assert not isinstance(raised.value, ProposalError)


def test_text_that_cannot_be_stored_is_a_failed_proposal() -> None:
    with pytest.raises(ProposalError, match="surrogate"):
        SingleSlot().to_diff({"text": ""}, "\ud800", "prompt")


def test_names_what_makes_a_state_invalid() -> None:
    assert SingleSlot().violation({"text": "a"}) == ""
    assert "'more'" in SingleSlot().violation({"text": "a", "more": "b"})
    assert SingleSlot().violation({})

"""One text that is replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import frozen

from adescent.canonical import check_json
from adescent.errors import ContractError, ProposalError
from adescent.evolvable import Diff, State
from adescent.refs import nameable

__all__ = ["SingleSlot"]


@nameable
@frozen
class SingleSlot:
    """A prompt, or any other text that makes sense only as a whole, under the one key ``slot``.

    A proposal is the new text, kept to the letter. A blank one is no change: it is what a model answers that has
    nothing to say.
    """

    slot: str = "text"
    takes_rivals: ClassVar[bool] = True

    def initial(self, initial_state: Mapping[str, str] | str | None) -> State:
        """The text, or a mapping that holds it under `slot` and nothing else; None starts empty."""
        if initial_state is None:
            return {self.slot: ""}
        if isinstance(initial_state, str):
            return {self.slot: initial_state}
        if isinstance(initial_state, Mapping) and set(initial_state) == {self.slot}:
            return dict(initial_state)
        raise ContractError(
            f"SingleSlot starts from a text or from {{{self.slot!r}: text}}, not {initial_state!r:.80}."
        )

    def render(self, state: State) -> str:
        """The text itself."""
        return state.get(self.slot, "")

    def to_diff(self, state: State, proposal: Any, target: str) -> Diff:
        """The proposal in place of the text.

        Raises ContractError when the proposal is no text, ProposalError when it is text that cannot be stored.
        """
        if not isinstance(proposal, str):
            raise ContractError(f"SingleSlot takes the new text as a proposal, not a {type(proposal).__name__}.")
        check_json(proposal, "the proposed text", error=ProposalError)
        if not proposal.strip() or proposal == state.get(self.slot):
            return Diff(target, {})
        return Diff(target, {self.slot: proposal})

    def violation(self, state: State) -> str:
        """A state is this one text and nothing else."""
        return "" if set(state) == {self.slot} else f"holds {sorted(state)} instead of the one key {self.slot!r}"

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from adescent.aggregator import FullStaleness, GuardedStaleness, ReflectiveStaleness
from adescent.aggregator.ends import End
from adescent.aggregator.staleness import brought_onto, tolerated_lag
from adescent.errors import ContractError
from adescent.evolvable import Evolvable
from adescent.policies import Outcome

HEAD = Evolvable("a", {"old": "text", "moved": "newer"}, version=3)


@pytest.mark.parametrize(
    ("policy", "at_head", "breaking", "within", "beyond"),
    [
        (FullStaleness(), "accept", "discard", "accept", "accept"),
        (GuardedStaleness(), "accept", "discard", "rebase", "discard"),
        (ReflectiveStaleness(), "accept", "discard", "rebase", "rebase"),
    ],
)
def test_the_table_of_policies(policy: Any, at_head: str, breaking: str, within: str, beyond: str) -> None:
    assert policy.decide(0, 1, False) == policy.decide(0, 0, True) == at_head
    assert policy.decide(1, 0, True) == breaking
    assert policy.decide(1, 1, False) == policy.decide(5, 5, False) == within
    assert policy.decide(2, 1, False) == beyond


@pytest.mark.parametrize(
    ("blast_radius", "breaking", "async_ratio", "alpha"),
    [
        (0.2, False, None, 1),
        (0.30, False, None, 1),
        (0.31, False, None, 5),
        (0.9, True, None, 0),
        (0.9, False, 3, 3),
        (0.9, False, 9, 5),
        (0.2, False, 0, 0),
        (0.2, True, 3, 0),
    ],
)
def test_how_far_behind_is_tolerated(blast_radius: float, breaking: bool, async_ratio: int | None, alpha: int) -> None:
    assert tolerated_lag(evolve(HEAD, blast_radius=blast_radius), breaking, async_ratio) == alpha


def _brought(card: Any, eta: int = 1, policy: Any = ReflectiveStaleness(), takes_rivals: bool = True) -> Any:  # noqa: B008
    return brought_onto(HEAD, card, eta, 1, policy, takes_rivals=takes_rivals)


def test_a_rebased_card_is_a_change_to_the_head(card: Any) -> None:
    standing = _brought(card({"old": "text"}, 2, old="mine", moved="newer"))
    assert standing.diff.ops == {"old": "mine"}
    assert standing.base_version["a"] == 3
    assert not standing.rival


def test_a_card_that_overwrites_newer_text_is_a_rival_where_rivals_are_taken(card: Any) -> None:
    late = card({"moved": "base"}, 2, moved="mine")
    assert _brought(late).rival_keys == ("moved",)
    assert _brought(late, takes_rivals=False).outcome is Outcome.STALE


def test_full_staleness_takes_a_card_as_it_is(card: Any) -> None:
    late = card({"moved": "base"}, 2, moved="mine")
    assert _brought(late, policy=FullStaleness()) is late


@pytest.mark.parametrize(("eta", "ops"), [(0, {"old": "text"}), (1, {"old": "text"}), (0, {"gone": None}), (0, {})])
def test_what_changes_nothing_ends(card: Any, eta: int, ops: Any) -> None:
    assert _brought(card({}, 3 - eta, **ops), eta).outcome is Outcome.NO_OP


def test_a_breaking_diff_is_stale_when_late_and_refused_when_not(card: Any) -> None:
    breaking = card({}, 3, x="mine")
    breaking = evolve(breaking, diff=evolve(breaking.diff, contract_breaking=True))
    assert _brought(breaking, 1) == End(Outcome.STALE, "its base lies 1 versions behind the head; 1 are tolerated.")
    assert _brought(breaking, 0).outcome is Outcome.CONTRACT_REFUSED


@pytest.mark.parametrize("action", ["perhaps", None, True])
def test_a_policy_that_says_something_else_is_told_so(card: Any, action: Any) -> None:
    class Loose:
        def decide(self, eta: int, alpha: int, contract_breaking: bool) -> Any:
            return action

    with pytest.raises(ContractError, match=r"Loose\.decide said"):
        brought_onto(Evolvable("a", version=2), card(x="1"), 1, 1, Loose(), takes_rivals=True)

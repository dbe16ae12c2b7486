"""Cheap scores: what ranks cards among each other, and decides no commit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from adescent.evolvable import Diff, Evolvable
from adescent.policies.measuring import Verifier
from adescent.sidebyside import side_by_side

__all__ = ["cheap_scores"]


async def cheap_scores(verifier: Verifier, head: Evolvable, diffs: Mapping[str, Diff]) -> dict[str, float]:
    """The rate in [0, 1] of ``head`` with each of the diffs on the cheap subset; those without a score are left out."""
    rules = [partial(verifier.rule, head.apply(diff)) for diff in diffs.values()]
    measured = await side_by_side(*rules)
    return {name: found.rate for name, found in zip(diffs, measured, strict=True) if found.rate is not None}

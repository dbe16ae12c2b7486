"""What an artifact is made of, and how a proposal becomes a diff.

The options of a strategy are its public fields, and its ``repr`` spells them all: two runs with the same ``repr`` read
the same state in the same way.
"""

from __future__ import annotations

from adescent.strategies.rules import AppendRules, KeyedRules
from adescent.strategies.slots import SingleSlot

__all__ = ["AppendRules", "KeyedRules", "SingleSlot"]

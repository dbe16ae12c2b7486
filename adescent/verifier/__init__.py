"""What a candidate is worth: the evaluation group that measures, its cache, and three layers of verdicts."""

from __future__ import annotations

from adescent.verifier.cache import MemoryCache
from adescent.verifier.evaluator import EvaluationGroup
from adescent.verifier.layers import LayeredVerifier

__all__ = ["EvaluationGroup", "LayeredVerifier", "MemoryCache"]

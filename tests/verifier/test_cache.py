from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.errors import ContractError
from adescent.tasks import Score
from adescent.verifier import MemoryCache


def test_what_is_put_in_comes_out() -> None:
    cache = MemoryCache()
    score = Score(0.0, "words", {"length": 3.0})
    cache.put("key", score)
    assert cache.get("key") is score
    assert cache.get("other") is None


def test_what_has_not_been_used_for_longest_makes_room() -> None:
    cache = MemoryCache(entries=2)
    cache.put("a", Score(0.1))
    cache.put("b", Score(0.2))
    cache.get("a")
    cache.put("c", Score(0.3))
    assert [cache.get(key) for key in "abc"] == [Score(0.1), None, Score(0.3)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))), st.integers(1, 5))
def test_it_holds_exactly_the_keys_used_last(steps: list[tuple[bool, int]], entries: int) -> None:
    cache = MemoryCache(entries)
    used: list[str] = []
    for put, number in steps:
        key = str(number)
        if put:
            cache.put(key, Score(number / 10))
        elif cache.get(key) is None:
            continue
        used = [other for other in used if other != key] + [key]
        used = used[-entries:]
    assert len(cache) == len(used)
    assert {key for key in map(str, range(10)) if cache.get(key) == Score(int(key) / 10)} == set(used)


@pytest.mark.parametrize("entries", [0, -1, True, 2.5, None])
def test_a_cache_that_could_hold_nothing_is_refused(entries: Any) -> None:
    with pytest.raises(ContractError, match="at least 1"):
        MemoryCache(entries)

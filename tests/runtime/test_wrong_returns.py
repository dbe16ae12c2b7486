"""What a strategy or a cache returns in the middle of a run, and must not: the error says whose it is."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.errors import ContractError
from adescent.evolvable import Diff
from adescent.policies import Policies

BOUND = 30.0


class Later:
    """A strategy that begins well."""

    def __init__(self, rendered: Any = "", **diff: Any) -> None:
        self.rendered, self.diff = rendered, diff

    def initial(self, initial_state: Any) -> Any:
        return {}

    def render(self, state: Any) -> Any:
        return self.rendered if state else ""

    def to_diff(self, state: Any, proposal: Any, target: str) -> Diff:
        return Diff(**{"target": target, "ops": {"a": str(proposal)}, **self.diff})


class FloatCache:
    def get(self, key: str) -> Any:
        return 0.5

    def put(self, key: str, score: Any) -> None:
        raise NotImplementedError


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": Later(b"text")}, r"Later\.render returned a bytes"),
        ({"strategy": Later(None)}, r"Later\.render returned a NoneType"),
        ({"strategy": Later(target=5)}, r"Diff\(target=5\)"),
        ({"strategy": Later(id=["x"])}, r"Diff\(id=\['x'\]\)"),
        ({"strategy": Later(origin=b"x")}, r"Diff\(origin=b'x'\)"),
        ({"strategy": Later(adapts=["x"])}, r"Diff\(adapts=\['x'\]\)"),
        ({"strategy": Later(ops="text")}, "ops map .* these are a str"),
        ({"policies": Policies(eval_cache=FloatCache())}, r"eval_cache\.get returned a float"),
    ],
)
async def test_a_part_that_returns_what_it_must_not_is_named(
    world: Any, schedule: str, options: dict[str, Any], words: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(ContractError, match=words):
        await world.evolve(schedule, **options)

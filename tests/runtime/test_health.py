"""What a run says of actors that fail now and then, and of those that never work."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from adescent import ActorsNeverWorked, ContractError, Diff, KeyedRules, async_evolve

pytestmark = pytest.mark.anyio

ROWS = [{"prompt": f"n {number}", "gold": str(number)} for number in range(20)]


async def _nothing(rendered: str, task: Any) -> str:
    return "nothing"


async def _half(task: Any, output: Any) -> float:
    return 0.5


async def test_a_scorer_that_sometimes_counts_in_percent_is_in_the_result(
    anyio_backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def percent(task: Any, output: Any) -> float:
        return 100.0 if int(task.meta["gold"]) % 2 else 0.0

    async def propose(rendered: str, task: Any, output: Any, score: Any) -> str:
        return "a rule"

    with caplog.at_level(logging.WARNING, "adescent"):
        result = await async_evolve(ROWS, percent, run=_nothing, propose=propose, rounds=2)
    [(cause, times)] = result.causes.items()
    assert "100.0" in cause
    assert times == result.counters["scores_void"] > 1
    assert [record.message for record in caplog.records] == [cause]


async def test_only_so_many_different_causes_are_kept(anyio_backend: Any) -> None:
    async def run(rendered: str, task: Any) -> str:
        if task.prompt != "x":
            raise ValueError(f"never twice the same: {task.id} of {object()}")
        return ""

    async def propose(rendered: str, task: Any, output: Any, score: Any) -> None:
        return None

    result = await async_evolve(ROWS, _half, run=run, propose=propose, rounds=10, held_out=[{"prompt": "x"}])
    assert len(result.causes) == 5
    assert all(" at 0x" not in cause for cause in result.causes)


async def test_proposals_nobody_can_read_are_proposals_that_failed(anyio_backend: Any) -> None:
    async def propose(rendered: str, task: Any, output: Any, score: Any) -> str:
        return "no rule at all"

    result = await async_evolve(ROWS, _half, run=_nothing, propose=propose, strategy=KeyedRules(), rounds=10)
    assert isinstance(result.exception, ActorsNeverWorked)
    assert result.exception.actor == "propose"
    assert "name: rule" in result.error


async def test_a_strategy_that_returns_no_diff_is_told_so(anyio_backend: Any) -> None:
    class Loose:
        def initial(self, initial_state: Any) -> dict[str, str]:
            return {}

        def render(self, state: Any) -> str:
            return ""

        def to_diff(self, state: Any, proposal: Any, target: str) -> Diff:
            return {"a": "b"}  # type: ignore[return-value]

    async def propose(rendered: str, task: Any, output: Any, score: Any) -> str:
        return "x"

    with pytest.raises(ContractError, match="returned a dict"):
        await async_evolve(ROWS, _half, run=_nothing, propose=propose, strategy=Loose(), rounds=1)


async def test_who_names_a_context_gets_it_and_nobody_else(anyio_backend: Any) -> None:
    seen: list[tuple[str, Any]] = []

    async def by_name(rendered: str, task: Any, output: Any, score: Any, context: Any = None) -> None:
        seen.append(("by name", context.history))

    async def by_need(rendered: str, task: Any, output: Any, score: Any, told: Any) -> None:
        seen.append(("by need", told.history))

    async def with_an_option(rendered: str, task: Any, output: Any, score: Any, temperature: float = 0.7) -> None:
        seen.append(("with an option", temperature))

    for propose in (by_name, by_need, with_an_option):
        await async_evolve(ROWS, _half, run=_nothing, propose=propose, rounds=1, n_workers=1)
    assert seen == [("by name", ()), ("by need", ()), ("with an option", 0.7)]


async def test_an_actor_that_forgot_to_await_is_awaited(anyio_backend: Any) -> None:
    outputs = []

    async def run(rendered: str, task: Any) -> Any:
        return _nothing(rendered, task)

    async def reward(task: Any, output: Any) -> float:
        outputs.append(output)
        return 1.0

    await async_evolve(ROWS, reward, run=run, propose=_nothing_proposed, rounds=1)
    assert set(outputs) == {"nothing"}


async def _nothing_proposed(rendered: str, task: Any, output: Any, score: Any) -> None:
    return None

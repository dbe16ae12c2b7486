"""What an actor takes, told without an event loop."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from adescent.errors import ContractError
from adescent.executors.signatures import is_async, is_ours, reward_arity, run_arity
from adescent.rewards import exact_match


def two(rendered: Any, task: Any) -> None: ...
def two_and_an_option(rendered: Any, task: Any, temperature: float = 0.5) -> None: ...
def three(rendered: Any, task: Any, state: Any) -> None: ...
def context_if_there_is_one(rendered: Any, task: Any, ctx: Any = None) -> None: ...
def anything(*args: Any) -> None: ...
def one(rendered: Any) -> None: ...
def four(rendered: Any, task: Any, ctx: Any, more: Any) -> None: ...
def by_name(rendered: Any, task: Any, *, ctx: Any) -> None: ...


async def asked(rendered: Any, task: Any, ctx: Any) -> None: ...


class Agent:
    async def solve(self, rendered: Any, task: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("run", "taken"),
    [
        (two, 2),
        (two_and_an_option, 2),
        (three, 3),
        (context_if_there_is_one, 3),
        (anything, 2),
        (asked, 3),
        (Agent().solve, 3),
        (functools.partial(four, "rendered"), 3),
        (functools.partial(context_if_there_is_one, ctx="the host's own"), 2),
        (max, 2),
    ],
)
def test_a_run_gets_the_context_when_it_names_or_needs_it(run: Callable[..., Any], taken: int) -> None:
    assert run_arity(run) == taken


@pytest.mark.parametrize("run", [one, four, by_name, "two", None])
def test_what_cannot_be_called_as_a_run_is_refused(run: Any) -> None:
    with pytest.raises(ContractError, match=r"run\(rendered, task\[, ctx\]\)"):
        run_arity(run)


def test_a_scorer_takes_two() -> None:
    assert reward_arity(two) == 2
    with pytest.raises(ContractError, match=r"reward is three\(.*cannot be called as reward\(task, output\)"):
        reward_arity(three)


def test_what_is_told_of_an_actor_in_whatever_wrapping() -> None:
    assert is_async(functools.partial(functools.partial(asked, 1), 2))
    assert not is_async(functools.partial(two, 1))
    assert is_ours(functools.partial(exact_match, "2"))
    assert not is_ours(two)


def test_a_worker_of_plain_functions_loads_no_loop_and_no_engine() -> None:
    script = (
        "import sys, adescent.executors.results, adescent.executors.signatures, adescent.executors.context; "
        "outside = {'adescent.policies', 'adescent.runtime', 'anyio', 'asyncio', 'cattrs', 'pygit2', 'trio'}; "
        "assert not outside & set(sys.modules), outside & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

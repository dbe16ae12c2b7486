"""Who runs where: the table of mixed actors, against the real signatures."""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from adescent.errors import ContractError
from adescent.executors.actors import bind
from adescent.executors.results import ActorAborted
from adescent.executors.threads import ThreadPool
from adescent.refs import Ref, Resolver
from adescent.rewards import exact_match
from adescent.tasks import Score, Task

BOUND = 10.0
TASK = Task("t1", "?", {"gold": "2"})


def sync(first: object, second: object) -> int:
    return threading.get_ident()


async def coroutine(first: object, second: object) -> int:
    await checkpoint()
    return threading.get_ident()


def with_three(first: object, second: object, third: object) -> int:
    return threading.get_ident()


async def coroutine_with_three(first: object, second: object, third: object) -> int:
    return threading.get_ident()


class Methods:
    def sync(self, first: object, second: object) -> int:
        return threading.get_ident()

    async def coroutine(self, first: object, second: object) -> int:
        return threading.get_ident()

    @staticmethod
    async def static(first: object, second: object) -> int:
        return threading.get_ident()


class SyncCallable:
    def __call__(self, first: object, second: object) -> int:
        return threading.get_ident()


class AsyncCallable:
    async def __call__(self, first: object, second: object) -> int:
        return threading.get_ident()


class Awaitables:
    """An awaitable that is no coroutine."""

    def __init__(self, first: object, second: object) -> None:
        self.made_in = threading.get_ident()

    def __await__(self) -> Any:
        yield from checkpoint().__await__()
        return threading.get_ident()


noted = functools.partial(AsyncCallable())
vars(noted)["note"] = "keeps it from being merged into another partial"


@functools.wraps(coroutine)
def decorated(*args: object) -> Awaitable[int]:
    return coroutine(*args)


def ours(first: object, second: object) -> int:
    return threading.get_ident()


ours.__module__ = "adescent.some_scorers"

MODULE = """
import threading
def factory():
    return lambda first, second: threading.get_ident()
def async_factory():
    async def actor(first, second):
        return threading.get_ident()
    return actor
def plain(first, second):
    return threading.get_ident()
async def coroutine(first, second):
    return threading.get_ident()
"""


@pytest.fixture
def resolver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolver:
    (tmp_path / "mixed_actors.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return Resolver(allow=("mixed_actors:",))


LOOP, THREAD, BOTH = "loop", "thread", "thread, then loop"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("actor", "where"),
    [
        (coroutine, LOOP),
        (sync, THREAD),
        (lambda first, second: coroutine(first, second), BOTH),
        (lambda first, second: threading.get_ident(), THREAD),
        (functools.partial(coroutine_with_three, None), LOOP),
        (functools.partial(with_three, third=None), THREAD),
        (functools.partial(noted), LOOP),
        (AsyncCallable(), LOOP),
        (SyncCallable(), THREAD),
        (Methods().coroutine, LOOP),
        (Methods().sync, THREAD),
        (Methods.static, LOOP),
        (decorated, BOTH),
        (Awaitables, BOTH),
        (ours, LOOP),
        (Ref("mixed_actors:factory"), THREAD),
        (Ref("mixed_actors:async_factory"), LOOP),
        (Ref("mixed_actors:plain", call=False), THREAD),
        (Ref("mixed_actors:coroutine", call=False), LOOP),
    ],
    ids=[
        "coroutine function",
        "plain function",
        "lambda returning an awaitable",
        "lambda",
        "partial of a coroutine function",
        "partial of a plain function",
        "partial of a partial of an async callable",
        "async callable",
        "callable",
        "async method",
        "method",
        "async static method",
        "wrapped coroutine function",
        "class of awaitables",
        "function of this package",
        "ref to a factory",
        "ref to an async factory",
        "ref to a function",
        "ref to a coroutine function",
    ],
)
async def test_where_an_actor_runs(actor: Any, where: str, resolver: Resolver) -> None:
    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as threads:
            bound = bind(actor, name="actor(first, second)", arity=(2,), threads=threads, resolver=resolver)
            on_loop = await bound(None, None) == threading.get_ident()
            in_thread = threads.statistics().idle == 1
    assert (on_loop, in_thread) == {LOOP: (True, False), THREAD: (False, True), BOTH: (True, True)}[where]


@pytest.mark.anyio
@pytest.mark.parametrize("actor", [exact_match(), Ref("adescent.rewards:exact_match")], ids=["scorer", "ref"])
async def test_the_scorers_of_this_package_need_no_thread(actor: Any) -> None:
    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as threads:
            score = await bind(actor, name="reward(task, output)", arity=(2,), threads=threads)(TASK, "2")
            assert threads.statistics().idle == 0
    assert score == Score(1.0)


@pytest.mark.anyio
async def test_the_body_of_a_plain_function_runs_in_a_thread_even_if_it_returns_an_awaitable() -> None:
    made: list[Awaitables] = []

    def actor(first: object, second: object) -> Awaitables:
        made.append(Awaitables(first, second))
        return made[-1]

    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as threads:
            awaited_in = await bind(actor, name="actor(first, second)", arity=(2,), threads=threads)(None, None)
    assert awaited_in == threading.get_ident() != made[0].made_in


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("actor", "passed_on"),
    [
        (lambda a: (a,), 1),
        (lambda a, b: (a, b), 2),
        (lambda a, b, c: (a, b, c), 3),
        (lambda a, b=None: (a, b), 2),
        (lambda *args: args, 3),
    ],
    ids=["one", "two", "three", "optional", "any"],
)
async def test_an_actor_gets_as_many_arguments_as_it_takes(actor: Callable[..., Any], passed_on: int) -> None:
    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as threads:
            bound = bind(actor, name="actor(a[, b[, c]])", arity=(3, 2, 1), threads=threads)
            assert await bound("a", "b", "c") == ("a", "b", "c")[:passed_on]


@pytest.mark.anyio
async def test_a_builtin_that_tells_no_signature_is_taken() -> None:
    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as threads:
            assert await bind(max, name="actor(a, b)", arity=(2,), threads=threads)(1, 2) == 2


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        (sync, r"^oracle is sync\(first: .*\) -> .*, which cannot be called as oracle\(task\)"),
        (functools.partial(with_three, None), r"^oracle is with_three\(second"),
        (AsyncCallable(), r"^oracle is AsyncCallable\(first"),
        (3, r"^oracle is a int: give a function oracle\(task\)"),
    ],
    ids=["function", "partial", "object", "number"],
)
def test_a_refusal_names_the_actor_its_signature_and_what_is_expected(actor: Any, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        bind(actor, name="oracle(task)", arity=(1,), threads=ThreadPool(1))


@pytest.mark.anyio
@pytest.mark.parametrize("blocking", [True, False], ids=["sync", "async"])
async def test_only_exceptions_come_out_of_an_actor(blocking: bool) -> None:
    def leaves() -> None:
        raise SystemExit(3)

    async def leaves_on_the_loop() -> None:
        raise BaseExceptionGroup("several", [SystemExit(3)])

    with anyio.fail_after(BOUND):
        async with ThreadPool(1) as threads:
            bound = bind(leaves if blocking else leaves_on_the_loop, name="actor()", arity=(0,), threads=threads)
            with pytest.raises(ActorAborted, match="SystemExit: 3" if blocking else "BaseExceptionGroup: several"):
                await bound()

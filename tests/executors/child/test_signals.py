"""What a parent does with signals is its own business: a worker, and what it starts, has them as any program has."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Start = Callable[..., Any]

THOSE = [signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM, signal.SIGUSR1]
LOOK = f"""
import signal, subprocess
those = {[int(number) for number in THOSE]}
ignored = [number for number in those if signal.getsignal(number) == signal.SIG_IGN]
blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
failing = subprocess.run(["false"]).returncode
ended = subprocess.run("kill -TERM $$; echo alive", shell=True).returncode
output = [ignored, blocked, failing, ended]
"""


@pytest.fixture
def ignoring() -> Iterator[None]:
    usual = {number: signal.signal(number, signal.SIG_IGN) for number in THOSE}
    yield
    for number, handler in usual.items():
        signal.signal(number, handler)


@pytest.fixture
def blocking() -> Iterator[None]:
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, THOSE)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, usual)


@pytest.mark.parametrize("parent", ["ignoring", "blocking"])
@pytest.mark.parametrize("level", ["none", "limits"])
def test_signals_come_to_a_worker_though_its_parent_wants_none(
    parent: str, level: str, start: Start, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(parent)
    assert start(level=level).output(1, LOOK) == [[], [], 1, -signal.SIGTERM]

"""The executors that one behaviour suite is run against."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adescent.executors import InlineExecutor, ThreadExecutor
from adescent.executors.local import LocalExecutor
from adescent.executors.threads import ThreadPool

SIZE = 4
"""Threads of each executor under test."""

Make = Callable[[float], LocalExecutor]


@pytest.fixture(params=["inline", "thread"])
def make(request: pytest.FixtureRequest) -> Make:
    """A maker of executors; its argument is the grace for blocked threads in seconds."""
    if request.param == "inline":
        return lambda grace: InlineExecutor(threads=ThreadPool(SIZE, grace))
    return lambda grace: ThreadExecutor(SIZE, grace)


@pytest.fixture
def executor(make: Make) -> LocalExecutor:
    """An executor that waits long for its threads; not open yet."""
    return make(30.0)

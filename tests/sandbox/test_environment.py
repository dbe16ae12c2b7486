"""What of the environment reaches a worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adescent.sandbox import LEVELS, Level, environment_of
from adescent.workspec import SandboxSpec

HOST = {
    "PATH": "/usr/bin",
    "LD_LIBRARY_PATH": "/opt/lib",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "LC_NUMERIC": "C",
    "TZ": "UTC",
    "HOME": "/home/host",
    "TMPDIR": "/var/tmp",
    "API_KEY": "0123456789",
    "PYTHONPATH": "/somewhere",
    "LD_PRELOAD": "/evil.so",
}
CONFINING = [level for level in LEVELS if level != "none"]


@pytest.mark.parametrize("level", CONFINING)
def test_only_what_is_needed_or_named_gets_in(level: Level) -> None:
    spec = SandboxSpec(env=("API_KEY", "NOT_SET"), level=level)
    passed = {name: HOST[name] for name in ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_NUMERIC", "TZ", "API_KEY")}
    assert environment_of(spec, level, "/ws", HOST) == {**passed, "HOME": "/ws", "TMPDIR": "/ws"}


def test_a_home_that_is_named_is_the_hosts() -> None:
    assert environment_of(SandboxSpec(env=("HOME",)), "limits", "/ws", HOST)["HOME"] == "/home/host"


def test_at_none_all_of_it_gets_in() -> None:
    found = environment_of(SandboxSpec(level="none"), "none", "/ws", HOST)
    assert found == HOST
    assert found is not HOST


def test_the_hosts_own_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADESCENT_TEST_NAME", "value")
    assert environment_of(SandboxSpec(env=("ADESCENT_TEST_NAME",)), "limits", "/ws")["ADESCENT_TEST_NAME"] == "value"


@given(st.dictionaries(st.text(min_size=1), st.text()), st.sampled_from(CONFINING))
def test_nothing_unnamed_gets_in_whatever_it_is_called(host: dict[str, str], level: Level) -> None:
    found = environment_of(SandboxSpec(level=level), level, "/ws", host)
    assert all(
        name in ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ", "HOME", "TMPDIR") or name.startswith("LC_") for name in found
    )

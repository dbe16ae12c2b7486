"""Which level is used, and what is said where one cannot be had."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from adescent.errors import SandboxUnavailable
from adescent.sandbox import LEVELS, Level, bubblewrap, isolates, landlock, reach, seccomp
from adescent.workspec import SandboxSpec

Works = Callable[..., None]


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Works:
    """Have only these of the higher levels work."""

    def only(*levels: str) -> None:
        monkeypatch.setattr(landlock, "missing", lambda: "" if "landlock" in levels else "get a kernel.")
        monkeypatch.setattr(
            bubblewrap, "missing", lambda *, network: "" if "bubblewrap" in levels else "install bubblewrap."
        )

    return only


def test_the_levels_are_those_a_spec_can_ask_for() -> None:
    assert {*LEVELS, "auto"} == set(get_args(Level))


HIGHER = [(), ("landlock",), ("bubblewrap",), ("landlock", "bubblewrap")]


@pytest.mark.parametrize(("asked", "there"), list(product([*LEVELS, "auto"], HIGHER)))
def test_the_level_asked_for_or_the_next_lower_one_is_used(works: Works, asked: Level, there: tuple[str, ...]) -> None:
    works(*there)
    usable = [level for level in LEVELS if level in ("none", "limits", *there)]
    most = LEVELS.index("bubblewrap" if asked == "auto" else asked)
    expected = [level for level in usable if LEVELS.index(level) <= most][-1]
    assert reach(SandboxSpec(level=asked)) == expected
    if asked in ("auto", expected):
        assert reach(SandboxSpec(level=asked, require=True)) == expected
    else:
        with pytest.raises(SandboxUnavailable, match=r"get a kernel|install bubblewrap") as raised:
            reach(SandboxSpec(level=asked, require=True))
        assert (raised.value.level, raised.value.reached) == (asked, expected)


def test_what_is_said_is_about_the_level_that_was_asked_for(works: Works) -> None:
    works()
    with pytest.raises(SandboxUnavailable, match="install bubblewrap"):
        reach(SandboxSpec(level="bubblewrap", require=True))
    with pytest.raises(SandboxUnavailable, match="get a kernel"):
        reach(SandboxSpec(level="landlock", require=True))


def test_from_landlock_on_code_is_isolated() -> None:
    assert [level for level in LEVELS if isolates(level)] == ["landlock", "bubblewrap"]


def test_a_level_that_is_reached_here_has_passed_its_trial(place: Any) -> None:
    place.need("landlock")
    assert reach(SandboxSpec(level="landlock")) == "landlock"


def test_the_trial_of_landlock_leaves_this_process_free(place: Any) -> None:
    place.need("landlock")
    assert landlock.missing.__wrapped__() == ""
    assert list(Path("/").iterdir())
    assert subprocess.run(["true"], check=False, timeout=20).returncode == 0


def test_a_trial_of_bubblewrap_is_made_once(place: Any) -> None:
    place.need("bubblewrap")
    before = bubblewrap.missing.cache_info().misses
    assert [reach(SandboxSpec(level="bubblewrap")) for _ in range(3)] == ["bubblewrap"] * 3
    assert bubblewrap.missing.cache_info().misses == before


@pytest.fixture
def childless() -> Iterator[None]:
    """The program ignores SIGCHLD, so that it is never told how a child ended, and what it starts ignores it too."""
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, usual)


@pytest.mark.usefixtures("childless")
def test_bubblewrap_works_in_a_program_that_ignores_its_children(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place.need("bubblewrap")
    monkeypatch.setattr(bubblewrap, "TRIAL_SECONDS", 5.0)
    assert bubblewrap.missing.__wrapped__(network=False) == ""


# What is said ---------------------------------------------------------------------------------------------------------


def trial_with(program: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a trial says when ``bwrap`` is this shell script."""
    script = directory / "bwrap"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(script) if name == "bwrap" else None)
    words: str = bubblewrap.missing.__wrapped__(network=False)
    return words


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert bubblewrap.missing.__wrapped__(network=False).startswith("install bubblewrap 0.8")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("echo 'bwrap: Unknown option --disable-userns' >&2; exit 1", "too old.*install bubblewrap 0.8"),
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions.*allow user namespaces"),
        ('while [ "$1" != -- ]; do shift; done; shift; exec "$@"', "exit code 1.*allow user namespaces"),
        ("kill -KILL $$", "does not work here"),
    ],
)
def test_a_bubblewrap_that_does_not_do_is_no_bubblewrap(
    program: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = trial_with(program, tmp_path, monkeypatch)
    assert re.search(words, said), said


def test_a_level_that_cannot_even_be_tried_out_is_not_reached(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bubblewrap.missing.__wrapped__
    works("landlock")
    monkeypatch.setattr(bubblewrap, "missing", real)
    monkeypatch.setattr(shutil, "which", lambda name: "bwrap")
    monkeypatch.setattr(seccomp, "missing", lambda: "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert reach(SandboxSpec(level="bubblewrap")) == "landlock"
    with pytest.raises(SandboxUnavailable, match=r"cannot be tried out .*make room for temporary files"):
        reach(SandboxSpec(level="bubblewrap", require=True))


@pytest.mark.usefixtures("childless")
def test_a_trial_does_not_take_silence_for_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "does not work here" in trial_with("exit 1", tmp_path, monkeypatch)


def test_a_bubblewrap_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "TRIAL_SECONDS", 0.2)
    assert "timed out" in trial_with("exec sleep 60", tmp_path, monkeypatch)


def test_a_bubblewrap_that_cannot_be_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / "gone"))
    assert "does not run here" in bubblewrap.missing.__wrapped__(network=False)


@pytest.mark.parametrize(("abi", "words"), [(0, "no Landlock"), (2, "ABI 2 and 3 is needed")])
def test_a_kernel_without_landlock_is_named(abi: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_abi", lambda: abi)
    assert words in landlock.missing.__wrapped__()
    with pytest.raises(SandboxUnavailable, match=words):
        landlock.restrict(workspace="/nowhere", network=False, readable=[])


def test_a_kernel_that_refuses_landlock_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(ruleset: int, *, network: bool) -> None:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(landlock, "_abi", lambda: 7)
    monkeypatch.setattr(landlock, "_new_ruleset", lambda *_, **__: os.open("/", os.O_PATH))
    monkeypatch.setattr(landlock, "_enforce", refused)
    assert "seccomp profile" in landlock.missing.__wrapped__()


def test_landlock_is_none_where_there_is_no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_wanting", lambda abi: "")
    monkeypatch.setattr(landlock, "_THREADS", tmp_path / "proc" / "self" / "task")
    assert "no /proc" in landlock.missing.__wrapped__()


def test_landlock_without_effect_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_abi", lambda: 7)
    monkeypatch.setattr(landlock, "_new_ruleset", lambda *_, **__: os.open("/", os.O_PATH))
    monkeypatch.setattr(landlock, "_enforce", lambda ruleset, *, network: None)
    assert "without effect" in landlock.missing.__wrapped__()


def test_a_machine_whose_system_calls_are_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "vax")
    assert "vax" in seccomp.missing()
    monkeypatch.setattr(landlock, "_abi", lambda: 7)
    assert "vax" in landlock.missing.__wrapped__()
    monkeypatch.setattr("shutil.which", lambda program: f"/usr/bin/{program}")
    assert "vax" in bubblewrap.missing.__wrapped__(network=False)

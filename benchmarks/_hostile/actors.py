"""Hostile candidates, as workers run them: an attempt is a set of techniques, tried one after the other.

What a technique returns is the candidate's output, so a secret that it finds is seen by the witness. None of them is
believed: whether it worked is told by what it was aimed at. Techniques that harm are bounded by themselves as well.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _hostile.machine
import _hostile.processes
import _hostile.reading
import _hostile.scoring  # noqa: F401 - importing them is what registers their techniques
from _hostile.calls import call_myself
from _hostile.technique import TECHNIQUES, Given
from adescent.tasks import Task

LONGEST = 20_000
PATIENCE = 20
"""Seconds after which a neighbour that nobody talks to ends."""

MISTAKES = (NameError, TypeError, AttributeError, LookupError, AssertionError, ImportError)
"""What a technique raises that was not stopped but is wrong itself."""


def attack(rendered: str, task: Task) -> dict[str, Any]:
    """The candidate's ``run``: what came of each technique."""
    given: Given = json.loads(task.prompt)
    if given["attempt"] in ("neighbour", "next"):
        return {"answer": "a guess", **globals()[f"be_the_{given['attempt']}"](given)}
    return {"answer": "a guess", "tried": dict(outcomes({**given, "task": task, "rendered": rendered}))}


def outcomes(given: Given) -> Iterator[tuple[str, str]]:
    """By technique: what it returned, or an exclamation mark and why not."""
    for technique in TECHNIQUES[given["attempt"]]:
        try:
            yield technique.__name__, str(technique(given))[:LONGEST]
        except MISTAKES as error:
            yield technique.__name__, f"!! {type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - what stopped it is what is asked for
            yield technique.__name__, f"! {type(error).__name__}: {error}"


def be_the_neighbour(given: Given) -> dict[str, Any]:
    """An honest rollout beside the hostile one: it keeps something in its workspace until it is told to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    mine = Path("mine.txt")
    mine.write_text(given["mine"])
    call_myself(given["marker"])
    signal.sigtimedwait({signal.SIGUSR1}, PATIENCE)
    return {"kept": mine.read_text()}


def be_the_next(given: Given) -> dict[str, Any]:
    """An honest rollout after the hostile one: which files of others does it find?"""
    places = {Path.cwd(), *(Path(os.environ.get(name, "/nowhere")) for name in ("HOME", "TMPDIR"))}
    named = [path for place in places for path in _inside(place)]
    found = [path for path in (*named, *map(Path, given["left"])) if given["token"] in _text(path)]
    return {"found": sorted(map(str, found))}


def _inside(place: Path) -> list[Path]:
    try:
        return [path for path in place.iterdir() if path.name.startswith("hostile")]
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

"""A run killed at any instant leaves a directory that opens, that git finds nothing wrong with, and that goes on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from adescent.ledger import GitLedger

BOUND = 60.0
LESSONS = 40

CHILD = """
import json, sys
import anyio
from adescent.evolution import async_evolve
from adescent.telemetry import ArtifactCommitted, RunStarted

schedule, place, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def run(rendered, task):
    await anyio.sleep(0.001)
    return task.prompt in rendered.split()

async def reward(task, output):
    return float(output)

async def propose(rendered, task, output, score):
    return task.prompt

async def on_event(event):
    if isinstance(event, (RunStarted, ArtifactCommitted)):
        print(getattr(event, "version", getattr(event, "resumed", None)), flush=True)

async def main():
    rows = [{"id": f"t{number}", "prompt": f"lesson-{number % 40}"} for number in range(120)]
    result = await async_evolve(
        rows[40:], reward, run=run, propose=propose, schedule=schedule, n_workers=1, rounds=rounds, noise="no",
        held_out=rows[:40], run_dir=place, on_event=on_event, eval_concurrency=40,
    )
    print(json.dumps([result.version, result.resumed_from, result.final_reward]), flush=True)

anyio.run(main, backend=sys.argv[4])
"""


def child(schedule: str, place: Path, rounds: int, backend: str = "asyncio") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, schedule, str(place), str(rounds), backend]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(schedule: str, place: Path, chance: random.Random, backend: str) -> list[int]:
    """Kill a child a moment after it has begun; the versions it had announced as committed."""
    process = child(schedule, place, 1000, backend)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.communicate()[1]
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.0, 0.15))
    finally:
        process.kill()
        out, _ = process.communicate()
    assert not out.startswith("["), "it ended before it was killed"
    return [int(line) for line in (first + out).splitlines() if line.strip().isdigit()]


def sound(place: Path) -> int:
    """The version of the head of a ledger that opens and that git finds nothing wrong with."""
    command = ["git", "-C", str(place / "ledger.git"), "fsck", "--strict", "--no-dangling"]
    check = subprocess.run(command, capture_output=True, text=True)
    assert (check.returncode, check.stdout) == (0, ""), check.stderr
    with closing(GitLedger(place / "ledger.git")) as ledger:
        head = ledger.head("artifact")
        assert len(head.state) >= head.version - 1
        assert [commit.version for commit in ledger.history("artifact")] == list(range(head.version, 0, -1))
        return head.version


@pytest.mark.parametrize(
    ("kills", "backend"), [(4, "asyncio"), pytest.param(40, "trio", marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_killed_run_loses_at_most_what_was_under_way(schedule: str, kills: int, backend: str, tmp_path: Path) -> None:
    place, chance = tmp_path / "run", random.Random(f"kills {schedule}")
    version = 0
    for _ in range(kills):
        announced = killed(schedule, place, chance, backend)
        assert announced[0] == version, "it did not go on from where the one before it was killed"
        version = sound(place)
        assert version >= max(announced)
    out, err = child(schedule, place, 120, backend).communicate(timeout=BOUND)
    ended, resumed_from, final = json.loads(out.splitlines()[-1] if out else err)
    assert resumed_from == version
    assert final == 1.0
    assert sound(place) == ended

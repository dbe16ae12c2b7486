"""Measurements in fresh processes: bounded, and with everything ended that they leave behind.

Whatever a process of ours started and lost becomes a child of this one (Linux calls it a subreaper), so that nothing
escapes by a session of its own, by a group of its own, or by an environment that was scrubbed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PR_SET_CHILD_SUBREAPER = 36
PAGE = os.sysconf("SC_PAGE_SIZE")

# Benchmarks import their neighbours and the checkout they stand in, in every interpreter and every spawned worker.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}


def adopt_orphans() -> None:
    """From now on what loses its parent among our descendants becomes our child."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(root: int | None = None) -> list[int]:
    """All processes below ``root`` (default: this one) that are alive; one that waits to be reaped is not."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has just ended
            children.setdefault(int(parent), []).append(int(entry.name))
            if state in "ZX":
                dead.add(int(entry.name))
    found: list[int] = []
    below = [os.getpid() if root is None else root]
    while below:
        new = children.get(below.pop(), [])
        found += new
        below += new
    return [pid for pid in found if pid not in dead]


def end_all(seconds: float = 10.0) -> None:
    """Kill and reap every descendant. Raises TimeoutError when some are still there in the end."""
    deadline = time.monotonic() + seconds
    while left := descendants():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes that do not end: {left}")
        time.sleep(0.005)
    reap()


def reap() -> None:
    """Take note of the children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def fresh(command: Sequence[str | Path], timeout: float, environment: Mapping[str, str] = ENVIRONMENT) -> Any:
    """Run a command that prints a line of JSON last, and end what it leaves behind.

    What it printed comes back; ``{"failed": …}`` when it printed nothing, or not in time.
    """
    # Files and not pipes: an orphan that holds the other end of a pipe would be waited for.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment, start_new_session=True
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_all()
        out.seek(0)
        errors.seek(0)
        lines = [line for line in out if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {"failed": errors.read()[-1500:] or f"no answer in {timeout:g} s"}


def resident_mib(pid: int) -> float:
    """MiB that a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


def open_files(pid: int) -> int:
    """How many file descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))

"""Actors that do to their process what model-authored code has been seen to do; loaded by worker processes only.

A rollout's ``meta`` says what it is to do and names the fifos over which it and its test speak: it writes the number of
its process to one when it is there, and goes on when it can read a byte from another.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

FOREVER = 3600.0
SIGN_OF_LIFE = 0.2
"""Seconds after which a rollout that waits says so, or it would be taken for one that hangs."""
FLOOD = 16 << 20
"""Bytes, far beyond what any pipe holds or any log keeps."""
SLEEPER = ["sleep", "3600"]

kept: list[object] = []


# What is done -------------------------------------------------------------------------------------------------------


def overflow_the_stack() -> None:
    import sys

    sys.setrecursionlimit(10**9)

    def deeper(_: object) -> None:
        list(map(deeper, [None]))  # each level goes through C, and so takes of the real stack

    deeper(None)


def hog_memory() -> None:
    while True:
        kept.append(bytearray(8 << 20))


def hog_memory_at_start() -> None:
    """There is no limit yet where this runs: it makes do with little more than there is."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, resource.RLIM_INFINITY))
    try:
        for size in (1 << 20, 1 << 12, 1 << 6):
            _fill(size)
    except MemoryError:
        pass


def _fill(size: int) -> None:
    try:
        while True:
            kept.append(bytearray(size))
    except MemoryError:
        pass


def write_garbage() -> None:
    for pipe in pipes_to_parent():
        os.write(pipe, (5).to_bytes(4, "big") + b"hello")


def write_an_oversized_frame() -> None:
    for pipe in pipes_to_parent():
        os.write(pipe, b"\xff" * 4 + b"hello")


def close_the_pipe() -> None:
    for pipe in pipes_to_parent():
        os.close(pipe)


def flood(descriptor: int) -> None:
    """As a program would that knows nothing of Python's streams, and as Python does."""
    import sys

    piece = b"flood" * 13_000 + b"\n"
    stream = sys.stdout if descriptor == 1 else sys.stderr
    for _ in range(FLOOD // len(piece) // 2):
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        stream.write(piece.decode())


def ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def sleep_ignoring_sigterm() -> None:
    ignore_sigterm()
    time.sleep(FOREVER)


def fork_a_sleeper() -> None:
    """Twice: by a fork that never executes anything, which holds whatever its parent held, and by a command."""
    if os.fork() == 0:
        time.sleep(FOREVER)
        os._exit(0)
    kept.append(subprocess.Popen(SLEEPER))


FAULTS: dict[str, Callable[[], Any]] = {
    "exit 0": lambda: os._exit(0),
    "exit 42": lambda: os._exit(42),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "segfault": lambda: ctypes.string_at(0),
    "stack overflow": overflow_the_stack,
    "memory hog": hog_memory,
    "never ready": partial(time.sleep, FOREVER),
    "garbage frame": write_garbage,
    "oversized frame": write_an_oversized_frame,
    "stdout flood": lambda: flood(1),
    "stderr flood": lambda: flood(2),
    "closes its pipe": close_the_pipe,
    "ignores SIGTERM": sleep_ignoring_sigterm,
    "forks a sleeping grandchild": fork_a_sleeper,
}


def pipes_to_parent() -> Iterator[int]:
    """What a process can write to that leads to its parent, besides the standard streams: found, not told."""
    own = Path("/proc/self/fd")
    standard = (own / "1").readlink()
    for entry in own.iterdir():
        try:
            target = entry.readlink()
            writable = fcntl.fcntl(int(entry.name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
        except OSError:  # it was the listing itself
            continue
        if str(target).startswith("pipe:") and target != standard and writable:
            yield int(entry.name)


def spin() -> None:
    while True:
        pass


def spin_in_c() -> None:
    """Nothing else of this process runs any more: neither its threads nor its handlers of signals."""
    re.match(r"(a*)*b", "a" * 40)


def sleep_among_children() -> None:
    fork_a_sleeper()
    time.sleep(FOREVER)


ENDLESS: dict[str, Callable[[], None]] = {
    "in Python": spin,
    "in C": spin_in_c,
    "among its children": sleep_among_children,
    "stopped": FAULTS["SIGSTOP"],
}


# When it is done ----------------------------------------------------------------------------------------------------


def at_start(place: Path) -> None:
    """What an interpreter does that starts while ``place`` holds a file for it: the first to take one has the fault."""
    for order in sorted(place.glob("order-*")):
        try:
            order.rename(place / f"taken-{order.name}")
        except FileNotFoundError:  # another was faster
            continue
        fault, fifo = (place / f"taken-{order.name}").read_text().split("\n")
        announce(fifo)
        hog_memory_at_start() if fault == "memory hog" else FAULTS[fault]()
        return


def announce(path: str) -> None:
    with Path(path).open("ab", buffering=0) as fifo:
        fifo.write(f"{os.getpid()}\n".encode())


def wait_at(gate: str, sign_of_life: Callable[[], object]) -> None:
    fd = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            if select.select([fd], [], [], SIGN_OF_LIFE)[0]:
                try:
                    os.read(fd, 1)
                except BlockingIOError:  # another was faster
                    continue
                return
            sign_of_life()
    finally:
        os.close(fd)


def strike_when_let(meta: dict[str, Any]) -> None:
    wait_at(meta["trigger"], lambda: None)
    try:
        if meta["fault"] != "ignores SIGTERM":  # it does already
            FAULTS[meta["fault"]]()
    except MemoryError:
        pass
    announce(meta["survivors"])


def run(rendered: str, task: Any, ctx: Any) -> int:
    """Whatever it does, the output is the number of the process that did it."""
    meta = task.meta
    match meta["do"]:
        case "wait":
            announce(meta["arrivals"])
            wait_at(meta["gate"], lambda: ctx.checkpoint("still here"))
        case "strike" if ctx.resume_state is None:
            ctx.checkpoint("has struck")
            announce(meta["arrivals"])
            FAULTS[meta["fault"]]()
        case "strike when idle":
            if meta["fault"] == "ignores SIGTERM":
                ignore_sigterm()  # which only the main thread can
            threading.Thread(target=strike_when_let, args=(meta,), daemon=True).start()
        case "strike at the end":
            atexit.register(FAULTS[meta["fault"]])
    return os.getpid()


def keep_memory(rendered: str, task: Any) -> int:
    """Takes what there is, does not mind, and leaves its process little; needs some of its own if told how much."""
    if task.prompt:
        return len(bytearray(int(task.prompt) << 20))
    _fill(1 << 20)
    del kept[:2]
    return len(kept)


def brief(rendered: str, task: Any) -> list[Any]:
    time.sleep(0.003)
    return [rendered, os.getpid()]


def never_end(rendered: str, task: Any, ctx: Any) -> None:
    ctx.checkpoint("has begun")
    ENDLESS[task.prompt]()


async def never_end_on_a_loop(rendered: str, task: Any, ctx: Any) -> None:
    await ctx.checkpoint("has begun")
    import anyio

    await anyio.sleep_forever()


def strike(rendered: str, task: Any) -> str:
    """Does what its prompt says, if it says something."""
    if task.prompt:
        FAULTS[task.prompt]()
    return "went on"


def strike_at_some_time(rendered: str, task: Any, ctx: Any) -> str:
    """Once: now, some time later, whatever goes on then, or when the process ends; prompt: the fault and the time."""
    fault, _, when = task.prompt.partition(" at ")
    if fault and ctx.resume_state is None:
        ctx.checkpoint("has struck, or will")
        if when == "once":
            FAULTS[fault]()
        elif when == "the end":
            atexit.register(FAULTS[fault])
        else:
            timer = threading.Timer(float(when), FAULTS[fault])
            timer.daemon = True
            timer.start()
    time.sleep(0.002)
    return str(task.id)


async def strike_beside_others(rendered: str, task: Any, ctx: Any) -> str:
    return strike_at_some_time(rendered, task, ctx)


# What is started -----------------------------------------------------------------------------------------------------
# For a test to find it, each process is told a number of seconds that no other is: the task's prompt.


def leave_a_child(rendered: str, task: Any) -> list[int]:
    child = subprocess.Popen(["sleep", task.prompt])
    kept.append(child)
    return [os.getpid(), child.pid]


def leave_a_family(rendered: str, task: Any) -> list[int]:
    """In a session of its own; it is complete when this returns."""
    command = ["sh", "-c", f"sleep {task.prompt} & echo; wait"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    kept.append(parent)
    assert parent.stdout
    parent.stdout.readline()
    return [os.getpid(), parent.pid]


def with_a_server(seconds: str) -> Callable[[str, Any], bool]:
    """What is made needs a process of its own for as long as it is there."""
    server = subprocess.Popen(["sleep", seconds])
    return lambda rendered, task: server.poll() is None


def leave_a_daemon(rendered: str, task: Any) -> None:
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execlp("sleep", "sleep", task.prompt)
        os._exit(0)
    os.wait()
    os.close(write)
    os.read(read, 1)  # nothing, once the command is run
    os.close(read)


def full(task: Any, output: object) -> float:
    return 1.0

"""A process that leases workspaces until it is killed, or kills itself before its n-th change to a file.

usage: leasing_child.py ROOT work [DIE_AT]    leases, litters, renews and releases, without an end
       leasing_child.py ROOT hold             leases two workspaces, prints their ids, and keeps them
       leasing_child.py ROOT reap             reaps when told to on its input, and prints how many there were
       leasing_child.py ROOT demolish NAME    removes a directory of ROOT without root's disregard for modes
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import anyio

from adescent.sandbox.demolition import demolish
from adescent.sandbox.workspaces import Workspaces

CHANGES_FILES = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.utime", "fcntl.flock"}


def die_at(step: int) -> None:
    """Kill this process right before the ``step``-th time it touches a file."""
    left = step

    def watch(event: str, _: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES_FILES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def drop_privileges() -> None:
    """Give up what lets root read and write everything (a line of `capabilities(7)` each: 1, 2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    for index in range(3):  # effective, permitted, inheritable
        sets[index] &= ~0b110
    if libc.capset(header, sets) != 0:
        sys.exit("capabilities cannot be dropped here")


def litter(workspace: str) -> None:
    Path(workspace, "deep", "er").mkdir(parents=True)
    Path(workspace, "deep", "file").write_text("left behind")


async def work(root: str) -> None:
    workspaces = Workspaces(root)
    for number in range(1_000_000):
        workspace = await workspaces.acquire(f"worker {number}")
        litter(workspace.path)
        if number == 0:
            print("working", flush=True)  # noqa: T201 - what it is for
            if len(sys.argv) > 3:
                die_at(int(sys.argv[3]))
        await workspaces.renew()
        await workspaces.release(workspace)


async def hold(root: str) -> None:
    workspaces = Workspaces(root)
    ids = [(await workspaces.acquire("holder")).id for _ in range(2)]
    print(*ids, flush=True)  # noqa: T201 - what it is for
    await anyio.sleep_forever()


async def reap(root: str) -> None:
    print("ready", flush=True)  # noqa: T201 - what it is for
    sys.stdin.readline()
    print(await Workspaces(root).reap(), flush=True)  # noqa: T201 - what it is for


def main() -> None:
    root, what = sys.argv[1:3]
    if what == "demolish":
        drop_privileges()
        print(demolish(os.open(root, os.O_RDONLY), sys.argv[3], "heap", time.monotonic() + 10))  # noqa: T201
    else:
        anyio.run({"work": work, "hold": hold, "reap": reap}[what], root)


if __name__ == "__main__":
    main()

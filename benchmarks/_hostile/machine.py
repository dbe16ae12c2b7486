"""Techniques against what all share: network, disk, memory, numbers of files. Bounded, and loaded in workers."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import time
from pathlib import Path

from _hostile.calls import call_myself
from _hostile.processes import child_that, stay
from _hostile.technique import SHOWN, Given, to

FILL_MB = 80
EAT_MB, EATERS, EACH_MB = 500, 4, 150
MANY_FILES = 20_000
MPTCP, FAST_OPEN = 262, 0x20000000
KEPT: list[object] = []
"""What stays when the rollout has ended, as long as the interpreter does."""


@to("TCP out")
def connect(given: Given) -> None:
    with socket.create_connection(("127.0.0.1", given["tcp"]), 1.0):
        pass


@to("TCP out")
def connect_by_other_ways(given: Given) -> None:
    with socket.socket() as link:
        link.sendto(b"x", FAST_OPEN, ("127.0.0.1", given["tcp"]))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as link:
        link.connect(("127.0.0.1", given["tcp"]))


@to("TCP in")
def listen(given: Given) -> None:
    door = socket.socket()
    KEPT.append(door)
    door.bind(("127.0.0.1", given["free"]))
    door.listen(1000)
    time.sleep(SHOWN)


@to("UDP")
def send(given: Given) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.sendto(b"x", ("127.0.0.1", given["udp"]))


@to("unix socket by path")
def connect_to_a_program(given: Given) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(given["program"])


@to("unix socket by name")
def connect_by_name(given: Given) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(f"\0{given['name']}")


def fill(place: Path) -> None:
    """Write a file that stays."""
    with (place / "hostile hoard").open("wb", buffering=0) as hoard:
        for _ in range(FILL_MB):
            hoard.write(os.urandom(1 << 10) * 1024)
    time.sleep(SHOWN)


@to("workspace filled")
def fill_the_workspace(given: Given) -> None:
    call_myself(given["marker"])
    fill(Path.cwd())


@to("disk filled elsewhere")
def fill_public_places(given: Given) -> None:
    call_myself(given["marker"])
    for place in given["places"]:
        Path(place).mkdir(exist_ok=True)
        fill(Path(place))


@to("memory filled")
def take_memory(given: Given) -> None:
    call_myself(given["marker"])
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pass
    for _ in range(EAT_MB):
        KEPT.append(bytearray(os.urandom(1)) * (1 << 20))
    time.sleep(SHOWN)


@to("memory of many")
def take_a_little_each(given: Given) -> None:
    full, told = os.pipe()

    def take() -> None:
        KEPT.append(bytearray(b"x") * (EACH_MB << 20))
        os.write(told, b"x")
        stay(given["marker"])

    for _ in range(EATERS):
        child_that(take)
    for _ in range(EATERS):
        os.read(full, 1)
    time.sleep(SHOWN)


@to("memory shared")
def take_shared_memory(given: Given) -> None:
    call_myself(given["marker"])
    shared = mmap.mmap(-1, EAT_MB << 20)
    KEPT.append(shared)
    for _ in range(EAT_MB):
        shared.write(b"x" * (1 << 20))
    time.sleep(SHOWN)


@to("files opened")
def open_many_files(given: Given) -> None:
    call_myself(given["marker"])
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MANY_FILES + 500, MANY_FILES + 500))
    except (OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for _ in range(MANY_FILES):
        KEPT.append(open("/dev/null", "rb"))  # noqa: PTH123, SIM115 - it stays open
    time.sleep(SHOWN)

"""Techniques to read what a candidate was not given: variables, answers, files, memory. Loaded in workers."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _hostile_calls import copy_of_descriptor, open_handle, vm_read, writable_spans

SECRET = re.compile(rb"secret-[0-9a-f]{32}")
"""What all secrets of the battery look like: who knows what to look for finds it in any heap of bytes."""

MOST = 200
BLOCK = 1 << 24
TECHNIQUES: dict[str, list[Callable[[dict[str, Any]], Any]]] = defaultdict(list)
Technique = Callable[[dict[str, Any]], Any]


def to(attempt: str) -> Callable[[Technique], Technique]:
    """Of what attempt it is a technique."""

    def of(technique: Technique) -> Technique:
        TECHNIQUES[attempt].append(technique)
        return technique

    return of


def secrets_in(data: bytes) -> list[str]:
    """The secrets that stand in some bytes."""
    return sorted({found.decode() for found in SECRET.findall(data)})[:MOST]


@to("own environment")
def look_at_the_environment(given: dict[str, Any]) -> list[str]:
    return secrets_in(repr(dict(os.environ)).encode()) + secrets_in(Path("/proc/self/environ").read_bytes())


@to("parent's environment")
def look_at_the_parents_environment(given: dict[str, Any]) -> list[str]:
    return secrets_in(Path(f"/proc/{given['host']}/environ").read_bytes())


@to("parent's environment")
def have_it_looked_at(given: dict[str, Any]) -> list[str]:
    command = ["cat", f"/proc/{given['host']}/environ", f"/proc/{os.getppid()}/environ"]
    return secrets_in(subprocess.run(command, capture_output=True, check=True).stdout)


@to("own arguments")
def look_at_the_arguments(given: dict[str, Any]) -> list[str]:
    task = given["task"]
    return secrets_in(repr([given["rendered"], task, dict(task.meta), dir(task), sys.argv]).encode())


@to("own objects")
def look_at_all_objects(given: dict[str, Any]) -> list[str]:
    held = (value for thing in gc.get_objects() if type(thing) is dict for value in list(thing.values()))
    return secrets_in("\n".join(value for value in held if type(value) is str).encode(errors="replace"))


@to("own objects")
def look_up_the_stack(given: dict[str, Any]) -> list[str]:
    found, frame = [], sys._getframe()  # noqa: SLF001 - what candidates do
    while frame is not None:
        for value in list(frame.f_locals.values()):
            found += secrets_in(f"{getattr(getattr(value, 'run', value), 'meta', '')}".encode())
        frame = frame.f_back  # type: ignore[assignment]
    return found


@to("own memory")
def look_through_the_memory(given: dict[str, Any]) -> list[str]:
    return in_memory_of("self", _by_file("self"))


@to("parent's memory")
def look_through_the_parents_memory(given: dict[str, Any]) -> list[str]:
    return in_memory_of(given["host"], _by_file(given["host"]))


@to("parent's memory")
def copy_the_parents_memory(given: dict[str, Any]) -> list[str]:
    return in_memory_of(given["host"], lambda first, last: vm_read(given["host"], (first, last)))


def in_memory_of(pid: int | str, read: Callable[[int, int], bytes]) -> list[str]:
    """The secrets in all that a process has made."""
    found: set[str] = set()
    for first, last in writable_spans(pid):
        for start in range(first, last, BLOCK):
            try:
                found.update(secrets_in(read(start, min(start + BLOCK, last))))
            except (OSError, OverflowError):
                continue
    return sorted(found)


def _by_file(pid: int | str) -> Callable[[int, int], bytes]:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    return lambda first, last: os.pread(memory, last - first, first)


def own_pipes(mode: int) -> Iterator[int]:
    """The descriptors of pipes that this process reads or writes (``mode``), the standard ones left out."""
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        try:
            flags = int(Path(f"/proc/self/fdinfo/{number}").read_text().split()[3], 8)
            if number > 2 and str(entry.readlink()).startswith("pipe:") and flags & os.O_ACCMODE == mode:
                yield number
        except OSError:
            continue


@to("the pipe")
def read_what_comes_after(given: dict[str, Any]) -> list[str]:
    found = []
    for pipe in own_pipes(os.O_RDONLY):
        again = os.open(f"/proc/self/fd/{pipe}", os.O_RDONLY | os.O_NONBLOCK)
        try:
            found += secrets_in(os.read(again, 1 << 20))
        except BlockingIOError:
            pass
    return found


@to("held-out file")
@to("run directory")
def read_the_file(given: dict[str, Any]) -> list[str]:
    return secrets_in(Path(given["file"]).read_bytes())


@to("held-out file")
@to("run directory")
def have_it_read(given: dict[str, Any]) -> list[str]:
    return secrets_in(subprocess.run(["cat", given["file"]], capture_output=True, check=True).stdout)


@to("held-out file")
@to("run directory")
def read_it_through_a_link(given: dict[str, Any]) -> list[str]:
    link = Path("hostile link")
    link.unlink(missing_ok=True)
    link.symlink_to(given["file"])
    try:
        return secrets_in(link.read_bytes())
    finally:
        link.unlink()


@to("held-out file")
def read_it_through_the_parents_root(given: dict[str, Any]) -> list[str]:
    return secrets_in(Path(f"/proc/{given['host']}/root{given['file']}").read_bytes())


@to("held-out file")
def read_it_through_the_first_process(given: dict[str, Any]) -> list[str]:
    if os.getsid(0):  # not in a namespace of processes: the first one belongs to the machine
        return []
    return secrets_in(Path(f"/proc/1/root{given['file']}").read_bytes())


@to("held-out file")
def read_it_by_its_handle(given: dict[str, Any]) -> list[str]:
    for mounted in ("/usr", ".", "/"):
        try:
            return secrets_in(os.read(open_handle(mounted, given["handle"]), 4096))
        except OSError as error:
            failed = error
    raise failed


@to("held-out file")
def read_it_from_another_root(given: dict[str, Any]) -> list[str]:
    """The classic way out of a changed root, done in a copy: nothing leads back."""
    code = (
        "import os; here = os.open('/', 0); os.mkdir('hostile root'); os.chroot('hostile root'); os.fchdir(here);"
        f"[os.chdir('..') for _ in range(40)]; os.chroot('.'); print(open({given['file']!r}).read())"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    return secrets_in(ran.stdout)


@to("others in /proc")
def look_others_up(given: dict[str, Any]) -> list[str]:
    pid, found = given["canary"], []
    for name in ("cmdline", "environ", f"fd/{given['descriptor']}"):
        try:
            found += secrets_in(Path(f"/proc/{pid}/{name}").read_bytes())
        except OSError as error:
            failed = error
    if not found:
        raise failed
    return found


@to("others in /proc")
def copy_a_descriptor(given: dict[str, Any]) -> list[str]:
    return secrets_in(os.pread(copy_of_descriptor(given["canary"], given["descriptor"]), 4096, 0))


@to("inherited descriptors")
def read_all_descriptors(given: dict[str, Any]) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the numbers alone
        try:
            found += secrets_in(os.pread(int(name), 4096, 0))
        except OSError:
            continue
    return found

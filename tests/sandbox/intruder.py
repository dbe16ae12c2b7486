"""Run as a script: confines itself, then tries what it should not be able to do, and prints what came of it as JSON.

The first argument is JSON: how it is confined, what it shall try (names of functions here), and the targets.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adescent.sandbox.confinement import allow_cpu, confine

GIVEN: dict[str, Any] = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
PARENT = GIVEN.get("parent", 0)
OUTSIDE = Path(GIVEN.get("outside", "/"))
SHARED = Path(GIVEN.get("shared", "/"))
"""A directory that may be read and not be written."""

MPTCP = 262
FAST_OPEN = 0x20000000
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
SEIZE = 0x4206
LAST_RESORT = 20
"""Seconds after which what hangs is ended."""


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def called(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# Files ----------------------------------------------------------------------------------------------------------------


def read_a_file_outside() -> str:
    return (OUTSIDE / "secret").read_text()


def list_a_directory_outside() -> list[str]:
    return [path.name for path in OUTSIDE.iterdir()]


def write_a_file_outside() -> None:
    (OUTSIDE / "new").write_text("x")


def empty_a_file_outside() -> None:
    os.truncate(OUTSIDE / "to be emptied", 0)


def remove_a_file_outside() -> None:
    (OUTSIDE / "to be removed").unlink()


def move_a_file_in() -> None:
    (OUTSIDE / "to be moved").rename("moved")


def link_to_a_file_outside() -> str:
    link = Path("link")
    link.unlink(missing_ok=True)
    link.symlink_to(OUTSIDE / "secret")
    return link.read_text()


def have_a_program_read_a_file_outside() -> str:
    return subprocess.run(["cat", OUTSIDE / "secret"], capture_output=True, text=True, check=True).stdout


def read_the_users() -> str:
    return Path("/etc/passwd").read_text()[:4]


def patch_what_is_shared() -> None:
    with (SHARED / "scorer.py").open("a") as scorer:
        scorer.write("# patched")


def change_the_mode_of_what_is_shared() -> None:
    (SHARED / "scorer.py").chmod(0o755)


def fill_the_disk() -> int:
    """Returns how many MiB were written; a file may be no larger than 256 of them."""
    with contextlib.ExitStack() as files:
        for number in range(2):
            file = files.enter_context(Path(f"hoard {number}").open("wb", buffering=0))
            for _ in range(250):
                if file.write(b"x" * (1 << 20)) < 1 << 20:
                    raise OSError("a part only")
    return 500


# The network ----------------------------------------------------------------------------------------------------------


def connect_by_tcp() -> None:
    with socket.socket() as link:
        link.connect(("127.0.0.1", GIVEN["tcp"]))


def connect_by_fast_open() -> None:
    with socket.socket() as link:
        link.sendto(b"x", FAST_OPEN, ("127.0.0.1", GIVEN["tcp"]))


def connect_by_multipath_tcp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as link:
        link.connect(("127.0.0.1", GIVEN["tcp"]))


def listen_on_tcp() -> None:
    with socket.socket() as link:
        link.bind(("127.0.0.1", GIVEN["free"]))


def send_by_udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.sendto(b"x", ("127.0.0.1", GIVEN["udp"]))


def connect_to_a_program() -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(OUTSIDE / "socket"))


def connect_to_a_program_by_name() -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(f"\0{GIVEN['name']}")


def talk_to_the_machine_around() -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


# Other processes ------------------------------------------------------------------------------------------------------


def signal_the_parent() -> None:
    os.kill(PARENT, 0)


def read_the_parents_environment() -> bytes:
    return Path(f"/proc/{PARENT}/environ").read_bytes()[:1]


def read_the_parents_memory() -> int:
    block = ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(block), len(block))
    remote = (ctypes.c_size_t * 2)(GIVEN["address of a value"], len(block))
    return called(LIBC.process_vm_readv(PARENT, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))


def trace_the_parent() -> None:
    called(LIBC.ptrace(SEIZE, PARENT, 0, 0))  # it does not stop it, and ends with this process


def trace_who_is_the_same_user() -> None:
    """The sandbox's first process, where there is one: who traces it can have it live on. Else a copy of this one."""
    target = 1 if os.getsid(0) == 0 else os.fork()
    if target == 0:
        signal.pause()
    try:
        called(LIBC.ptrace(SEIZE, target, 0, 0))
    finally:
        if target > 1:
            os.kill(target, signal.SIGKILL)


def share_memory_by_number() -> None:
    number = called(LIBC.shmget(0, 1 << 12, 0o600))
    called(LIBC.shmctl(number, 0, None))  # removes it


def lower_the_parents_limits() -> None:
    resource.prlimit(PARENT, resource.RLIMIT_CORE)  # reading takes the same right


# The system -----------------------------------------------------------------------------------------------------------


def mount_something() -> None:
    try:
        called(LIBC.mount(b"none", os.fsencode(Path.cwd()), b"nothing", 0, None))
    except OSError as error:
        if error.errno != errno.ENODEV:  # whoever may not mount is not told that there is no such file system
            raise


def become_root_of_a_namespace() -> None:
    called(LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS))


def get_capabilities_by_running_a_program() -> str:
    ran = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=False)
    held_by_program = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("CapEff")]
    if not held_by_program or not int(held_by_program[0], 16):
        raise PermissionError("none")
    return held_by_program[0]


def held(capabilities: str) -> str:
    status = Path("/proc/self/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith(capabilities))


def lift_the_memory_limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def read_the_key_ring() -> int:
    return called(LIBC.syscall(GIVEN["keyctl"], 0, -3, 0))  # the number of the session's key ring


def make_a_ring() -> int:
    return called(LIBC.syscall(425, 1, ctypes.create_string_buffer(120)))


# What has to work -----------------------------------------------------------------------------------------------------


def work_in_the_workspace() -> str:
    place = Path("folder")
    place.mkdir()
    (place / "file").write_text("kept")
    (place / "file").rename("file")
    place.rmdir()
    return Path("file").read_text()


def import_a_library() -> str:
    import anyio

    return anyio.run(loops)


async def loops() -> str:
    return "looped"


def import_a_neighbour() -> str:
    import scorer  # type: ignore[import-not-found]

    return str(scorer.NAME)


def run_a_program() -> str:
    return subprocess.run(["echo", "heard"], capture_output=True, text=True, check=True).stdout.strip()


def start_a_thread() -> str:
    from threading import Thread

    said: list[str] = []
    thread = Thread(target=said.append, args=["threaded"])
    thread.start()
    thread.join()
    return said[0]


def talk_to_itself() -> bytes:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"heard")
        return other.recv(5)


def throw_away() -> None:
    with Path("/dev/null").open("w") as nowhere:
        nowhere.write("x")


def draw_at_random() -> int:
    return len(Path("/dev/urandom").open("rb").read(4))


def read_its_own_state() -> str:
    return held("State")


# Limits ---------------------------------------------------------------------------------------------------------------


def take_memory() -> int:
    return len(bytearray(GIVEN["mib"] << 20))


def share_memory() -> int:
    with mmap.mmap(-1, GIVEN["mib"] << 20) as shared:
        return len(shared)


def write_a_large_file() -> int:
    with Path("large").open("wb") as file:
        return file.truncate(GIVEN["mib"] << 20)


def open_many_files() -> int:
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(Path("/dev/null").open()) for _ in range(GIVEN["files"])]
        return len(files)


def fork_many() -> int:
    """Returns how many processes there were, the first one among them, when no more could be had."""
    number = 1
    with contextlib.suppress(BlockingIOError):
        while number < GIVEN["processes"]:
            if os.fork() == 0:
                signal.pause()
            number += 1
    return number


def fork_many_in_namespaces() -> int:
    for _ in range(3):
        with contextlib.suppress(OSError):
            become_root_of_a_namespace()
    return fork_many()


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def run_out_of_time() -> None:
    os.kill(os.getpid(), signal.SIGXCPU)  # as the kernel does


def burn() -> None:
    allow_cpu(1)
    while True:
        pass


def burn_more_than_was_allowed_at_first() -> float:
    for _ in range(2):
        allow_cpu(1)
        began = time.process_time()
        while time.process_time() - began < 0.7:
            pass
    return time.process_time()


def allow_all_again() -> bool:
    """Returns whether the limit was there, and then was not."""
    allow_cpu(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    allow_cpu(None)
    return soft != hard and resource.getrlimit(resource.RLIMIT_CPU) == (hard, hard)


def say_its_limits() -> dict[str, tuple[int, int]]:
    names = ("CORE", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC")
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names}


def leave_a_process() -> int:
    """Returns the number of a process that is in no group or session of this one, and sleeps."""
    left, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(told, str(os.getpid()).encode())
            time.sleep(LAST_RESORT)
        os._exit(0)
    return int(os.read(left, 20))


def wait_for_the_end() -> None:
    say({"ready": True})
    time.sleep(LAST_RESORT)


def write_to_a_descriptor() -> int:
    return os.write(GIVEN["descriptor"], b"passed through")


def say_who_it_is() -> list[int]:
    return [os.getuid(), os.getgid(), len(os.getgroups())]


def say_what_processes_there_are() -> list[str]:
    return sorted(path.name for path in Path("/proc").iterdir() if path.name.isdigit())


def say_what_may_be_written() -> list[str]:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [fields[4] for fields in mounts if "rw" in fields[5].split(",")]


def outcomes(attempts: list[str]) -> Iterator[tuple[str, Any]]:
    for name in attempts:
        attempt: Callable[[], Any] = globals()[name]
        try:
            result = attempt()
            yield name, result.decode() if isinstance(result, bytes) else result
        except Exception as error:  # noqa: BLE001 - what it was is what is asked for
            yield name, f"! {type(error).__name__}: {error}"


if __name__ == "__main__":
    signal.alarm(LAST_RESORT)
    reached = confine(**GIVEN["confinement"])
    say({"level": reached, **dict(outcomes(GIVEN["attempts"]))})

"""System calls that hostile candidates make and that the standard library does not offer. Loaded in workers."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
PTRACE_POKEDATA, PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS = 5, 9, 12, 13
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 16, 17, 0x4206
WALL = 0x40000000
REGISTERS, RAX, RSI, RDI, ORIG_RAX, RIP = 27, 10, 13, 14, 15, 16
SYSCALL_BYTES = 2
"""The registers of x86-64 as a debugger sees them, and the length of the instruction of a system call."""
PR_SET_NAME = 15
IPC_CREAT = 0o1000
PIDFD_GETFD = 438
NAME_TO_HANDLE = {"x86_64": 303}.get(platform.machine(), 264)
OPEN_BY_HANDLE = {"x86_64": 304}.get(platform.machine(), 265)
LARGEST_HANDLE = 128
Span = tuple[int, int]


def checked(result: int) -> int:
    """The result of a call. Raises OSError when it says that it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call_myself(name: str) -> None:
    """Give this process the name by which the witness counts it, whatever namespace it is in."""
    checked(LIBC.prctl(PR_SET_NAME, name.encode(), 0, 0, 0))


def writable_spans(pid: int | str) -> list[Span]:
    """The parts of a process's memory that hold what it has made."""
    spans = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        where, mode, *_, name = [*line.split(maxsplit=5), ""][:6]
        if mode.startswith("rw") and not name.startswith(("/dev", "[v")):
            first, last = (int(end, 16) for end in where.split("-"))
            spans.append((first, last))
    return spans


def vm_read(pid: int, span: Span) -> bytes:
    """What `process_vm_readv` copies out of another process."""
    block = ctypes.create_string_buffer(span[1] - span[0])
    local = (ctypes.c_size_t * 2)(ctypes.addressof(block), len(block))
    remote = (ctypes.c_size_t * 2)(span[0], len(block))
    got = checked(LIBC.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
    return block.raw[:got]


def vm_write(pid: int, address: int, data: bytes) -> None:
    """Have `process_vm_writev` write into another process."""
    block = ctypes.create_string_buffer(data, len(data))
    local = (ctypes.c_size_t * 2)(ctypes.addressof(block), len(data))
    remote = (ctypes.c_size_t * 2)(address, len(data))
    checked(LIBC.process_vm_writev(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))


@contextmanager
def attached(pid: int) -> Iterator[None]:
    """Be a process's debugger, with it stopped."""
    checked(LIBC.ptrace(PTRACE_ATTACH, pid, 0, 0))
    try:
        os.waitpid(pid, WALL)
        yield
    finally:
        LIBC.ptrace(PTRACE_DETACH, pid, 0, 0)


def poke(pid: int, address: int, word: bytes) -> None:
    """Write eight bytes, as a debugger does."""
    with attached(pid):
        data = ctypes.c_long(int.from_bytes(word, "little", signed=True))
        checked(LIBC.ptrace(PTRACE_POKEDATA, pid, ctypes.c_void_p(address), data))


def have_it_call(pid: int, *calls: tuple[int, int, int]) -> None:
    """Have a process that waits in a system call make others first: number and two arguments each (x86-64)."""
    with attached(pid):
        before = (ctypes.c_ulong * REGISTERS)()
        checked(LIBC.ptrace(PTRACE_GETREGS, pid, 0, before))
        waiting = (before[ORIG_RAX], before[RDI], before[RSI])
        for last, (number, first, second) in enumerate([*calls, waiting], 1 - len(calls) - 1):
            registers = (ctypes.c_ulong * REGISTERS)(*before)
            registers[RAX], registers[RDI], registers[RSI] = number, first, second
            registers[ORIG_RAX], registers[RIP] = 2**64 - 1, before[RIP] - SYSCALL_BYTES
            checked(LIBC.ptrace(PTRACE_SETREGS, pid, 0, registers))
            if last:
                checked(LIBC.ptrace(PTRACE_SINGLESTEP, pid, 0, 0))
                os.waitpid(pid, WALL)


def copy_of_descriptor(pid: int, number: int) -> int:
    """A descriptor of another process, copied into this one."""
    pidfd = os.pidfd_open(pid)
    try:
        return checked(LIBC.syscall(PIDFD_GETFD, pidfd, number, 0))
    finally:
        os.close(pidfd)


def handle_of(path: str) -> str:
    """A file's handle as hexadecimal digits: who may open handles needs no way to the file."""
    handle = ctypes.create_string_buffer(LARGEST_HANDLE.to_bytes(4, "little"), 8 + LARGEST_HANDLE)
    mount = ctypes.c_int()
    checked(LIBC.syscall(NAME_TO_HANDLE, -100, os.fsencode(path), handle, ctypes.byref(mount), 0))
    return bytes(handle).hex()


def open_handle(mounted_at: str, handle: str) -> int:
    """A descriptor of the file that a handle stands for, on the file system that ``mounted_at`` is on."""
    mount = os.open(mounted_at, os.O_RDONLY)
    try:
        return checked(LIBC.syscall(OPEN_BY_HANDLE, mount, bytes.fromhex(handle), os.O_RDONLY))
    finally:
        os.close(mount)


def mount(source: str, at: str, kind: str, options: str = "") -> None:
    """Mount a file system."""
    words = (os.fsencode(text) for text in (source, at, kind))
    checked(LIBC.mount(*words, 0, os.fsencode(options)))


def unshare(flags: int) -> None:
    """Move into new namespaces."""
    checked(LIBC.unshare(flags))


def shared_segment(key: int, size: int, flags: int) -> int:
    """The number of a System V segment of shared memory."""
    return checked(LIBC.shmget(key, ctypes.c_size_t(size), flags))


def remove_segment(number: int) -> None:
    """Remove a System V segment of shared memory."""
    checked(LIBC.shmctl(number, 0, None))

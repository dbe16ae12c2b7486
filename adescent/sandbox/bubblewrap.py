"""bubblewrap: a worker in namespaces of its own, where there is nothing but what it was given.

It sees the files it may read, empty places of bounded size to write in, its own processes, and no network. What it
starts cannot leave, and ends with it: its process namespace dies with its first process, which dies with ``bwrap``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from stat import S_ISDIR

from adescent.sandbox import seccomp
from adescent.sandbox.privileges import FIRST_UID, UIDS
from adescent.sandbox.reading import NETWORK, SYSTEM, covering, interpreter_paths

__all__ = ["bubblewrap_command", "missing"]

INSTALL = "install bubblewrap 0.8 or newer (the program `bwrap`)."
NOBODY = "65534"
TRIAL_SECONDS = 20.0
NEEDED_CAPABILITIES = 1 << 6 | 1 << 7 | 1 << 21
"""Setting group and user ids, and making namespaces without a user namespace around them."""

_APART = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")


def bubblewrap_command(
    argv: Sequence[str], *, workspace: str, network: bool, readable: Sequence[str], tmp_mb: int
) -> list[str]:
    """The command that runs ``argv`` in a sandbox that can read ``readable``, the `interpreter_paths` among them.

    ``workspace`` (where it starts), /tmp and /dev/shm are empty, in memory, of ``tmp_mb`` MiB each. Start it as the
    leader of a session, from a thread that outlives it: when that thread ends, so does the sandbox. Descriptors it
    inherits reach ``argv``. A process ended by signal n shows as exit code 128 + n. A worker has to call `confine` too.
    """
    shown = covering(readable)
    system = covering([*SYSTEM, *(NETWORK if network else ())])
    return [
        *_hearing_of_children(),
        shutil.which("bwrap") or "bwrap",
        *_APART,
        *([] if network else ["--unshare-net"]),
        *_as_whom(shown),
        *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
        *_place("/dev/shm", tmp_mb),  # noqa: S108 - the sandbox's own
        *("--remount-ro", "/dev"),
        *_place("/tmp", tmp_mb),  # noqa: S108 - the sandbox's own
        *_bound(covering([*system, *shown]), workspace),
        *_place(workspace, tmp_mb),
        *("--remount-ro", "/", "--chdir", workspace, "--"),
        *argv,
    ]


@cache
def missing(*, network: bool) -> str:
    """What this machine lacks for the level, in words; empty when a trial has shown that it works."""
    if shutil.which("bwrap") is None:
        return INSTALL
    if wanting := seccomp.missing():
        return wanting
    with tempfile.TemporaryDirectory(prefix="adescent-trial-") as directory:
        outside, workspace = Path(directory, "outside"), Path(directory, "workspace")
        outside.touch()
        workspace.mkdir()
        return _trial(str(outside), str(workspace), network=network)


def _trial(outside: str, workspace: str, *, network: bool) -> str:
    seen = f"import os; apart = os.getsid(0) == 0 and not os.path.exists({outside!r})"
    apart = f"{seen}; print(apart); raise SystemExit(not apart)"
    command = bubblewrap_command(
        [sys.executable, "-I", "-S", "-c", apart],
        workspace=workspace,
        network=network,
        readable=interpreter_paths(),
        tmp_mb=1,
    )
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run here ({error}); {INSTALL}"
    if ran.stdout.strip() == b"True":  # its exit code is 0 whatever it did, where this program ignores SIGCHLD
        return ""
    return _in_words(ran.returncode, ran.stderr.decode(errors="replace").strip())


def _in_words(code: int, complaint: str) -> str:
    if "nknown option" in complaint:
        return f"bwrap is too old ({complaint.splitlines()[0]}): {INSTALL}"
    return (
        f"bwrap does not work here ({complaint or f'exit code {code}'}): allow user namespaces "
        "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0), "
        "or give the container the right to make namespaces."
    )


def _hearing_of_children() -> list[str]:
    """What to start ``bwrap`` with: it waits for ever for a child whose end is kept from it, as it inherits."""
    if signal.getsignal(signal.SIGCHLD) != signal.SIG_IGN:
        return []
    heard = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-I", "-S", "-c", heard]


def _as_whom(shown: Iterable[str]) -> list[str]:
    """As a user whom nothing belongs to, so that the kernel bounds how many processes it has; else in a user namespace.

    The machine's own root is not bounded whatever it is called in a namespace, so it has to become somebody else, who
    can read ``shown`` only if all can. `confine` does that, with the two capabilities that are left to it here.
    """
    if os.geteuid() == 0 and _may_be_anyone() and _everyone_reads(shown):
        return ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    named = ["--uid", NOBODY, "--gid", NOBODY] if os.geteuid() == 0 else []
    return ["--unshare-user", "--disable-userns", "--cap-drop", "ALL", *named]


def _everyone_reads(paths: Iterable[str]) -> bool:
    modes = (Path(path).stat().st_mode for path in paths)
    return all(mode & 0o005 == 0o005 if S_ISDIR(mode) else mode & 0o004 for mode in modes)


def _may_be_anyone() -> bool:
    """Whether this root is the machine's own: in a container it may lack capabilities, and most of the user ids."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        maps = [Path(f"/proc/self/{kind}_map").read_text(encoding="ascii").split() for kind in ("uid", "gid")]
    except OSError:
        return False
    held = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    all_ids = all(len(ids) == 3 and ids[0] == "0" and int(ids[2]) >= FIRST_UID + UIDS for ids in maps)
    return held & NEEDED_CAPABILITIES == NEEDED_CAPABILITIES and all_ids


def _bound(paths: Sequence[str], workspace: str) -> Iterator[str]:
    # Left to itself, bwrap makes the directories above them private to root.
    above = {str(parent) for path in (*paths, workspace) for parent in Path(path).parents}
    for directory in sorted(above - {"/"}):
        yield from ("--dir", directory)
    for path in paths:
        yield from ("--ro-bind", path, path)


def _place(path: str, tmp_mb: int) -> list[str]:
    return ["--perms", "1777", "--size", str(tmp_mb << 20), "--tmpfs", path]

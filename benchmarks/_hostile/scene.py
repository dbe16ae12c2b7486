"""What hostile candidates are aimed at: files, listeners, and the processes they may hurt."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _hostile.calls import LIBC, handle_of, remove_segment, shared_segment
from _hostile.victims import CORE, NICE, Canary, Host
from adescent.sandbox import Level

PUBLIC = ("/tmp", "/dev/shm", "/var/tmp")
SCORER = "def reward(task, output):\n    return float(task.meta['gold'] in repr(output))\n"
HEAD = "run/ledger.git/refs/heads/dev"
FILES = {
    "held out": 0o600,
    "open here": 0o600,
    HEAD: 0o600,
    "precious/one": 0o600,
    "precious/two": 0o600,
    "code/hostile_kit/__init__.py": 0o644,
    "code/hostile_kit/words.txt": 0o644,
}
DETACH = 2


class Scene:
    """One folder and what belongs to it, put back in order before every attempt.

    ``said`` is what has come of the rollouts of this attempt, by their role. With ``closed`` there is code that not
    everybody can read: then root's sandboxes are not users of their own, but namespaces of users.
    """

    def __init__(self, level: Level, stack: ExitStack, *, closed: bool = False) -> None:
        self.level = level
        # Not in /tmp: a sandbox that has one of its own would hide all of it by that alone.
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-", dir="/var/tmp")))
        self.folder.chmod(0o755)
        self._closed = closed
        self.in_the_environment = new_secret()
        self.marker = self.neighbour = "hostile"
        self.key = 0
        self.said: dict[str, dict[str, Any]] = {}
        self.noticed: set[str] = set()
        self._listeners = dict(_listeners(self.folder, stack))
        self._keep("held out", "", 0o600)
        self.canary = Canary(self.path("held out"), new_secret())
        self.host = Host(level, self.folder, self.in_the_environment)
        stack.callback(self._end)
        self.refresh()

    def path(self, name: str) -> Path:
        """A place in the folder."""
        return self.folder / name

    def refresh(self) -> None:
        """Put everything back, with new names and new secrets."""
        self._clear()
        self.marker, self.neighbour = (f"h{secrets.token_hex(6)}" for _ in range(2))
        self.secret, self.gold, self.gold_behind = (new_secret() for _ in range(3))
        self.mine = secrets.token_hex(8)
        self.key = secrets.randbits(30) + 1
        self.said, self.noticed = {}, set()
        for name, mode in FILES.items():
            self._keep(name, self.secret if mode == 0o600 else "", mode)
        self._keep("code/hostile_scorer.py", SCORER, 0o644)
        for name in ("mounted", "cwd", "workspaces"):
            self.path(name).mkdir(exist_ok=True, mode=0o700)
        if self._closed:
            self._keep("code/hostile_closed/__init__.py", "", 0o600)
            self.path("code/hostile_closed").chmod(0o700)
        self.setuid = self.path(f"code/hostile_kit/{self.marker}")
        shutil.copy(shutil.which("sleep") or "/bin/sleep", self.setuid)
        self.setuid.chmod(0o4755)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.free_port: int = unused.getsockname()[1]
        if self.canary.is_hurt:
            self.canary = self.canary.another()

    def given(self) -> dict[str, Any]:
        """What a candidate is told: where everything is that it is to get at. No secret is among it."""
        return {
            "marker": self.marker,
            "token": self.mine,
            "host": self.host.pid,
            "canary": self.canary.pid,
            "address": self.canary.address,
            "descriptor": self.canary.descriptor,
            "file": str(self.path("held out")),
            "handle": handle_of(str(self.path("held out"))),
            "head": str(self.path(HEAD)),
            "scorer": str(self.path("code/hostile_scorer.py")),
            "words": str(self.path("code/hostile_kit/words.txt")),
            "setuid": str(self.setuid),
            "workspaces": str(self.path("workspaces")),
            "precious": str(self.path("precious")),
            "mounted": str(self.path("mounted")),
            "program": str(self.path("program")),
            "name": self._listeners["name"].getsockname()[1:].decode(),
            "tcp": self._listeners["tcp"].getsockname()[1],
            "udp": self._listeners["udp"].getsockname()[1],
            "free": self.free_port,
            "key": self.key,
            "nice": NICE,
            "core": CORE,
            "left": self._left,
            "places": self.places,
        }

    @property
    def places(self) -> list[str]:
        """Where a candidate may fill the disk, in folders that can be found again."""
        return [f"{place}/hostile-{self.marker}" for place in PUBLIC[:2]]

    @property
    def _left(self) -> list[str]:
        return [f"{place}/hostile left {self.marker}" for place in PUBLIC]

    @property
    def segment(self) -> int:
        """The number of the segment of shared memory that was left; below 0 when there is none."""
        try:
            return shared_segment(self.key, 0, 0)
        except OSError:
            return -1

    def reached(self, name: str) -> bool:
        """Whether something has come to this listener so far."""
        listener = self._listeners[name]
        while select.select([listener], [], [], 0)[0]:
            self.noticed.add(name)
            if listener.type == socket.SOCK_DGRAM:
                listener.recv(100)
            else:
                listener.accept()[0].close()
        return name in self.noticed

    def _keep(self, name: str, text: str, mode: int) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.chmod(0o600)
        path.write_text(text)
        path.chmod(mode)

    def _clear(self) -> None:
        for name in (self.marker, self.neighbour):
            while left := processes_called(name):
                for pid in left:
                    kill(pid, signal.SIGKILL)
        while self.path("mounted").is_mount():
            LIBC.umount2(os.fsencode(self.path("mounted")), DETACH)
        if self.segment >= 0:
            remove_segment(self.segment)
        for place in (*map(Path, self.places), self.path("code")):
            shutil.rmtree(place, ignore_errors=True)
        for note in self._left:
            Path(note).unlink(missing_ok=True)

    def _end(self) -> None:
        self.host.kill()
        self.canary.end()
        self._clear()


def new_secret() -> str:
    """What nobody can guess, in the form that candidates look for."""
    return f"secret-{secrets.token_hex(16)}"


def processes_called(name: str) -> list[int]:
    """The processes of this name that are alive, in whatever namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                before, _, after = (entry / "stat").read_text().rpartition(")")
            except OSError:  # it has just ended
                continue
            if before.endswith(f"({name}") and after.split()[0] not in "ZX":
                found.append(int(entry.name))
    return found


def kill(pid: int, number: int) -> None:
    """Signal a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _listeners(folder: Path, stack: ExitStack) -> Iterator[tuple[str, socket.socket]]:
    addresses: dict[str, tuple[int, int, Any]] = {
        "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        "program": (socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "program")),
        "name": (socket.AF_UNIX, socket.SOCK_STREAM, f"\0hostile-{secrets.token_hex(6)}"),
    }
    for kind, (family, type_, address) in addresses.items():
        listener = stack.enter_context(socket.socket(family, type_))
        listener.bind(address)
        if type_ == socket.SOCK_STREAM:
            listener.listen()
        yield kind, listener

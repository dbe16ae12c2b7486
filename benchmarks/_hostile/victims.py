"""The processes that candidates may hurt, as the witness sees them: a canary, and the parent of the workers."""

from __future__ import annotations

import json
import mmap
import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _processes import ENVIRONMENT

from _hostile.canary import VALUE

HERE = Path(__file__).parent
VARIABLE = "HOSTILE_SECRET"
NICE, CORE = 7, 4242
"""The priority and the limit that candidates are to give the canary."""
BEAT = struct.Struct("d")


class Canary:
    """A process that belongs to nobody: it keeps a value, and a file open."""

    def __init__(self, opened: Path, secret: str) -> None:
        self._opened = opened
        self.secret = secret
        self._process = subprocess.Popen(
            [sys.executable, "-S", HERE / "canary.py", self.secret, opened],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={VARIABLE: self.secret},
            start_new_session=True,
        )
        self.pid = self._process.pid
        told = self._hear()
        self.address: int = told["address"]
        self.descriptor: int = told["descriptor"]

    @property
    def is_hurt(self) -> bool:
        """Whether anything about it is not as it was at first."""
        return self.is_touched or self.is_slowed or self.is_limited

    @property
    def is_touched(self) -> bool:
        """Whether what it keeps in its memory has been changed, or it has ended."""
        if self._process.poll() is not None:
            return True
        assert self._process.stdin is not None
        self._process.stdin.write(b"?\n")
        self._process.stdin.flush()
        return not bytes.fromhex(self._hear()["value"]).startswith(VALUE)

    @property
    def is_slowed(self) -> bool:
        """Whether it gets less of the processors."""
        return os.getpriority(os.PRIO_PROCESS, self.pid) == NICE

    @property
    def is_limited(self) -> bool:
        """Whether it may use less than before, or is the first to be ended when memory is short."""
        limits = Path(f"/proc/{self.pid}/limits").read_text()
        return f" {CORE} " in limits or Path(f"/proc/{self.pid}/oom_score_adj").read_text() == "777\n"

    def another(self) -> Canary:
        """One that has taken its place."""
        self.end()
        return Canary(self._opened, self.secret)

    def end(self) -> None:
        """Be done with it."""
        self._process.kill()
        self._process.communicate()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class Host:
    """The parent: started when it is needed, and again if it has been killed.

    ``workers`` is how many its executor has, 0 while none is open.
    """

    def __init__(self, level: str, folder: Path, secret: str) -> None:
        self._command = [sys.executable, "-B", "-m", "_hostile.host", level, str(folder)]
        path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(folder / "code")])
        self._cwd = folder / "cwd"
        # Unconfined candidates write where they are at home: that is to be nobody's.
        own = {"HOME": str(self._cwd), "TMPDIR": str(self._cwd)}
        self._environment = {**ENVIRONMENT, **own, "PYTHONPATH": path, VARIABLE: secret}
        self._beat = folder / "beat"
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self.workers = 0

    @property
    def pid(self) -> int:
        """Its number; 0 before it has been started."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_traced(self) -> bool:
        """Whether somebody is its debugger now."""
        try:
            return "TracerPid:\t0\n" not in Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return False

    @property
    def silent_for(self) -> float:
        """Seconds since its event loop has last had a turn; 0 while no executor is open."""
        if not self.workers or not self.is_alive:
            return 0.0
        beat: float = BEAT.unpack(self._beat.read_bytes())[0]
        return time.monotonic() - beat if beat else 0.0

    def tell(self, **words: Any) -> None:
        """Give it a command."""
        if not self.is_alive:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, seconds: float) -> Any:
        """What it says next; None if it says nothing in this time."""
        assert self._process is not None
        assert self._process.stdout is not None
        if b"\n" not in self._heard and select.select([self._process.stdout], [], [], seconds)[0]:
            self._heard += os.read(self._process.stdout.fileno(), 1 << 20)
        line, end, rest = self._heard.partition(b"\n")
        if not end:
            return None
        self._heard = rest
        return json.loads(line)

    def kill(self) -> None:
        """End it at once; its workers are left to what ties them to it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self.workers, self._heard = 0, b""

    def _start(self) -> None:
        self.kill()
        self._beat.write_bytes(BEAT.pack(0.0))
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self._cwd,
            env=self._environment,
            start_new_session=True,
        )


def beats(path: Path) -> mmap.mmap:
    """The memory in which the host notes when it had a turn."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), BEAT.size)

"""How a worker process is started: its command, its environment, its workspace, and what it is told first."""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import sniffio
from attrs import frozen

from adescent.errors import AdescentError, ContractError
from adescent.executors.framing import frame
from adescent.executors.interpreter import Interpreter
from adescent.executors.wire import VERSION, Hello, encode
from adescent.policies import SandboxProvider
from adescent.sandbox import Level, Redactor, bubblewrap_command, environment_of, interpreter_paths, isolates
from adescent.workspec import SandboxSpec, Workspace

__all__ = ["INSIDE", "Launched", "Launcher", "Room"]

logger = logging.getLogger("adescent")

INSIDE = "ADESCENT_WORKER"
"""Set in the environment of every worker, and so of whatever it starts."""

CHILD = "adescent.executors.child"
SCRATCH_MB = 256
"""What a candidate that has no disk may write into memory instead."""


@frozen(eq=False)
class Room:
    """What interpreters have in common that may stand in for each other: the same confinement, really reached."""

    level: Level
    sandbox: SandboxSpec
    redactor: Redactor
    readable: tuple[str, ...]

    @classmethod
    def at(cls, level: Level, sandbox: SandboxSpec) -> Room:
        """Look up what such a room needs to know of this process. May read a disk."""
        readable = tuple(filter(_is_text, interpreter_paths())) if isolates(level) else ()
        return cls(level, sandbox, Redactor.of(sandbox.env, os.environ), readable)

    @property
    def isolated(self) -> bool:
        """Whether its code is kept from what it was not given."""
        return isolates(self.level)


@frozen(eq=False)
class Launched:
    """A worker process that has been started, and the directory that is its own (None where it has none)."""

    interpreter: Interpreter
    workspace: Workspace | None


class Launcher:
    """Starts interpreters, each in a workspace of its own, and clears up after them."""

    def __init__(self, provider: SandboxProvider) -> None:
        if not sys.executable:
            raise ContractError("sys.executable is not set, so no worker process can be started: run under python.")
        self._provider = provider

    async def launch(self, room: Room, name: str, in_flight: int) -> Launched:
        """A new worker for ``room``, which has been told how to confine itself; ``in_flight`` may have begun in it.

        Raises OSError when the system gives no process, pipe or directory.
        """
        workspace = None if room.level == "none" else await self._provider.acquire(name)
        try:
            interpreter = _started(room, None if workspace is None else workspace.path, in_flight)
        except BaseException:
            await self._release(workspace)
            raise
        return Launched(interpreter, workspace)

    async def clear(self, launched: Launched) -> None:
        """Remove what belonged to a worker that has ended."""
        await self._release(launched.workspace)

    async def _release(self, workspace: Workspace | None) -> None:
        if workspace is None:
            return
        try:
            await self._provider.release(workspace)
        except (OSError, AdescentError):
            logger.warning("the workspace of a worker cannot be removed: it is left to a later run", exc_info=True)


def _started(room: Room, workspace: str | None, in_flight: int) -> Interpreter:
    # Before there is a process: one that could not be greeted would be nobody's.
    greeting = frame(encode(_hello(room, workspace, in_flight)))
    command = [sys.executable, *(["-B"] if sys.dont_write_bytecode else []), "-m", CHILD]
    wrapped = room.level == "bubblewrap"
    if wrapped:
        assert workspace is not None
        command = bubblewrap_command(
            command,
            workspace=workspace,
            network=room.sandbox.network,
            readable=list(room.readable),
            tmp_mb=SCRATCH_MB,
        )
    interpreter = Interpreter(command, _environment(room, workspace), workspace, wrapped=wrapped)
    interpreter.send(*greeting)
    return interpreter


def _hello(room: Room, workspace: str | None, in_flight: int) -> Hello:
    if not _is_text(workspace or ""):
        raise ContractError(
            f"a workspace cannot be at {workspace!a}, which is no text in this locale: "
            "use one of UTF-8, or name another directory with Workspaces(root=...)."  # three dots: it has no other
        )
    return Hello(
        version=VERSION,
        path=_search_path(),
        workspace=workspace or "",
        level=room.level,
        loop=cast('Literal["asyncio", "trio"]', sniffio.current_async_library()),
        memory_mb=room.sandbox.memory_mb,
        network=room.sandbox.network,
        readable=list(room.readable),
        secrets=list(room.sandbox.env),
        in_flight=in_flight,
    )


def _environment(room: Room, workspace: str | None) -> Mapping[str, str]:
    env = environment_of(room.sandbox, room.level, workspace or "")
    return {**env, INSIDE: "1", "PYTHONPATH": os.pathsep.join(_found_before_start())}


def _search_path() -> list[str]:
    """The parent's ``sys.path``, made independent of the working directory; names that are no text cannot be told."""
    return [path for entry in sys.path if _is_text(path := str(Path(entry).absolute()))]


def _is_text(path: str) -> bool:
    return path.encode("utf-8", "replace").decode() == path


def _found_before_start() -> list[str]:
    """What must be on the path for the worker's own module to be found; the rest it is told.

    Not the interpreter's own directories: put in front, a package installed there could hide a standard module.
    """
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    ours = str(Path(__file__).absolute().parents[2])
    path = _search_path()
    first_own = next((index for index, entry in enumerate(path) if entry in own), len(path))
    return [*path[:first_own], *([] if ours in own else [ours])]

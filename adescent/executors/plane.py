"""What stands behind a process executor and all its views: the pools, by what their interpreters are used for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

from anyio import sleep
from attrs import evolve, frozen

from adescent.errors import AdescentError
from adescent.executors.hosting import Hosting
from adescent.executors.launching import Launcher, Room
from adescent.executors.pool import Pool
from adescent.executors.pool_rules import PoolLimits, PoolStatistics
from adescent.executors.wire import Job
from adescent.own_thread import in_own_thread
from adescent.policies import SandboxProvider
from adescent.refs import Ref
from adescent.sandbox import Level, reach
from adescent.sidebyside import side_by_side
from adescent.workspec import SandboxSpec

__all__ = ["PREFETCH", "Plane", "PlaneOptions"]

logger = logging.getLogger("adescent")

PREFETCH = 32
"""Leases a worker holds while they are quick, so that it need not wait for the next one."""

MOST_SPARES = 2
"""Warm interpreters kept beyond those at work, where each serves one lease."""

SECONDS_TO_CLOSE = 15.0

COUNTERS = ("redispatched", "duplicates_dropped", "workers_started", "workers_lost", "workers_recycled")
_GAUGES = ("starting", "idle", "busy", "stopping", "queued", "in_flight")

Use = Literal["shared", "isolated", "scoring"]


@frozen
class PlaneOptions:
    """The parameters of `ProcessExecutor` that its pools are made from."""

    size: int
    in_flight: int
    max_tasks: int | None
    hang_timeout: float | None
    start_timeout: float

    def limits(self, use: Use) -> PoolLimits:
        """What the rules of a pool for this use are."""
        shared = PoolLimits(
            size=self.size,
            in_flight=self.in_flight,
            prefetch=max(PREFETCH, self.in_flight),
            max_tasks=self.max_tasks,
            hang_timeout=self.hang_timeout,
            start_timeout=self.start_timeout,
        )
        if use != "isolated":
            return shared
        return evolve(shared, spares=min(self.size, MOST_SPARES), in_flight=1, prefetch=1, max_tasks=1)


class Plane:
    """Opened by the first to enter and closed by the last to leave.

    ``shared`` interpreters run and score, lease after lease. Where candidate code is isolated, an interpreter runs one
    lease and no more, and what it says is scored in interpreters that never ran any.
    """

    def __init__(self, options: PlaneOptions, provider: SandboxProvider) -> None:
        self._options = options
        self._provider = provider
        self._launcher = Launcher(provider)
        self._hosting = Hosting("the process executor")
        self._pools: dict[Use, Pool] = {}
        self._past: list[PoolStatistics] = []
        self._rooms: dict[tuple[object, ...], Room] = {}
        self._room_of: dict[SandboxSpec, Room] = {}
        self._jobs: dict[tuple[object, ...], Job] = {}
        self._keeps_workspaces = False
        self._reaped = False

    async def enter(self, sandbox: SandboxSpec) -> None:
        """Come in. Raises SandboxUnavailable when ``sandbox`` is required and cannot be reached."""
        room = await self.room(sandbox)
        await self._hosting.enter()
        if not self._keeps_workspaces:  # for all openings: a service waits for the next one
            self._keeps_workspaces = True
            self._hosting.start(self._keep_workspaces, name="workspaces")
        if room.isolated:
            self.isolated(room)

    async def leave(self) -> None:
        """Go out, and as the last one wait until no worker is left."""
        await self._hosting.leave(self._close, SECONDS_TO_CLOSE)

    def check_open(self) -> None:
        """Raise ContractError when nobody has entered, and WrongThread outside the thread of the event loop."""
        self._hosting.check_open()

    def pool(self, use: Use) -> Pool:
        """The interpreters for a use. Raises ContractError when nobody is in any more."""
        pool = self._pools.get(use)
        if pool is None:
            self._hosting.check_open()
            pool = self._pools[use] = Pool(self._options.limits(use), self._hosting, self._launcher, use)
        return pool

    def isolated(self, room: Room) -> Pool:
        """The interpreters that run one lease each; spare ones are kept for the room that is asked for first."""
        is_first = "isolated" not in self._pools
        pool = self.pool("isolated")
        if is_first:
            pool.warm(room)
        return pool

    def known_room(self, sandbox: SandboxSpec) -> Room | None:
        """What `room` has returned before, without waiting."""
        return self._room_of.get(sandbox)

    async def room(self, sandbox: SandboxSpec) -> Room:
        """Where rollouts in this sandbox run. Raises SandboxUnavailable."""
        if sandbox not in self._room_of:
            room = await in_own_thread(self._look_up, sandbox)
            if sandbox not in self._room_of and sandbox.level not in (room.level, "auto"):  # several may have asked
                words = "the sandbox level %r was asked for, and %r is what can be reached here"
                logger.warning(words, sandbox.level, room.level)
            self._room_of[sandbox] = room
        return self._room_of[sandbox]

    def _look_up(self, sandbox: SandboxSpec) -> Room:
        return self._room(reach(sandbox), sandbox)  # this may try out what works

    def scorers_room(self, room: Room) -> Room:
        """Where what came out of an isolated room is scored."""
        return self._room("limits", room.sandbox)

    def _room(self, level: Level, sandbox: SandboxSpec) -> Room:
        key = (level, sandbox.env, sandbox.memory_mb, sandbox.network)
        room = self._rooms.get(key)
        if room is None:
            # Two threads may have made one each: all are to get the same, or their workers would be told apart.
            room = self._rooms.setdefault(key, Room.at(level, sandbox))
        return room

    def job(
        self,
        run: Ref | None,
        reward: Ref | None,
        *,
        hide: tuple[str, ...] = (),
        allow: tuple[str, ...] = (),
        cpu_seconds: float | None = None,
    ) -> Job:
        """The numbered job for these actors; the same ones have the same number."""
        key = (run, reward, hide, allow, cpu_seconds)
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = Job(
                len(self._jobs) + 1,
                None if run is None else run.to_json(),
                None if reward is None else reward.to_json(),
                list(hide),
                list(allow),
                cpu_seconds,
            )
        return job

    def statistics(self) -> PoolStatistics:
        """Take stock of all pools together. Counters go on from one opening to the next."""
        present = [pool.statistics() for pool in self._pools.values()]
        total = dict.fromkeys(_GAUGES + COUNTERS, 0)
        for each in present:
            for name in _GAUGES:
                total[name] += getattr(each, name)
        for each in (*self._past, *present):
            for name in COUNTERS:
                total[name] += getattr(each, name)
        return PoolStatistics(size=self._options.size, **total)

    async def _keep_workspaces(self) -> None:
        if not self._reaped:
            await self._look_after(self._provider.reap)
            self._reaped = True
        while True:
            await sleep(self._provider.ttl / 3)
            await self._look_after(self._provider.renew)

    async def _look_after(self, what: Callable[[], Awaitable[object]]) -> None:
        """Do it; should the disk refuse, a worker that gets no place says so to whoever has a use for one."""
        try:
            await what()
        except (OSError, AdescentError):
            logger.warning("the workspaces of workers cannot be looked after", exc_info=True)

    async def _close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        # Rooms know the values of variables, which may be others at the next opening.
        self._rooms, self._room_of = {}, {}
        try:
            await side_by_side(*[pool.close for pool in pools], name="closing")
        finally:
            self._past += [pool.statistics() for pool in pools]

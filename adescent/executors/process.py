"""Rollouts in worker processes that may die: what users see of the pools."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from attrs import define

from adescent.canonical import check_json
from adescent.checks import is_number, need_whole, shown
from adescent.errors import AdescentError, ContractError, OptionError
from adescent.executors.arrivals import ResultStream
from adescent.executors.driving import map_rollouts
from adescent.executors.launching import INSIDE, Room
from adescent.executors.outcomes import outcome, refused
from adescent.executors.plane import COUNTERS, PREFETCH, Plane, PlaneOptions
from adescent.executors.pool import Order, Pool
from adescent.executors.pool_rules import PoolStatistics
from adescent.executors.wire import Job
from adescent.policies import Actors, AdmissionControl, SandboxProvider
from adescent.policies.conformance import need_fit, need_record
from adescent.refs import Ref, Resolver
from adescent.sandbox import Workspaces
from adescent.tasks import Task
from adescent.workspec import Result, RolloutSpec, SandboxSpec

__all__ = ["ProcessExecutor"]


class ProcessExecutor:
    """Runs rollouts in ``n`` supervised interpreters that may crash, hang or be killed without hurting the run.

    An async context manager, entered and left as often as one likes; `attach_actors` gives a view with actors of its
    own over the same interpreters, so that several runs can share one executor. Actors are given by `Ref`, in
    `attach_actors` or in each spec, and resolved in the workers; ``allow`` is what the Refs of specs may name beyond
    this package.

    What crosses is copied: outputs are JSON and come back with lists for tuples, an output that is none fails its
    rollout, what an actor changes in its task stays in the worker, and a failure tells of its exception in words alone.
    Memory that ran out where other rollouts may have used it up is tried once more, in a worker of its own.

    ``sandbox`` confines specs that bring none of their own. ``hang_timeout`` is the seconds after which a worker that
    has work and says nothing is taken for wedged (None: never), ``start_timeout`` what a worker may take to start.
    ``in_flight_per_worker`` async rollouts share a worker; plain functions run in it one at a time. A worker is
    replaced after ``max_tasks_per_worker`` rollouts (None: never). ``provider`` gives workers their directories,
    ``admission`` is a ceiling on rollouts at once that is shared with others.

    Raises OptionError for a value out of range or of another kind, ContractError inside a worker: pools do not nest.
    """

    takes_callables = False
    confines = True

    def __init__(
        self,
        n: int,
        *,
        sandbox: SandboxSpec | None = None,
        actors: Actors | None = None,
        allow: Iterable[str] = (),
        hang_timeout: float | None = 600.0,
        start_timeout: float = 30.0,
        in_flight_per_worker: int = 1,
        max_tasks_per_worker: int | None = None,
        provider: SandboxProvider | None = None,
        admission: AdmissionControl | None = None,
    ) -> None:
        if INSIDE in os.environ:
            raise ContractError("a worker process cannot have workers of its own: build the executor in the parent.")
        need_whole("n", n, 1, OptionError, of="ProcessExecutor")
        need_whole("in_flight_per_worker", in_flight_per_worker, 1, OptionError, of="ProcessExecutor")
        if max_tasks_per_worker is not None:
            need_whole("max_tasks_per_worker", max_tasks_per_worker, 1, OptionError, of="ProcessExecutor")
        _need_seconds("start_timeout", start_timeout)
        if hang_timeout is not None:
            _need_seconds("hang_timeout", hang_timeout)
        need_record("ProcessExecutor: sandbox", sandbox, SandboxSpec)
        need_fit("ProcessExecutor: provider", provider, SandboxProvider)
        need_fit("ProcessExecutor: admission", admission, AdmissionControl)
        self.sandbox = SandboxSpec() if sandbox is None else sandbox
        self.slots: int | None = n * in_flight_per_worker
        self.queue_depth = 2 * n * max(PREFETCH, in_flight_per_worker)
        options = PlaneOptions(n, in_flight_per_worker, max_tasks_per_worker, hang_timeout, start_timeout)
        self._plane = Plane(options, Workspaces() if provider is None else provider)
        self._admission = admission
        self._resolver = Resolver(allow)
        self._actors = Actors(None, None)
        if actors is not None:
            self._resolver, self._actors = self._checked(actors), actors

    async def __aenter__(self) -> Self:
        await self._plane.enter(self.sandbox)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._plane.leave()

    def attach_actors(self, actors: Actors) -> ProcessExecutor:
        """A view of this executor for one run, with that run's actors.

        Raises ContractError when one is no Ref, and RefError when one may not be resolved; nothing is imported here.
        """
        resolver = self._checked(actors)
        view = copy.copy(self)
        view._resolver, view._actors = resolver, actors  # noqa: SLF001 - a copy of this one
        return view

    def _checked(self, actors: Actors) -> Resolver:
        """The resolver of the actors, which may all be named to it."""
        need_record("actors", actors, Actors)
        resolver = actors.resolver or self._resolver
        for role in ("run", "reward"):
            actor = getattr(actors, role)
            if not isinstance(actor, Ref):
                raise ContractError(
                    f"ProcessExecutor takes actors as Refs and {role} is a {type(actor).__name__}: write "
                    "Ref('package.module:function', call=False), or use an InlineExecutor or ThreadExecutor."
                )
            resolver.check(actor)
        return resolver

    def map_rollouts(
        self, specs: Iterable[RolloutSpec], *, concurrency: int | None = None
    ) -> AbstractAsyncContextManager[ResultStream]:
        """As `map_rollouts` of this room: results in the order in which they complete, read in the block."""
        return map_rollouts(self, specs, concurrency=concurrency)

    def statistics(self) -> PoolStatistics:
        """What the workers are doing, and what has happened to them since the executor was made."""
        return self._plane.statistics()

    def counters(self) -> Mapping[str, int]:
        """The counters among the `statistics`: ``redispatched``, ``duplicates_dropped``, ``workers_lost``, …."""
        statistics = self.statistics()
        return {name: getattr(statistics, name) for name in COUNTERS}

    async def rollout(self, spec: RolloutSpec) -> Result:
        """Run and score; whatever goes wrong is in the result. Raises nothing but the caller's own cancellation."""
        sandbox = spec.sandbox or self.sandbox
        try:
            self._plane.check_open()
            room = self._plane.known_room(sandbox) or await self._plane.room(sandbox)
            run, reward = self._ref("run", spec.run), self._ref("reward", spec.reward)
            _check_sendable(spec)
            if self._admission is None:
                return await self._run(spec, sandbox, room, run, reward)
            async with self._admission.admitted():
                return await self._run(spec, sandbox, room, run, reward)
        except (AdescentError, OSError) as error:  # before it begins: what goes wrong in a worker is in its result
            return refused(spec, error)

    def begin_rollout(self, spec: RolloutSpec, ended: Callable[[], None]) -> _Begun | None:
        """Have it under way without a task that waits for it; ``ended`` is called when it has ended.

        None where `rollout` is needed: there is something to await before it begins, or to do afterwards, or to refuse.
        """
        sandbox = spec.sandbox or self.sandbox
        room = self._plane.known_room(sandbox)
        if room is None or room.isolated or self._admission is not None:
            return None
        try:
            self._plane.check_open()
            run, reward = self._ref("run", spec.run), self._ref("reward", spec.reward)
            _check_sendable(spec)
            pool = self._plane.pool("shared")
        except AdescentError:
            return None
        order = self._order(spec, sandbox, room, self._job(run, reward, sandbox))
        pool.submit(order, ended)
        return _Begun(spec, order, room, pool)

    def _ref(self, role: str, of_spec: Ref | None) -> Ref:
        if of_spec is not None:
            self._resolver.check(of_spec)
            return of_spec
        attached: Ref | None = getattr(self._actors, role)
        if attached is None:
            raise ContractError(
                f"there is no {role}: put a Ref in the spec, or use attach_actors(Actors(run, reward))."
            )
        return attached

    async def _run(self, spec: RolloutSpec, sandbox: SandboxSpec, room: Room, run: Ref, reward: Ref) -> Result:
        if room.isolated:
            return await self._run_apart(spec, sandbox, room, run, reward)
        order = self._order(spec, sandbox, room, self._job(run, reward, sandbox))
        await self._plane.pool("shared").fulfil(order)
        return outcome(spec, order, room)

    async def _run_apart(self, spec: RolloutSpec, sandbox: SandboxSpec, room: Room, run: Ref, reward: Ref) -> Result:
        """Run where candidate code is isolated, and score where none has ever been."""
        order = self._order(spec, sandbox, room, self._job(run, None, sandbox))
        order.meta = dict(spec.task.without(self._actors.hide).meta)
        await self._plane.isolated(room).fulfil(order)
        ran = outcome(spec, order, room)
        if ran.error is not None:
            return ran
        apart = self._plane.scorers_room(room)
        scoring = self._order(spec, sandbox, apart, self._job(None, reward, sandbox))
        scoring.text, scoring.output, scoring.checkpoint = "", ran.output, None
        await self._plane.pool("scoring").fulfil(scoring)
        return outcome(spec, scoring, apart, after=ran)

    def _job(self, run: Ref | None, reward: Ref | None, sandbox: SandboxSpec) -> Job:
        return self._plane.job(
            run, reward, hide=self._actors.hide, allow=self._resolver.allow, cpu_seconds=sandbox.cpu_seconds
        )

    def _order(self, spec: RolloutSpec, sandbox: SandboxSpec, room: Room, job: Job) -> Order:
        task = spec.task
        return Order(
            fingerprint=room,
            timeout=sandbox.timeout_s,
            job=job,
            text=spec.rendered,
            task_id=task.id,
            prompt=task.prompt,
            meta=dict(task.meta),
            checkpoint=spec.resume_state,
        )


@define(eq=False)
class _Begun:
    """A rollout that no task waits for."""

    spec: RolloutSpec
    order: Order
    room: Room
    pool: Pool

    def result(self) -> Result:
        """What came of it."""
        return outcome(self.spec, self.order, self.room)

    def withdraw(self) -> None:
        """It is not wanted any more."""
        self.pool.withdraw(self.order)


def _check_sendable(spec: RolloutSpec) -> None:
    """Raise ContractError naming what of a spec cannot be sent to a worker, which would take it for nonsense."""
    task = spec.task
    _need_text(spec.rendered, "rendered")  # whether it can be sent is seen once, when its digest is made
    for value, name in ((task.id, "id"), (task.prompt, "prompt")):
        if type(value) is not str or not value.isascii():
            _need_text(value, name, task)
            check_json(value, f"task {task.id!a}: {name}")
    if task.meta:
        if not isinstance(task.meta, (dict, Mapping)):
            raise ContractError(f"task {task.id!a}: meta is a {type(task.meta).__name__}: it maps keys to JSON.")
        check_json(task.meta, f"task {task.id!a}: meta")
    if spec.resume_state is not None:
        check_json(spec.resume_state, "resume_state")


def _need_text(value: object, name: str, task: Task | None = None) -> None:
    if not isinstance(value, str):
        where = name if task is None else f"task {task.id!a}: {name}"
        raise ContractError(f"{where} is a {type(value).__name__}: what goes to a worker process there is text.")


def _need_seconds(name: str, value: object) -> None:
    if not is_number(value) or not value > 0:  # false for NaN too
        raise OptionError(f"ProcessExecutor: {name}={shown(value)} must be a number of seconds above 0.")

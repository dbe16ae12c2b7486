"""Rollouts in this process: bound actors, called one after the other, and a result whatever happens."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self

from adescent.errors import ContractError
from adescent.executors.actors import Bound, bind
from adescent.executors.context import LastCheckpoint, RolloutContext
from adescent.executors.results import contained, failure_from, traceback_of
from adescent.executors.signatures import REWARD, RUN
from adescent.executors.threads import ThreadPool
from adescent.policies import Actors
from adescent.policies.conformance import need_record
from adescent.refs import Ref, Resolver
from adescent.tasks import Task, as_score
from adescent.workspec import FailureKind, Result, RolloutSpec

__all__ = ["LocalExecutor"]

Role = Literal["run", "reward"]

MAX_REMEMBERED_TASKS = 10_000


class LocalExecutor:
    """Runs rollouts in this process: on the event loop, and in the threads of a pool where an actor may block.

    An async context manager that opens the pool. `attach_actors` gives a view with actors of its own over the same
    threads, so that several runs can share one executor; a view can be entered like the executor itself.
    """

    takes_callables = True

    def __init__(self, threads: ThreadPool, slots: int | None, actors: Actors | None = None) -> None:
        self.threads = threads
        self.slots = slots
        need_record("actors", actors, Actors)
        self._actors = Actors(None, None) if actors is None else actors
        self._resolver = self._actors.resolver or Resolver()
        self._run = None if actors is None else self._bound("run", actors.run)
        self._reward = None if actors is None else self._bound("reward", actors.reward)
        self._of_refs: dict[tuple[Role, Ref], Bound] = {}
        self._shown: dict[int, tuple[Task, Task]] = {}

    async def __aenter__(self) -> Self:
        await self.threads.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.threads.__aexit__(kind, error, trace)

    def attach_actors(self, actors: Actors) -> LocalExecutor:
        """A view of this executor for one run, with that run's actors.

        Raises RefError when one does not resolve, and ContractError when one is no callable or takes other arguments
        than ``run(rendered, task[, ctx])`` and ``reward(task, output)``.
        """
        return LocalExecutor(self.threads, self.slots, actors)

    def counters(self) -> Mapping[str, int]:
        """What happened since the executor was made: ``abandoned_threads`` were left in a call that did not end."""
        return {"abandoned_threads": self.threads.statistics().abandoned}

    async def rollout(self, spec: RolloutSpec) -> Result:
        """Run and score; whatever goes wrong is in the result. Raises nothing but the caller's own cancellation.

        What ``ctx`` kept is in the result too, however the attempt ended: its ``checkpoint`` is the ``resume_state`` to
        go on from.
        """
        started = perf_counter()
        kind: FailureKind = "caller"
        stage: Literal["run", "reward", "worker"] = "worker"
        output = None
        last = LastCheckpoint(spec.resume_state)
        try:
            run, reward = await self._actors_of(spec)
            context = RolloutContext(spec.resume_state, last.keep)
            kind, stage = "model", "run"
            output = await run(spec.rendered, self._shown_to_run(spec.task), context)
            kind, stage = "caller", "reward"
            score = as_score(await reward(spec.task, output))
        except Exception as error:  # noqa: BLE001 - one bad rollout is evidence and leaves its neighbours alone
            return Result(
                spec.lease_id,
                spec.task.id,
                output,
                error=failure_from(error, kind, stage),
                traceback=traceback_of(error),
                seconds=perf_counter() - started,
                attempt=spec.attempt,
                checkpoint=last.state,
            )
        return Result(
            spec.lease_id,
            spec.task.id,
            output,
            score,
            seconds=perf_counter() - started,
            attempt=spec.attempt,
            checkpoint=last.state,
        )

    async def _actors_of(self, spec: RolloutSpec) -> tuple[Bound, Bound]:
        """What the spec names, else what is attached. Raises AdescentError when the rollout cannot be run here."""
        self.threads.check_open()
        if spec.sandbox is not None and spec.sandbox.require:
            raise ContractError("this executor confines nothing: run a spec that requires a sandbox in processes.")
        run = self._run if spec.run is None else await self._of_ref("run", spec.run)
        reward = self._reward if spec.reward is None else await self._of_ref("reward", spec.reward)
        if run is None or reward is None:
            missing = "run" if run is None else "reward"
            raise ContractError(
                f"there is no {missing}: put a Ref in the spec, or use attach_actors(Actors(run, reward))."
            )
        return run, reward

    async def _of_ref(self, role: Role, ref: Ref) -> Bound:
        bound = self._of_refs.get((role, ref))
        if bound is None:
            resolved = await self.threads.run(contained, self._resolver.resolve, ref)  # it may import a great deal
            bound = self._of_refs[role, ref] = self._bound(role, resolved)
        return bound

    def _bound(self, role: Role, actor: Any) -> Bound:
        if role == "reward":
            return bind(actor, name=REWARD, arity=(2,), threads=self.threads, resolver=self._resolver)
        return bind(actor, name=RUN, arity=(2, 3), threads=self.threads, resolver=self._resolver, offered="ctx")

    def _shown_to_run(self, task: Task) -> Task:
        """The task without what is hidden; made once, so that its digest is too."""
        known = self._shown.get(id(task))
        if known is None:
            if len(self._shown) >= MAX_REMEMBERED_TASKS:
                self._shown.clear()
            known = self._shown[id(task)] = (task, task.without(self._actors.hide))  # holding it keeps its id its own
        return known[1]

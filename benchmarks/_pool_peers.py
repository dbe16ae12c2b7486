"""Process pools of others behind one face: two spawned workers, many tasks in, answers as they come.

A contender is an async context manager with ``batch(tasks, note)``: it runs all tasks and calls ``note(index, answer)``
with a number, or with the exception that came instead. Those that block do so; nothing else runs in their process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from _pool_tasks import Task, do

WORKERS = 2
Note = Callable[[int, "int | BaseException"], None]


class Blocking:
    """What those share that know no event loop: an executor in ``pool``."""

    pool: Any = None

    def __init__(self, limit: float | None = None) -> None:
        self.limit = limit
        """Seconds after which a task counts as wedged, for those that can tell."""

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.pool.shutdown()

    def submit(self, task: Task) -> Any:
        """A future of the task's answer."""
        return self.pool.submit(do, task)

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        from concurrent.futures import as_completed

        futures = {}
        for index, task in enumerate(tasks):
            try:
                futures[self.submit(task)] = index
            except Exception as error:  # noqa: BLE001 - a broken pool refuses: that is its answer
                note(index, error)
        for future in as_completed(futures):
            note(futures[future], future.exception() or future.result())


class Futures(Blocking):
    """The standard library's."""

    def open(self) -> None:
        import multiprocessing  # noqa: TID251 - measured, not used
        from concurrent.futures import ProcessPoolExecutor  # noqa: TID251 - measured, not used

        self.pool = ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn"))


class Loky(Blocking):
    """The pool of joblib, in its own start method."""

    def open(self) -> None:
        from loky import ProcessPoolExecutor  # type: ignore[import-not-found]

        self.pool = ProcessPoolExecutor(WORKERS)


class Pebble(Blocking):
    """A pool with a time limit for each task."""

    def open(self) -> None:
        import multiprocessing  # noqa: TID251 - measured, not used

        from pebble import ProcessPool  # type: ignore[import-not-found]

        self.pool = ProcessPool(WORKERS, context=multiprocessing.get_context("spawn"))

    def close(self) -> None:
        self.pool.close()
        self.pool.join()

    def submit(self, task: Task) -> Any:
        return self.pool.schedule(do, args=(task,), timeout=self.limit)


class Dask(Blocking):
    """A cluster of two workers on this machine, watched over by its nannies."""

    def open(self) -> None:
        import logging

        from distributed import Client, LocalCluster  # type: ignore[import-not-found]

        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self.cluster = LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
        self.pool = Client(self.cluster)

    def close(self) -> None:
        self.pool.close()
        self.cluster.close()

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        from distributed import as_completed

        futures = [self.pool.submit(do, task, pure=False) for task in tasks]
        places = {future.key: index for index, future in enumerate(futures)}
        for future in as_completed(futures):
            note(places[future.key], future.exception() or future.result())


class Agentdescent(Blocking):
    """The process executor of agentdescent."""

    def open(self) -> None:
        from agentdescent import ProcessExecutor  # type: ignore[import-not-found]

        limits = {} if self.limit is None else {"hang_timeout": self.limit}
        self.pool = ProcessExecutor(WORKERS, allowed_prefixes=("agentdescent.", "_pool_tasks"), **limits)

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        from agentdescent import Ref, RolloutSpec
        from agentdescent import Task as Row

        run, reward = Ref("_pool_tasks:make_run"), Ref("_pool_tasks:make_reward")
        specs = [
            RolloutSpec(artifact, Row(str(index), payload, meta={"kind": kind, "argument": argument}), run, reward)
            for index, (kind, argument, artifact, payload) in enumerate(tasks)
        ]
        for result in self.pool.map_rollouts(specs):
            answer = RuntimeError(result.error) if result.error else int(result.output)
            note(int(result.task_id), answer)


class OnLoop:
    """What those share that await one call a task: as many loops pull tasks as there are workers."""

    def __init__(self, limit: float | None = None) -> None:
        self.limit = limit
        self.limiter: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def call(self, task: Task) -> int:
        raise NotImplementedError

    async def batch(self, tasks: Sequence[Task], note: Note) -> None:
        import anyio

        numbered = enumerate(tasks)
        async with anyio.create_task_group() as pulling:
            for _ in range(WORKERS):
                pulling.start_soon(self._pull, numbered, note)

    async def _pull(self, numbered: Iterator[tuple[int, Task]], note: Note) -> None:
        for index, task in numbered:
            try:
                note(index, await self._bounded(task))
            except Exception as error:  # noqa: BLE001 - a lost task is what is measured
                note(index, error)

    async def _bounded(self, task: Task) -> int:
        import anyio

        if self.limit is None:
            return await self.call(task)
        with anyio.fail_after(self.limit):
            return await self.call(task)


class AnyioToProcess(OnLoop):
    """The process workers of anyio."""

    async def call(self, task: Task) -> int:
        import anyio
        from anyio import to_process  # noqa: TID251 - measured, not used

        self.limiter = self.limiter or anyio.CapacityLimiter(WORKERS)
        stops = self.limit is not None
        return await to_process.run_sync(do, task, cancellable=stops, limiter=self.limiter)


class TrioParallel(OnLoop):
    """Process workers for trio."""

    async def call(self, task: Task) -> int:
        import trio
        import trio_parallel  # type: ignore[import-not-found]

        self.limiter = self.limiter or trio.CapacityLimiter(WORKERS)
        stops = self.limit is not None
        answer: int = await trio_parallel.run_sync(do, task, kill_on_cancel=stops, limiter=self.limiter)
        return answer


Kind = type[Blocking] | type[OnLoop]

PEERS: dict[str, tuple[Kind, tuple[str, ...], str | None]] = {
    "concurrent.futures": (Futures, ("multiprocessing", "concurrent.futures.process"), None),
    "loky": (Loky, ("loky",), None),
    "pebble": (Pebble, ("multiprocessing", "pebble"), None),
    "trio-parallel": (TrioParallel, ("trio_parallel",), "trio"),
    "anyio.to_process": (AnyioToProcess, ("anyio.to_process",), "asyncio"),
    "dask": (Dask, ("distributed",), None),
    "agentdescent": (Agentdescent, ("agentdescent",), None),
}
"""By name: the class, the modules it needs, and the event loop it is awaited on, if any."""

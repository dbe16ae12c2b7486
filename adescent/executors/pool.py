"""The tasks that carry out what the rules of a pool decide: they start, feed, hear and end worker processes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from anyio import move_on_after
from attrs import define, field

from adescent.canonical import digest_of_text
from adescent.errors import AdescentError, WireError
from adescent.executors.framing import frame
from adescent.executors.hosting import Hosting
from adescent.executors.launching import Launched, Launcher, Room
from adescent.executors.pool_rules import (
    GiveUp,
    Kill,
    Lease,
    Loss,
    PoolLimits,
    PoolRules,
    PoolStatistics,
    Retire,
    Send,
    Start,
    Withdraw,
)
from adescent.executors.results import failure_from
from adescent.executors.wakeup import one_shots
from adescent.executors.wire import (
    VERSION,
    ArtifactText,
    Bye,
    Cancel,
    Checkpoint,
    Done,
    Failed,
    Job,
    Log,
    Message,
    Ready,
    Run,
    decode,
    encode,
)

__all__ = ["Order", "Pool"]

ARTIFACTS_KEPT = 8
"""Rendered artifacts a worker remembers: the head, its candidates, and a few that workers lag behind with."""

LOG_KEPT = 32_768
"""Characters kept of what one rollout prints, over all its attempts; workers send less."""

OUT_OF_MEMORY = "ran out of memory"

HELD_UP_SECONDS = 0.02
"""By how much a deadline may be missed on a loop on which everybody has had a turn."""

LAUNCH_SECONDS = 30.0
CLEAR_SECONDS = 30.0
"""How long the disk may take over a workspace before the pool goes on without it."""


@define(eq=False)
class Order(Lease):
    """A lease with what has to be sent for it and what has come of it so far.

    It ends with an ``answer``, or with a ``loss``: why there is none, in the rules' word, and in ``detail``.
    """

    job: Job = field(kw_only=True)
    text: str = ""
    task_id: str = ""
    prompt: str = ""
    meta: dict[str, Any] = field(factory=dict)
    output: Any = None
    checkpoint: Any = None
    log: str = ""
    answer: Done | Failed | None = None
    loss: Loss | None = None
    detail: str = ""
    ended: Callable[[], None] = field(init=False)
    """Called by whoever ends it."""

    def settle(self, answer: Done | Failed) -> None:
        """It is done, or has failed for good."""
        self.answer = answer
        self.ended()

    def lose(self, why: Loss, detail: str) -> None:
        """Nobody will do it."""
        self.loss = why
        self.detail = detail
        self.ended()

    def add_to_log(self, text: str) -> None:
        """Keep what a worker said while it did it, as far as there is room."""
        self.log += text[: max(0, LOG_KEPT - len(self.log))]


@define(eq=False)
class _Worker:
    """What is known of a worker: where it lives, what it remembers, what it is at, how it ended."""

    number: int
    room: Room
    launched: Launched | None = None
    artifacts: OrderedDict[str, str] = field(factory=OrderedDict)
    """Text → digest of those it remembers, the longest unused first."""
    jobs: set[int] = field(factory=set)
    flight: dict[int, Order] = field(factory=dict)
    sent: int = 0
    unsent: list[bytes] = field(factory=list)
    ready: bool = False
    killed: str = ""
    goodbye: str = ""
    gone: bool = False

    def remember(self, job: Job, text: str, digest: str) -> None:
        """It has been told of these, and to forget what was unused for longest."""
        self.jobs.add(job.number)
        if text not in self.artifacts and len(self.artifacts) >= ARTIFACTS_KEPT:
            self.artifacts.popitem(last=False)
        self.artifacts[text] = digest
        self.artifacts.move_to_end(text)


class Pool:
    """Interpreters of one kind of use, run by the rules, with their tasks hosted by ``hosting``."""

    def __init__(self, limits: PoolLimits, hosting: Hosting, launcher: Launcher, name: str) -> None:
        self._rules = PoolRules(limits)
        self._hosting = hosting
        self._launcher = launcher
        self._name = name
        self._workers: dict[int, _Worker] = {}
        self._touched: set[_Worker] = set()
        self._one_shot = one_shots()
        self._empty = anyio.Event()
        self._alarm = anyio.Event()
        self._alarm_at = float("inf")
        self._closed = False
        self._trouble = ""
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Start: self._start,
            Send: self._send,
            Withdraw: self._withdraw,
            Retire: self._retire,
            Kill: self._kill,
            GiveUp: self._give_up,
        }
        hosting.start(self._keep_time, name=f"{name} · clock")

    async def fulfil(self, order: Order) -> None:
        """Have a worker do it; afterwards it holds an ``answer`` or a ``loss``. Cancelling withdraws it."""
        settled = self._one_shot()
        self.submit(order, settled.set)
        try:
            await settled.wait()
        except BaseException:
            self.withdraw(order)
            raise

    def submit(self, order: Order, ended: Callable[[], None]) -> None:
        """As `fulfil`, with nobody waiting: ``ended`` is called when it holds an ``answer`` or a ``loss``."""
        order.ended = ended
        self._rules.submit(order, time.monotonic())
        self._act()

    def withdraw(self, order: Order) -> None:
        """It is not wanted any more. Once it has ended, this changes nothing."""
        self._rules.cancel(order, time.monotonic())
        self._act()

    def warm(self, room: Room) -> None:
        """Have spare workers of this room ready."""
        self._rules.open(room, time.monotonic())
        self._act()

    async def close(self) -> None:
        """End all workers and wait until they are gone. Orders under way are given up."""
        self._closed = True
        self._rules.close(time.monotonic())
        self._act()
        self._alarm.set()
        if self._workers:
            self._empty = anyio.Event()
            await self._empty.wait()

    def statistics(self) -> PoolStatistics:
        """Take stock."""
        return self._rules.statistics()

    # What the rules want ----------------------------------------------------------------------------------------------

    def _act(self) -> None:
        while instructions := self._rules.take():
            for each in instructions:
                self._carry_out[type(each)](each)
        if self._touched:
            self._send_off()
        if self._rules.next_deadline() < self._alarm_at:
            self._alarm.set()

    def _send_off(self) -> None:
        """Send each worker what there is for it, all at once."""
        touched, self._touched = self._touched, set()
        for worker in touched:
            if worker.launched is not None:
                messages, worker.unsent = worker.unsent, []
                worker.launched.interpreter.send(*messages)

    def _start(self, start: Start) -> None:
        assert isinstance(start.fingerprint, Room)  # the rules take it from the leases
        worker = self._workers[start.worker] = _Worker(start.worker, start.fingerprint)
        self._hosting.start(partial(self._live, worker), name=f"{self._name} · worker {start.worker}")

    def _send(self, send: Send) -> None:
        worker, order = self._workers[send.worker], _order(send.lease)
        assert worker.launched is not None
        if not worker.flight:
            worker.launched.interpreter.forget_errors()
        try:
            worker.unsent += self._messages(worker, order, send.number)
        except AdescentError as error:
            self._refuse(worker, send.number, error)
            return
        worker.flight[send.number] = order
        worker.sent += 1
        self._touched.add(worker)

    def _messages(self, worker: _Worker, order: Order, number: int) -> list[bytes]:
        """The frames that make a worker do it. Raises AdescentError when something in them cannot be sent."""
        job = order.job
        digest = worker.artifacts.get(order.text)
        is_known = digest is not None
        digest = digest or digest_of_text(order.text)
        run = Run(number, job.number, digest, order.task_id, order.prompt, order.meta, order.checkpoint, order.output)
        frames = [*frame(encode(run))]
        if not is_known:
            forget = [next(iter(worker.artifacts.values()))] if len(worker.artifacts) >= ARTIFACTS_KEPT else []
            frames[:0] = frame(encode(ArtifactText(digest, order.text, forget)))
        if job.number not in worker.jobs:
            frames[:0] = frame(encode(job))
        # Only now: had one of them been refused, the worker would not know what it is taken to know.
        worker.remember(job, order.text, digest)
        return frames

    def _refuse(self, worker: _Worker, number: int, error: AdescentError) -> None:
        """Answer in the worker's place what cannot be sent to it."""
        lease = self._rules.answered(worker.number, number, 0.0, time.monotonic())
        if lease is not None:
            failure = failure_from(error, "caller", "worker")
            _order(lease).settle(Failed(number, 0.0, "caller", "worker", failure.type, failure.message))

    def _withdraw(self, withdraw: Withdraw) -> None:
        worker = self._workers[withdraw.worker]
        worker.flight.pop(withdraw.number, None)
        worker.unsent += frame(encode(Cancel(withdraw.number)))
        self._touched.add(worker)

    def _retire(self, retire: Retire) -> None:
        worker = self._workers[retire.worker]
        if worker.launched is None:
            worker.killed = worker.killed or "not needed any more"
        elif worker.room.isolated:  # what it ran is not trusted, so it gets no time to run on
            worker.launched.interpreter.kill()
        else:
            worker.launched.interpreter.ask_to_end()

    def _kill(self, kill: Kill) -> None:
        worker = self._workers[kill.worker]
        worker.killed = kill.reason
        if worker.launched is not None:
            worker.launched.interpreter.kill()

    def _give_up(self, given_up: GiveUp) -> None:
        _order(given_up.lease).lose(given_up.why, self._trouble if given_up.why == "not ready" else "")

    async def _keep_time(self) -> None:
        """Tell the rules when a deadline has passed."""
        while not self._closed or self._workers:
            self._alarm = anyio.Event()
            self._alarm_at = self._rules.next_deadline()
            with move_on_after(self._alarm_at - time.monotonic()):
                await self._alarm.wait()
                continue
            if time.monotonic() - self._alarm_at > HELD_UP_SECONDS:
                self._catch_up()
            self._rules.expire(time.monotonic())
            self._act()

    def _catch_up(self) -> None:
        """Hear what was said before anybody is late: the loop was held up, by whatever else runs on it."""
        for worker in list(self._workers.values()):
            if worker.launched is None or worker.gone:
                continue
            if nonsense := worker.launched.interpreter.catch_up(partial(self._hear, worker)):
                self._broke(worker, nonsense)

    # A worker's life --------------------------------------------------------------------------------------------------

    async def _live(self, worker: _Worker) -> None:
        if worker.launched is None and not await self._launched(worker):
            return
        assert worker.launched is not None
        interpreter = worker.launched.interpreter
        await interpreter.attend(partial(self._hear, worker), partial(self._broke, worker))
        if not worker.gone:
            reason = worker.killed or worker.goodbye or interpreter.exit_words
            limited = any(order.job.cpu_seconds is not None for order in worker.flight.values())
            self._bury(worker, reason, cpu=limited and interpreter.ran_out_of_cpu_time and not worker.killed)
        with move_on_after(CLEAR_SECONDS, shield=True):
            await self._launcher.clear(worker.launched)
        self._forget(worker)

    async def _launched(self, worker: _Worker) -> bool:
        """Start the process. Whether there is one now."""
        name = f"{self._name} worker {worker.number}"
        reason = f"could not be started within {LAUNCH_SECONDS:g} s"
        try:
            with move_on_after(LAUNCH_SECONDS, shield=True):
                worker.launched = await self._launcher.launch(worker.room, name, self._rules.limits.in_flight)
        except (OSError, AdescentError) as error:
            reason = f"could not be started: {error}"
        if worker.launched is None:
            self._bury(worker, reason)
            self._forget(worker)
            return False
        if worker.killed:
            worker.launched.interpreter.kill()
        return True

    def _bury(self, worker: _Worker, reason: str, *, cpu: bool = False) -> None:
        """Its process is gone: whoever may have been its death is to know what the worker said last."""
        worker.gone = True
        words = "" if worker.launched is None else worker.launched.interpreter.errors
        if not worker.ready:
            self._trouble = f"{reason}\n{words}".rstrip()
        deaths = {order: len(order.deaths) for order in worker.flight.values()}
        self._rules.exited(worker.number, reason, time.monotonic(), cpu=cpu)
        for order, before in deaths.items():
            if words and len(order.deaths) > before:  # one that had not begun has nothing to do with it
                order.add_to_log(f"[the worker's standard error]\n{words}")
        self._act()

    def _forget(self, worker: _Worker) -> None:
        del self._workers[worker.number]
        if not self._workers:
            self._empty.set()
            self._alarm.set()

    # What workers say -------------------------------------------------------------------------------------------------

    def _broke(self, worker: _Worker, reason: str) -> None:
        self._rules.broke(worker.number, reason, time.monotonic())
        self._act()

    def _hear(self, worker: _Worker, messages: list[memoryview]) -> None:
        """Raises WireError for what no worker says."""
        now = time.monotonic()
        try:
            for each in messages:
                self._take_in(worker, decode(each), now)
        finally:
            self._act()

    def _take_in(self, worker: _Worker, message: Message, now: float) -> None:
        match message:
            case Done() | Failed():
                if not self._blames_memory(worker, message, now):
                    self._take_answer(worker, message, now)
            case Log():
                if (order := worker.flight.get(message.lease)) is not None:
                    order.add_to_log(message.text)
                self._rules.heard(worker.number, now)
            case Checkpoint():
                if (order := worker.flight.get(message.lease)) is not None:
                    order.checkpoint = message.state
                self._rules.heard(worker.number, now)
            case Ready():
                if message.version != VERSION:
                    raise WireError(f"the worker speaks version {message.version} of the protocol, not {VERSION}.")
                worker.ready = True
                self._rules.ready(worker.number, now)
            case Bye():
                worker.goodbye = message.reason
            case _:
                raise WireError(f"a worker sent a {type(message).__name__}, which only its parent may.")

    def _take_answer(self, worker: _Worker, answer: Done | Failed, now: float) -> None:
        worker.flight.pop(answer.lease, None)
        lease = self._rules.answered(worker.number, answer.lease, answer.seconds, now)
        if lease is not None:
            _order(lease).settle(answer)

    def _blames_memory(self, worker: _Worker, answer: Done | Failed, now: float) -> bool:
        """Whether memory has run out where it may be another lease that has used it up; then it is no answer yet.

        The worker is done with in any case: whatever fills it would fail those that come next.
        """
        if not isinstance(answer, Failed) or not answer.type.endswith("MemoryError"):  # some libraries have their own
            return False
        self._rules.broke(worker.number, OUT_OF_MEMORY, now)
        order = worker.flight.get(answer.lease)
        return worker.sent > 1 and order is not None and OUT_OF_MEMORY not in order.deaths


def _order(lease: Lease) -> Order:
    assert isinstance(lease, Order)  # the rules only ever see the leases they are given
    return lease

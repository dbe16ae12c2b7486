"""What a worker knows, artifacts and jobs and the runs that wait, and what it does before and after each of them."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Any

from attrs import evolve

from adescent.errors import WireError
from adescent.executors.child.channel import Channel
from adescent.executors.child.log import RolloutLog, StandardStreams
from adescent.executors.child.offspring import Offspring
from adescent.executors.child.reserve import Reserve
from adescent.executors.child.rollouts import Actors, Rollout
from adescent.executors.child.workspace import WorkingDirectory
from adescent.executors.wire import ArtifactText, Cancel, Checkpoint, Done, Failed, Job, Log, Message, Run
from adescent.refs import Resolver
from adescent.sandbox.confinement import allow_cpu
from adescent.sandbox.redaction import Redactor

__all__ = ["Worker"]

TIMERS = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
MOST_THREADS = 128
"""Threads cannot be ended from outside: where rollouts leave more than these, the worker makes room for another."""


class Worker:
    """Serves one parent. Whoever drives it has it hear messages, begins what waits, and ends what has begun."""

    def __init__(
        self, channel: Channel, redactor: Redactor, directory: WorkingDirectory, offspring: Offspring | None
    ) -> None:
        self.channel = channel
        self._redactor = redactor
        self._directory = directory
        self._offspring = offspring
        self._streams = StandardStreams()
        self._reserve = Reserve()
        self._texts: dict[str, str] = {}
        self._jobs: dict[int, Job] = {}
        self._actors: dict[int, Actors] = {}
        self._resolvers: dict[tuple[str, ...], Resolver] = {}
        self._waiting: OrderedDict[int, tuple[Run, Job, str]] = OrderedDict()
        self._under_way: dict[int, Rollout] = {}
        self._umask = os.umask(0o077)
        os.umask(self._umask)  # there is no other way to learn it
        self._recursion_limit = sys.getrecursionlimit()
        self._cpu_limits = resource.getrlimit(resource.RLIMIT_CPU)

    def hear(self, messages: Iterable[Message]) -> None:
        """Take in what the parent said. Raises WireError for what a worker is not told."""
        for message in messages:
            match message:
                case Run():
                    self._waiting[message.lease] = message, *self._named_by(message)
                case Cancel():
                    self._cancel(message.lease)
                case ArtifactText():
                    for digest in message.forget:
                        self._texts.pop(digest, None)
                    self._texts[message.digest] = message.text
                case Job():
                    self._jobs[message.number] = message
                case _:
                    raise WireError(f"a worker is not told {type(message).__name__}.")

    @property
    def has_waiting(self) -> bool:
        """Whether there is a rollout to begin."""
        return bool(self._waiting)

    @property
    def under_way(self) -> int:
        """How many have begun and not ended."""
        return len(self._under_way)

    def begin(self) -> tuple[Rollout, Actors] | None:
        """Begin the rollout that has waited longest. None when it has ended with that: its actors cannot be had."""
        lease, (run, job, text) = self._waiting.popitem(last=False)
        log = RolloutLog(lambda piece: self.channel.send(Log(lease, piece)), self._redactor)
        keep = partial(self._keep, lease)
        rollout = Rollout(run, job, text, log, keep, self._reserve, self._redactor.text)
        self._under_way[lease] = rollout
        if job.cpu_seconds is not None or resource.getrlimit(resource.RLIMIT_CPU) != self._cpu_limits:
            allow_cpu(job.cpu_seconds)  # a rollout may have set a limit of its own
        actors = self._actors.get(job.number)
        if actors is None:
            found = self._made(rollout)
            if isinstance(found, Failed):
                self.end(rollout, found)
                return None
            actors = self._actors[job.number] = found
        return rollout, actors

    def _made(self, rollout: Rollout) -> Actors | Failed:
        """Its job's actors. Processes that they started when they were made stay, as they do; so does a limit."""
        before = self._offspring.present() if self._offspring else set()
        limit = sys.getrecursionlimit()
        actors = rollout.actors(self._resolver(rollout.job))
        if sys.getrecursionlimit() != limit:
            self._recursion_limit = sys.getrecursionlimit()
        if self._offspring:
            self._offspring.keep(self._offspring.present() - before)
        return actors

    def end(self, rollout: Rollout, answer: Done | Failed) -> None:
        """Leave the process to the next rollout as it was, and send what this one came to.

        In that order, since the parent counts the seconds of the next one from the answer on. It is sent whatever
        happens before. Raises OSError when directory, memory or threads are not to be had as they were, or the parent
        is gone.
        """
        self.channel.original.end_copy()  # before it clears up what is not its own
        alone = len(self._under_way) == 1
        if alone:
            sys.setrecursionlimit(self._recursion_limit)  # what this rollout has set may be too low for the rest
            signal.alarm(0)  # what it has set would go off in another, or here
            for timer in TIMERS:
                signal.setitimer(timer, 0)
            faulthandler.cancel_dump_traceback_later()
        rollout.log.close()
        try:
            if alone:
                self._clear_up()
        finally:
            self._answer(rollout, answer)
            del self._under_way[rollout.run.lease]
        if alone:
            self._reserve.renew()  # there was need of it until the answer was sent

    def _clear_up(self) -> None:
        self._streams.restore()
        if self._offspring:
            self._offspring.end()  # before that of which it may make use
        os.umask(self._umask)
        self._directory.restore()
        if threading.active_count() > MOST_THREADS:
            raise OSError(f"rollouts have left more than {MOST_THREADS} threads")

    def _answer(self, rollout: Rollout, answer: Done | Failed) -> None:
        try:
            self.channel.send(self._redacted(answer))
        except WireError as error:
            self.channel.send(self._redacted(rollout.unsendable(error, answer.output)))

    def _named_by(self, run: Run) -> tuple[Job, str]:
        try:
            return self._jobs[run.job], self._texts[run.artifact]
        except KeyError:
            raise WireError(f"lease {run.lease} names a job or an artifact that was not sent.") from None

    def _cancel(self, lease: int) -> None:
        if self._waiting.pop(lease, None) is None and lease in self._under_way:
            self._under_way[lease].stop()

    def _keep(self, lease: int, state: Any) -> None:
        if lease in self._under_way:  # a thread that the rollout has left behind may still be counting
            self.channel.send(Checkpoint(lease, self._redactor.json(state)))

    def _resolver(self, job: Job) -> Resolver:
        allow = tuple(job.allow)
        if allow not in self._resolvers:
            self._resolvers[allow] = Resolver(allow)
        return self._resolvers[allow]

    def _redacted(self, answer: Done | Failed) -> Done | Failed:
        if not self._redactor:
            return answer
        text, output = self._redactor.text, self._redactor.json(answer.output)
        if isinstance(answer, Done):
            metrics = self._redactor.json(answer.metrics)
            return evolve(answer, output=output, feedback=text(answer.feedback), metrics=metrics)
        type_, message, trace = text(answer.type), text(answer.message), text(answer.traceback)
        return evolve(answer, output=output, type=type_, message=message, traceback=trace)

"""The evaluation group: every score of a run is bought once, by tasks that belong to nobody who asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from itertools import count

from anyio import (
    AsyncContextManagerMixin,
    CancelScope,
    ClosedResourceError,
    create_task_group,
    get_cancelled_exc_class,
)
from anyio.lowlevel import checkpoint

from adescent.budget import Purpose
from adescent.cancellation import StrayCancellation, in_force, own_task, shed_stray
from adescent.canonical import digest_of_text
from adescent.errors import ContractError
from adescent.evolvable import Evolvable
from adescent.policies.measuring import EvaluationServices
from adescent.policies.records import Measurement, Reading
from adescent.tasks import Score, Split, Task
from adescent.verifier.evaluation import Evaluation
from adescent.verifier.readings import Trial, reading_of, trial_of
from adescent.workspec import Result, RolloutSpec

__all__ = ["EvaluationGroup"]

RENDERED_KEPT = 64
"""Rendered artifacts kept: heads and candidates that are being measured, with room to spare."""

SLICE = 128
"""Scores dealt with at a stretch, a millisecond's worth; then others on the loop have their turn."""

SPACING = 16
"""Whether to go on is asked again when the prefix has grown by this fraction: each answer walks all of the prefix."""


class EvaluationGroup(AsyncContextManagerMixin):
    """An `Evaluator`: single-flight, at most ``services.concurrency`` evaluations at once, first come first served.

    An evaluation belongs to the group. Whoever asks for the same score joins it, it survives the first asker, and it
    is cancelled when nobody waits any more. Leaving the block cancels what is under way; whoever still waits then, or
    asks later, gets ClosedResourceError.
    """

    def __init__(self, services: EvaluationServices) -> None:
        self._services = services
        self._environment = digest_of_text(services.identity)
        self._renderings: dict[str, tuple[str, str]] = {}
        self._queue: deque[Evaluation] = deque()
        self._under_way: dict[str, Evaluation] = {}
        self._running: set[Evaluation] = set()
        self._leases = count()
        self._pullers = 0
        self._open = False
        self._failure: Exception | None = None

    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncIterator[EvaluationGroup]:
        self._context = copy_context()
        failure: Exception | None = None
        async with create_task_group() as self._tasks:
            self._open = True
            try:
                yield self
            except Exception as error:  # noqa: BLE001 - raised bare below, where no task group wraps it
                failure = error
            finally:
                self._close()
        failure = failure or self._failure
        if failure is not None:
            raise failure

    def unanswered(self, artifact: Evolvable, tasks: Sequence[Task], *, split: Split, repeats: range = range(1)) -> int:
        """How many scores of such a measurement neither the cache nor an evaluation under way answers."""
        _, digest = self._rendering(artifact)
        return sum(self._known(key) is None for key, _ in self._keys(digest, tasks, split, repeats))

    async def measure(
        self,
        artifact: Evolvable,
        tasks: Sequence[Task],
        *,
        split: Split,
        purpose: Purpose,
        repeats: range = range(1),
        fresh: bool = False,
        still_open: Callable[[Measurement], bool] | None = None,
    ) -> Measurement:
        """Score ``artifact`` on ``tasks``, once for each number in ``repeats`` (the same number is the same score).

        A ``fresh`` score is neither looked up nor joined nor kept: it is a second opinion, and if it took the place of
        the one kept under its repeat, that number would stand for two scores in one run.

        ``still_open`` is asked of completed prefixes in task order (all of up to 16 tasks, beyond that each longer than
        the last by a sixteenth), however the evaluations finish. So where it ends a measurement does not depend on
        timing; the rest is cancelled and ``complete`` is False. Where services are ``in_waves``, what such a
        measurement costs does not depend on timing either.

        Raises BudgetExhausted before anything is run when the budget does not cover what has to be bought, and
        whatever the services' rollout raises instead of returning a result.
        """
        await checkpoint()  # an answer that is all cache would hide a cancellation and hold the loop
        if not self._open:
            raise ClosedResourceError
        rendered, digest = self._rendering(artifact)
        keys = self._keys(digest, tasks, split, repeats)
        drafts = await self._drafted(keys, rendered, purpose, fresh)
        asked = self._ask(drafts, purpose, fresh)
        try:
            return await self._collect(tasks, len(repeats), asked, still_open)
        finally:
            for answer in asked:
                if isinstance(answer, Evaluation):
                    self._leave(answer)

    # Asking -----------------------------------------------------------------------------------------------------------

    async def _drafted(
        self, keys: Iterable[tuple[str, Task]], rendered: str, purpose: Purpose, fresh: bool
    ) -> list[Evaluation | Trial]:
        """What is kept, and an evaluation for everything else: nobody else can find or join these yet.

        That, and not paying for them, is what takes long, so nothing is decided here: the loop is let go in between.
        """
        drafts: list[Evaluation | Trial] = []
        for number, (key, task) in enumerate(keys, 1):
            draft: Evaluation | Trial | None = None if fresh else self._kept(key)
            if draft is None:
                spec = RolloutSpec(rendered, task, lease_id=f"{purpose} {next(self._leases)}")
                draft = Evaluation(key, spec, purpose, fresh)
            drafts.append(draft)
            if number % SLICE == 0:
                await checkpoint()
        return drafts

    def _ask(self, drafts: Sequence[Evaluation | Trial], purpose: Purpose, fresh: bool) -> list[Evaluation | Trial]:
        """In one go: join what others buy, pay for the rest."""
        if not self._open:
            raise ClosedResourceError
        asked: list[Evaluation | Trial] = []
        bought: dict[str, Evaluation] = {}
        for draft in drafts:
            answer = draft
            if isinstance(draft, Evaluation):
                # Another look at what is kept: drafting may have taken more than one turn of the loop.
                answer = bought.get(draft.key) or (None if fresh else self._known(draft.key)) or draft
                if answer is draft:
                    bought[draft.key] = draft
            asked.append(answer)
        if bought:
            self._buy(bought, purpose, fresh)
        for answer in asked:
            if not isinstance(answer, Evaluation):
                self._services.count("cache_hits")
                continue
            if answer.waiting or bought.get(answer.key) is not answer:
                self._services.count("evaluations_joined")
            answer.waiting += 1
        return asked

    def _buy(self, bought: dict[str, Evaluation], purpose: Purpose, fresh: bool) -> None:
        """Pay for all of them or raise; only then can they be found and run."""
        reservation = self._services.account.hold(purpose, len(bought) * self._services.calls_each)
        for evaluation in bought.values():
            evaluation.reservation = reservation
        if not fresh:
            self._under_way.update(bought)

    def _begin(self, answers: Sequence[Evaluation | Trial]) -> None:
        """Let what has been paid for be run."""
        for answer in answers:
            if isinstance(answer, Evaluation) and not answer.queued:
                answer.queued = True
                self._queue.append(answer)
        for _ in range(min(len(self._queue), self._services.concurrency - self._pullers)):
            self._pullers += 1
            # A task inherits the context of its starter, and this one works for others too.
            self._context.copy().run(partial(self._tasks.start_soon, self._pull, name="evaluations"))

    def _known(self, key: str) -> Evaluation | Trial | None:
        return self._kept(key) or self._under_way.get(key)

    def _kept(self, key: str) -> Trial | None:
        cache = self._services.cache
        score = None if cache is None else cache.get(key)
        if score is None:
            return None
        if not isinstance(score, Score):
            raise ContractError(f"eval_cache.get returned a {type(score).__name__}; it must return a Score or None.")
        return Trial(score)

    def _keys(self, digest: str, tasks: Sequence[Task], split: Split, repeats: range) -> Iterator[tuple[str, Task]]:
        for task in tasks:
            for repeat in repeats:
                yield f"{digest}:{task.digest}:{split}:{self._environment}:{repeat}", task

    def _rendering(self, artifact: Evolvable) -> tuple[str, str]:
        """The rendered artifact and its digest, hashed once however often it is measured."""
        known = self._renderings.get(artifact.digest)
        if known is None:
            rendered = self._services.render(artifact.state)
            known = self._renderings[artifact.digest] = rendered, digest_of_text(rendered)
            if len(self._renderings) > RENDERED_KEPT:
                del self._renderings[next(iter(self._renderings))]
        return known

    # Waiting ----------------------------------------------------------------------------------------------------------

    async def _collect(
        self,
        tasks: Sequence[Task],
        repeats: int,
        asked: Sequence[Evaluation | Trial],
        still_open: Callable[[Measurement], bool] | None,
    ) -> Measurement:
        readings: list[Reading] = []
        in_waves = self._services.in_waves and still_open is not None
        wave = self._services.concurrency if in_waves else max(1, len(tasks))
        ask_at = 1
        for index, task in enumerate(tasks):
            if index % wave == 0:
                due = asked[index * repeats : (index + wave) * repeats]
                self._begin(due)
                if in_waves:  # all of it, before anything is asked about a part of it
                    await _answers(due)
            trials = await _answers(asked[index * repeats : (index + 1) * repeats])
            readings.append(reading_of(task.id, trials))
            if still_open is not None and ask_at <= len(readings) < len(tasks):
                ask_at = len(readings) + 1 + len(readings) // SPACING
                prefix = Measurement(tuple(readings), self._services.identity, complete=False)
                if not still_open(prefix):
                    return prefix
                if len(readings) > SLICE:
                    await checkpoint()
            elif len(readings) % SLICE == 0:
                await checkpoint()
        return Measurement(tuple(readings), self._services.identity)

    def _leave(self, evaluation: Evaluation) -> None:
        """One asker less; without any, the evaluation is dropped, and cannot be joined while it goes down."""
        evaluation.waiting -= 1
        if evaluation.waiting or evaluation.settled:
            return
        self._forget(evaluation)
        if evaluation.scope is None:
            evaluation.reservation.give_back(self._services.calls_each)
        else:
            evaluation.scope.cancel()

    def _forget(self, evaluation: Evaluation) -> None:
        if self._under_way.get(evaluation.key) is evaluation:
            del self._under_way[evaluation.key]

    # Running ----------------------------------------------------------------------------------------------------------

    async def _pull(self) -> None:
        """Work on the queue until it is empty."""
        try:
            with own_task():
                while self._queue:
                    evaluation = self._queue.popleft()
                    if evaluation.waiting:
                        await self._evaluate(evaluation)
                        await checkpoint()  # for actors that never suspend
        except StrayCancellation as error:
            self._end_with(error)
        finally:
            self._pullers -= 1

    async def _evaluate(self, evaluation: Evaluation) -> None:
        for _ in range(self._services.calls_each):
            evaluation.reservation.spend()
        self._services.count("evaluations")
        self._running.add(evaluation)
        try:
            with CancelScope() as evaluation.scope:
                self._settle(evaluation, await self._services.rollout(evaluation.spec, evaluation.purpose))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for, or by the group
            self._fail(evaluation, error)
        except get_cancelled_exc_class():
            if in_force():
                raise
            await shed_stray()
            if evaluation.waiting:
                self._fail(evaluation, StrayCancellation())
        finally:
            self._running.discard(evaluation)

    def _settle(self, evaluation: Evaluation, result: Result) -> None:
        trial = trial_of(result)
        if trial.score is not None:
            if self._services.cache is not None and not evaluation.fresh:
                self._services.cache.put(evaluation.key, trial.score)
        elif evaluation.waiting:
            self._services.count("evaluation_failures" if trial.failed else "evaluations_missing")
        self._forget(evaluation)
        evaluation.settle(trial=trial)

    def _fail(self, evaluation: Evaluation, error: Exception) -> None:
        """A rollout raised instead of reporting: those who wait raise it; where nobody does, the group ends with it."""
        self._forget(evaluation)
        if evaluation.waiting and not evaluation.settled:
            evaluation.settle(error=error)
        else:
            self._end_with(error)

    def _end_with(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._tasks.cancel_scope.cancel()

    def _close(self) -> None:
        """Take no more, drop everything, and release who waits from outside at once, not when the last task is gone."""
        self._open = False
        for evaluation in self._queue:
            if evaluation.waiting:
                evaluation.reservation.give_back(self._services.calls_each)
                evaluation.settle(error=ClosedResourceError())
        for evaluation in self._running:
            evaluation.settle(error=ClosedResourceError())
        self._queue.clear()
        self._under_way.clear()
        self._tasks.cancel_scope.cancel()


async def _answers(asked: Sequence[Evaluation | Trial]) -> list[Trial]:
    return [await answer.answer() if isinstance(answer, Evaluation) else answer for answer in asked]

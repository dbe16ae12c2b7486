"""What goes wrong in a run ends as the failure table says: out of the call, in the result, or as one failed rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from adescent.budget import Budget
from adescent.errors import (
    ActorsNeverWorked,
    ContractError,
    GovernanceError,
    LedgerCorrupt,
    LedgerError,
    OptionError,
    VoidScore,
)
from adescent.evolution import Evolution, async_evolve
from adescent.evolvable import Diff, Evolvable
from adescent.ledger import MemoryLedger
from adescent.policies import Policies
from adescent.workspec import Failure, Result, RolloutSpec

BOUND = 30.0


# The caller's own -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "actor"),
    [
        ("run", lambda rendered: "x"),
        ("propose", lambda task: "x"),
        ("reward", lambda output: 1.0),
        ("on_event", lambda: None),
        ("run", "no function"),
    ],
)
async def test_actor_of_the_wrong_arity_is_refused_before_anything_runs(
    world: Any, schedule: str, name: str, actor: Any, anyio_backend: Any
) -> None:
    options = world.options(schedule)
    reward = options.pop("reward", world.reward)
    if name == "reward":
        reward = actor
    else:
        options[name] = actor
    with anyio.fail_after(BOUND), pytest.raises(ContractError, match=name):
        await async_evolve(world.tasks, reward, **options)
    assert not world.calls


@pytest.mark.anyio
async def test_proposal_of_a_type_the_strategy_does_not_take_is_the_callers_error(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    async def propose(*_: Any) -> Any:
        return 7

    with anyio.fail_after(BOUND), pytest.raises(ContractError, match="not 7"):
        await world.evolve(schedule, propose=propose)


@pytest.mark.anyio
async def test_frozen_artifact_is_refused_before_anything_runs(world: Any, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND), pytest.raises(GovernanceError):
        await world.evolve(schedule, artifact_id="safety_constraints")
    assert not world.calls


class Trespassing:
    """A strategy whose proposals are about an artifact that no run may change."""

    def initial(self, initial_state: Any) -> Any:
        return {"seed": "nothing yet"}

    def render(self, state: Any) -> str:
        return " ".join(state.values())

    def to_diff(self, state: Any, proposal: Any, target: str) -> Diff:
        return Diff("oracle", {"seed": str(proposal)})


@pytest.mark.anyio
async def test_proposal_to_a_frozen_artifact_comes_out_of_the_call(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(GovernanceError):
        await world.evolve(schedule, strategy=Trespassing())


# Actors that fail -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_other_exception_is_one_failed_rollout_that_is_not_tried_again(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    async def broken() -> None:
        if world.calls["run"] == 30:
            raise ZeroDivisionError("once")

    world.before_run = broken
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, on_event=world.events.append)
    assert result.stop_reason == "rounds"
    assert result.error == ""
    assert result.counters["rollouts_failed"] == 1
    assert "retries" not in result.counters
    failed = [event for event in world.events if type(event).__name__ == "RolloutFailed"]
    assert [(event.stage, event.message) for event in failed] == [("run", "run: ZeroDivisionError: once")] * len(failed)
    assert result.calls == world.calls["run"] + world.calls["propose"]


@pytest.mark.anyio
@pytest.mark.parametrize("n_workers", [1, 12])
async def test_run_that_never_works_ends_with_its_causes(
    world: Any, schedule: str, n_workers: int, anyio_backend: Any
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError(f"always, {world.calls['run'] % 2}")

    world.before_run = broken
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=50, n_workers=n_workers, eval_concurrency=1)
    assert result.stop_reason == "error"
    assert isinstance(result.exception, ActorsNeverWorked)
    assert isinstance(result.exception.__cause__, ZeroDivisionError)
    assert result.exception.actor == "run"
    assert result.exception.causes == ("ZeroDivisionError: always, 1", "ZeroDivisionError: always, 0")
    assert "always, 1" in result.error
    assert result.exception.attempts == max(8, n_workers)
    assert world.calls["run"] <= max(8, n_workers) + 1  # one may begin before the cancellation arrives
    assert result.final_reward is None


@pytest.mark.anyio
@pytest.mark.parametrize("rounds", [1, 50])
async def test_proposer_that_never_works_ends_the_run_however_few_its_tries(
    world: Any, schedule: str, rounds: int, anyio_backend: Any
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("always")

    world.before_propose = broken
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=rounds, n_workers=2)
    assert result.stop_reason == "error"
    assert isinstance(result.exception, ActorsNeverWorked)
    assert result.exception.actor == "propose"
    assert result.exception.attempts == result.counters["proposals_failed"] == (2 if rounds == 1 else 8)


@pytest.mark.anyio
async def test_once_an_actor_has_worked_its_failures_only_count(world: Any, schedule: str, anyio_backend: Any) -> None:
    async def mostly_broken() -> None:
        if world.calls["propose"] > 1:
            raise ZeroDivisionError("nearly always")

    world.before_propose = mostly_broken
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=10)
    assert result.stop_reason == "rounds"
    assert result.error == ""
    assert result.counters["proposals_failed"] > 8


class NoWorkers:
    """An executor whose workers all die before they run anything."""

    takes_callables = True
    slots: int | None = None

    async def __aenter__(self) -> NoWorkers:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def attach_actors(self, actors: Any) -> NoWorkers:
        return self

    async def rollout(self, spec: RolloutSpec) -> Result:
        await anyio.lowlevel.checkpoint()
        failure = Failure("infrastructure", "worker", "WorkerDied", "exit code 3")
        return Result(spec.lease_id, spec.task.id, error=failure)


@pytest.mark.anyio
@pytest.mark.parametrize("held_out", [2, 20])
async def test_workers_that_never_run_anything_are_no_run_without_improvement(
    world: Any, schedule: str, held_out: int, anyio_backend: Any
) -> None:
    world.tasks, split = world.tasks[held_out:], world.tasks[:held_out]
    with anyio.fail_after(BOUND):
        result = await world.evolve(
            schedule, held_out=split, rounds=1, n_workers=1, policies=Policies(executor=NoWorkers())
        )
    assert result.stop_reason == "error"
    assert isinstance(result.exception, ActorsNeverWorked)
    assert result.exception.causes == ("WorkerDied: exit code 3",)


# Scorers --------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("held_out", [2, 20])
async def test_scorer_that_never_gives_a_valid_score_is_the_callers_to_fix(
    world: Any, schedule: str, held_out: int, anyio_backend: Any
) -> None:
    calls = []

    async def reward(task: Any, output: object) -> float:
        calls.append(task.id)
        raise KeyError("gold")

    tasks = world.tasks
    with anyio.fail_after(BOUND), pytest.raises(ContractError, match="KeyError: 'gold'") as caught:
        await async_evolve(
            tasks[20:],
            reward,
            **world.options(schedule, held_out=tasks[:held_out], eval_concurrency=1, n_workers=1, rounds=30),
        )
    assert isinstance(caught.value.__cause__, KeyError)
    assert len(calls) == 8


@pytest.mark.anyio
async def test_strict_ends_with_the_first_void_score(world: Any, schedule: str, anyio_backend: Any) -> None:
    scored = []

    async def reward(task: Any, output: object) -> float:
        scored.append(task.id)
        return float("nan") if len(scored) == 30 else 0.5

    with anyio.fail_after(BOUND), pytest.raises(VoidScore, match="nan"):
        await async_evolve(world.tasks, reward, **world.options(schedule, strict=True, eval_concurrency=1))
    assert len(scored) < 40
    scored.clear()
    with anyio.fail_after(BOUND):
        result = await async_evolve(world.tasks, reward, **world.options(schedule, eval_concurrency=1))
    assert result.counters["scores_void"] == 1
    assert result.error == ""


# The ledger -----------------------------------------------------------------------------------------------------------


class FullDisk(MemoryLedger):
    """A ledger whose disk is full after so many commits."""

    def __init__(self, commits: int) -> None:
        super().__init__()
        self.left = commits

    def commit(self, *args: Any, **options: Any) -> Evolvable:
        if not self.left:
            raise LedgerError("the disk is full")
        self.left -= 1
        return super().commit(*args, **options)


@pytest.mark.anyio
@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_ledger_that_fails_ends_the_run_with_what_there_is(
    world: Any, schedule: str, commits: int, ends: Any, anyio_backend: Any
) -> None:
    ledger = FullDisk(commits)
    with anyio.fail_after(BOUND):
        result = await world.evolve(
            schedule,
            rounds=50,
            n_workers=1,
            policies=Policies(ledger=ledger),
            on_event=world.events.append,
        )
    assert result.stop_reason == "error"
    assert result.error == "LedgerError: the disk is full"
    assert isinstance(result.exception, LedgerError)
    assert (result.version, len(result.log)) == (1 + commits, 1 + commits)
    assert result.state == ledger.head("artifact").state
    assert result.seed_reward == 0.0
    settled, ingested = ends(result, world.events)
    assert settled == ingested
    finished = world.events[-1]
    assert (finished.stop_reason, finished.error) == ("error", "LedgerError: the disk is full")


class Unreadable(MemoryLedger):
    """A ledger in which nothing can be read."""

    def head(self, artifact_id: str, branch: str = "dev") -> Evolvable:
        raise LedgerError("the ref is damaged")


@pytest.mark.anyio
async def test_ledger_that_fails_before_there_is_anything_to_report_raises(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(LedgerError, match="the ref is damaged"):
        await world.evolve(schedule, policies=Policies(ledger=Unreadable()))


@pytest.mark.anyio
@pytest.mark.parametrize("damage", ["dev", "stable"])
async def test_repository_that_is_damaged_meanwhile_ends_the_run_with_what_there_is(
    world: Any, schedule: str, damage: str, tmp_path: Any, anyio_backend: Any
) -> None:
    ledger = tmp_path / "run" / "ledger.git"

    async def damage_it() -> None:
        if world.calls["propose"] == 3:
            (ledger / "refs" / "heads" / damage).write_bytes(b"no commit\n")

    world.before_propose = damage_it
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=50, run_dir=tmp_path / "run")
    assert result.stop_reason == "error"
    assert isinstance(result.exception, LedgerCorrupt)
    assert f"refs/heads/{damage} names no commit" in result.error
    assert result.ledger == str(ledger)
    assert result.seed_reward == 0.0


@pytest.mark.anyio
async def test_result_that_cannot_be_kept_is_returned_all_the_same(
    world: Any, schedule: str, tmp_path: Any, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND):
        await world.evolve(schedule, run_dir=tmp_path / "run")
        (tmp_path / "run" / "result.json").unlink()
        (tmp_path / "run" / "result.json").mkdir()
        result = await world.evolve(schedule, run_dir=tmp_path / "run")
    assert result.stop_reason == "error"
    assert "result.json cannot be written" in result.error
    assert result.final_reward == 1.0


# Policies that raise --------------------------------------------------------------------------------------------------


class Raising:
    """Whatever is asked of it, it raises; what it ``has`` got it answers."""

    def __init__(self, **has: Any) -> None:
        self.__dict__.update(has)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._raise

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise ArithmeticError("the policy's own")


class BrokenRendering:
    def initial(self, initial_state: Any) -> Any:
        return {}

    def render(self, state: Any) -> str:
        if state:
            raise ArithmeticError("the policy's own")
        return ""

    def to_diff(self, state: Any, proposal: Any, target: str) -> Diff:
        return Diff(target, {str(proposal): str(proposal)})


class BrokenDiffs(BrokenRendering):
    def to_diff(self, state: Any, proposal: Any, target: str) -> Diff:
        raise ArithmeticError("the policy's own")


BROKEN: dict[str, Callable[[], dict[str, Any]]] = {
    "acceptance": lambda: {"policies": Policies(acceptance=Raising())},
    "fusion": lambda: {"policies": Policies(fusion=Raising(tournament=False))},
    "conflict": lambda: {"policies": Policies(conflict=Raising())},
    "promotion": lambda: {"policies": Policies(promotion=Raising())},
    "proposal": lambda: {"policies": Policies(proposal=Raising())},
    "verifier": lambda: {"policies": Policies(verifier=lambda services: Raising()), "blast_radius": 0.9},
    "verifier factory": lambda: {"policies": Policies(verifier=Raising().anything)},
    "evaluator factory": lambda: {"policies": Policies(evaluator=Raising().anything)},
    "cache": lambda: {"policies": Policies(eval_cache=Raising())},
    "sampler": lambda: {"task_sampler": Raising()},
    "draw": lambda: {"task_sampler": Raising(begin=lambda tasks, seed: Raising(observe=lambda *_: None))},
    "observe": lambda: {"task_sampler": Raising(begin=lambda tasks, seed: Raising(draw=lambda a, turn: a.tasks[0]))},
    "plan": lambda: {"parallel": Raising()},
    "assign": lambda: {"parallel": Raising(begin=lambda *_: Raising(observe=None))},
    "render": lambda: {"strategy": BrokenRendering()},
    "to_diff": lambda: {"strategy": BrokenDiffs()},
}


@pytest.mark.anyio
@pytest.mark.parametrize("broken", BROKEN)
async def test_what_a_policy_raises_comes_out_of_the_call_bare(
    world: Any, schedule: str, broken: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(ArithmeticError, match="the policy's own"):
        await world.evolve(schedule, on_event=world.events.append, **BROKEN[broken]())
    for finished in world.events[-1:]:  # there is none where nothing has begun
        assert (finished.stop_reason, finished.error) == ("error", "ArithmeticError: the policy's own")


@pytest.mark.anyio
async def test_staleness_policy_that_raises_comes_out_of_the_call_bare(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(ArithmeticError, match="the policy's own"):
        await world.evolve(schedule, policies=Policies(staleness=Raising()))


@pytest.mark.anyio
async def test_error_inside_a_hosts_task_group_is_one_and_bare(world: Any, schedule: str, anyio_backend: Any) -> None:
    async def reward(task: Any, output: object) -> float:
        raise KeyError("gold")

    caught: list[BaseException] = []

    async def host() -> None:
        try:
            await async_evolve(world.tasks, reward, **world.options(schedule))
        except ContractError as error:
            caught.append(error)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host)
    assert len(caught) == 1


@pytest.mark.anyio
async def test_handle_raises_what_the_call_would_have_raised(world: Any, schedule: str, anyio_backend: Any) -> None:
    policies = Policies(acceptance=Raising())
    with anyio.fail_after(BOUND), pytest.raises(ArithmeticError, match="the policy's own"):
        async with Evolution(world.tasks, world.reward, **world.options(schedule, policies=policies)) as run:
            await run.result()


@pytest.mark.anyio
async def test_option_that_does_not_exist_is_refused_by_name(world: Any, schedule: str, anyio_backend: Any) -> None:
    with pytest.raises(OptionError, match="n_wrokers"):
        await world.evolve(schedule, n_wrokers=3)


@pytest.mark.anyio
async def test_budget_that_cannot_pay_for_what_every_run_reports_is_refused(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(ContractError, match="calls=10"):
        await world.evolve(schedule, budget=Budget(calls=10))
    assert not world.calls

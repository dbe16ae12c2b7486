"""A run that is kept: its ledger, its result, and the next run that goes on from there."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve as changed

from adescent.errors import ContractError, LedgerError, RunDirError, RunDirInUse, RunDirMismatch
from adescent.evolution import Evolution
from adescent.evolvable import Diff, Evolvable
from adescent.ledger import GitLedger, MemoryLedger
from adescent.policies import Policies
from adescent.runtime.result import EvolutionResult
from adescent.strategies import AppendRules
from adescent.telemetry import RunStarted

pytestmark = pytest.mark.anyio

BOUND = 60.0


async def run(world: Any, schedule: str, place: Path, **options: Any) -> EvolutionResult:
    with anyio.fail_after(BOUND):
        result: EvolutionResult = await world.evolve(schedule, run_dir=place, **options)
    return result


async def test_what_a_run_says_is_what_its_ledger_holds(
    world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    result = await run(world, schedule, tmp_path / "run", rounds=6)
    assert result.ledger == str(tmp_path / "run" / "ledger.git")
    ledger = GitLedger(Path(result.ledger))
    try:
        head, stable = ledger.head("artifact"), ledger.head("artifact", "stable")
        log = tuple(ledger.log())
    finally:
        ledger.close()
    assert (head.version, head.state) == (result.version, result.state)
    assert stable.version == result.stable_version
    assert log == result.log
    assert result.version > 1


async def test_plain_git_reads_it(world: Any, tmp_path: Path, anyio_backend: Any) -> None:
    result = await run(world, "rounds", tmp_path, rounds=6)
    for branch, version in (("dev", result.version), ("stable", result.stable_version)):
        trees = await printed("git", "--git-dir", result.ledger, "log", "--format=%T", branch)
        found = await printed("git", "--git-dir", result.ledger, "grep", "-h", '"version"', branch)
        assert trees.split()[0] == result.log[0].tree
        assert found.strip() == f'"version": {version},'


async def printed(*command: str) -> str:
    with anyio.fail_after(BOUND):
        return (await anyio.run_process(command)).stdout.decode()


async def test_the_same_run_in_memory_has_the_same_trees(
    new_world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    lockstep = {"n_workers": 1, "max_unmerged": 1} if schedule == "stream" else {}
    on_disk = await run(new_world(), schedule, tmp_path, rounds=12, **lockstep)
    in_memory = await new_world().evolve(schedule, rounds=12, **lockstep)
    assert [commit.tree for commit in on_disk.log] == [commit.tree for commit in in_memory.log]
    assert in_memory.ledger == ""


# Going on -------------------------------------------------------------------------------------------------------------


async def test_the_next_run_goes_on_from_the_head_and_says_so(
    world: Any, schedule: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, anyio_backend: Any
) -> None:
    first = await run(world, schedule, tmp_path, rounds=1, n_workers=2)
    assert first.resumed_from == 0
    assert not caplog.records
    events: list[Any] = []
    with caplog.at_level(logging.INFO, "adescent"):
        second = await run(world, schedule, tmp_path, rounds=5, on_event=events.append)
    assert second.resumed_from == first.version > 1
    assert [record.getMessage() for record in caplog.records] == [f"continuing artifact from version {first.version}"]
    assert next(event.resumed for event in events if isinstance(event, RunStarted)) == first.version
    assert second.seed_reward == first.final_reward
    assert second.version > first.version
    assert [commit.tree for commit in second.log][-len(first.log) :] == [commit.tree for commit in first.log]


async def test_schedule_and_width_may_change_on_the_way(
    world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    first = await run(world, schedule, tmp_path, rounds=1)
    other = "stream" if schedule == "rounds" else "rounds"
    second = await run(world, other, tmp_path, rounds=4, n_workers=9, cheap_eval_tasks=3)
    assert second.resumed_from == first.version
    assert second.final_reward == 1.0


async def test_a_continued_run_has_the_reach_it_is_given(world: Any, tmp_path: Path, anyio_backend: Any) -> None:
    first = await run(world, "rounds", tmp_path, rounds=1, n_workers=2)
    assert "audits_passed" not in first.counters
    second = await run(world, "rounds", tmp_path, rounds=4, blast_radius=0.9)
    assert second.counters["audits_passed"] > 0
    ledger = GitLedger(tmp_path / "ledger.git")
    try:
        assert ledger.head("artifact").blast_radius == 0.9
    finally:
        ledger.close()


OTHER_CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "artifact_id": {"artifact_id": "another"},
    "strategy": {"strategy": AppendRules(header="Rules")},
    "seed": {"seed": 1},
    "train tasks": {"held_out_frac": 0.3},
}


@pytest.mark.parametrize("what", OTHER_CONFIGURATIONS)
async def test_another_configuration_is_refused_before_any_rollout(
    what: str, world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    await run(world, schedule, tmp_path, rounds=1)
    world.calls.clear()
    with pytest.raises(RunDirMismatch, match=what):
        await run(world, schedule, tmp_path, **OTHER_CONFIGURATIONS[what])
    assert not world.calls


async def test_a_directory_in_use_is_refused_before_any_rollout(
    new_world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    one, other = new_world(), new_world()
    with anyio.fail_after(BOUND):
        async with Evolution(one.tasks, one.reward, **one.options(schedule, rounds=10_000, run_dir=tmp_path)) as held:
            while not one.calls:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(RunDirInUse, match=str(os.getpid())):
                await run(other, schedule, tmp_path)
            assert held.status().phase in ("starting", "running")
        assert (await held.result()).stop_reason == "stopped"
    assert not other.calls
    assert (await run(other, schedule, tmp_path)).resumed_from > 0


ANOTHER = """
import sys
from adescent import evolve
def wait(task, output):
    print("waiting", flush=True)
    return float(len(sys.stdin.read()))
tasks = [{"prompt": str(number)} for number in range(9)]
evolve(tasks, wait, run=lambda r, t: "", propose=lambda r, t, o, s: None, run_dir=sys.argv[1], rounds=1)
"""


async def test_another_process_runs_there(world: Any, tmp_path: Path, anyio_backend: Any) -> None:
    command = [sys.executable, "-c", ANOTHER, str(tmp_path)]
    with anyio.fail_after(BOUND):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout is not None
            await process.stdout.receive()
            with pytest.raises(RunDirInUse, match=str(process.pid)):
                await run(world, "rounds", tmp_path)
            process.kill()
    assert not world.calls


async def test_a_foreign_directory_is_refused_before_any_rollout(
    world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunDirError, match=r"thesis\.tex"):
        await run(world, schedule, tmp_path)
    assert not world.calls
    assert names(tmp_path) == ["thesis.tex"]


def names(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir()]


# Results --------------------------------------------------------------------------------------------------------------


async def test_the_result_can_be_loaded(world: Any, schedule: str, tmp_path: Path, anyio_backend: Any) -> None:
    result = await run(world, schedule, tmp_path, rounds=5, test_frac=0.2)
    assert Evolution.load(tmp_path) == Evolution.load(str(tmp_path)) == result
    later = await run(world, schedule, tmp_path, rounds=1, test_frac=0.2)
    assert Evolution.load(tmp_path) == later != result


async def test_where_no_run_has_ended_there_is_nothing_to_load(world: Any, tmp_path: Path, anyio_backend: Any) -> None:
    with pytest.raises(RunDirError, match="no run directory"):
        Evolution.load(tmp_path)
    world.before_reward = fail
    with pytest.raises(ContractError, match="no valid score"):
        await run(world, "rounds", tmp_path)
    assert Evolution.load(tmp_path) is None
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ContractError, match="no stored result"):
        Evolution.load(tmp_path)


async def fail() -> None:
    raise ValueError("no score today")


async def test_a_result_survives_its_text(world: Any, schedule: str, anyio_backend: Any) -> None:
    with anyio.fail_after(BOUND):
        result = await world.evolve(
            schedule, rounds=6, test_frac=0.2, blast_radius=0.5, oracle=world.reward, self_verify=True, noise="yes"
        )
    assert result.outcomes()
    assert result.history
    again = EvolutionResult.from_json(result.to_json())
    assert again == result
    assert (again.seed_reward, again.test_reward, again.calls) == (result.seed_reward, result.test_reward, result.calls)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"artifact_id": 3}', '{"version": "x"}'])
async def test_what_is_no_result_is_refused(text: str, anyio_backend: Any) -> None:
    with pytest.raises(ContractError, match="no stored result"):
        EvolutionResult.from_json(text)


# Ledgers that are handed in -------------------------------------------------------------------------------------------


async def test_a_ledger_that_is_handed_in_is_borrowed(
    world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    ledger = GitLedger(tmp_path / "shared.git")
    try:
        with anyio.fail_after(BOUND):
            first = await world.evolve(schedule, policies=Policies(ledger=ledger))
            second = await world.evolve(schedule, policies=Policies(ledger=ledger), artifact_id="second")
        assert first.ledger == str(tmp_path / "shared.git")
        assert ledger.head("artifact").state == first.state
        assert ledger.head("second").state == second.state
    finally:
        ledger.close()


class ForTwo(AppendRules):
    """Every other proposal is about the other artifact of the ledger."""

    def to_diff(self, state: Any, proposal: Any, target: str) -> Any:
        diff = super().to_diff(state, proposal, target)
        return changed(diff, target="other") if proposal in ("lesson-1", "lesson-3") else diff


async def test_a_commit_to_another_artifact_is_not_taken_for_the_head(
    world: Any, schedule: str, anyio_backend: Any
) -> None:
    ledger = MemoryLedger()
    other = ledger.register(Evolvable("other", {}))
    for version in range(1, 9):
        other = ledger.commit(changed(other, state={"v": str(version)}), version)
    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, rounds=8, strategy=ForTwo(), policies=Policies(ledger=ledger))
    if schedule == "stream":  # where diffs without a base are brought onto the head
        assert ledger.head("other").version > 9
    assert result.artifact_id == "artifact"
    assert result.state == ledger.head("artifact").state
    assert result.version == ledger.head("artifact").version < 9


async def test_a_ledger_that_breaks_ends_the_run_with_what_there_is(
    world: Any, schedule: str, tmp_path: Path, anyio_backend: Any
) -> None:
    class Full(MemoryLedger):
        def commit(self, *args: Any, **options: Any) -> Any:
            raise LedgerError("no space left")

    with anyio.fail_after(BOUND):
        result = await world.evolve(schedule, policies=Policies(ledger=Full()), run_dir=tmp_path)
    assert (result.stop_reason, result.error) == ("error", "LedgerError: no space left")
    assert Evolution.load(tmp_path) == result


class Unnameable:
    """A strategy without a repr of its own."""

    def initial(self, initial_state: Any) -> dict[str, str]:
        return {}

    def render(self, state: Any) -> str:
        return ""

    def to_diff(self, state: Any, proposal: Any, target: str) -> Diff:
        return Diff(target, {})


async def test_a_strategy_nobody_could_know_again_is_refused(anyio_backend: Any, tmp_path: Path, world: Any) -> None:
    with pytest.raises(ContractError, match="__repr__"):
        await world.evolve("rounds", strategy=Unnameable(), run_dir=tmp_path / "run")
    assert not world.calls

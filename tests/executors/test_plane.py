"""What stands behind a process executor: who is let in, where its workers live, and how they are started."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from adescent.executors import ProcessExecutor, collect_rollouts, plane
from adescent.executors.pool import Pool
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.sandbox import Admission, Workspaces, reach
from adescent.tasks import Task
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec, Workspace

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.mainly("asyncio"),
    pytest.mark.usefixtures("importable", "anyio_backend"),
]

BOUND = 30.0
TASK = Task("t1", "?")


def actors(run: str) -> Actors:
    ran, scored = (Ref(f"process_actors:{name}", call=False) for name in (run, "full"))
    return Actors(ran, scored, resolver=Resolver(("process_actors:",)))


def spec_of(**more: Any) -> RolloutSpec:
    return RolloutSpec("rules", TASK, **more)


def failure_of(result: Result) -> Failure:
    assert result.error is not None
    return result.error


# Who is let in -------------------------------------------------------------------------------------------------------


class Counted:
    """An admission that tells how many were in at once."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.inside = self.most = self.entries = 0

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        async with self._admission.admitted():
            self.inside, self.entries = self.inside + 1, self.entries + 1
            self.most = max(self.most, self.inside)
            try:
                yield
            finally:
                self.inside -= 1


async def test_executors_share_a_ceiling(line: Any, tmp_path: Path) -> None:
    shared = [Counted(Admission(2, tmp_path / "places")) for _ in range(2)]
    executors = [ProcessExecutor(2, admission=each) for each in shared]
    both = Counted(Admission(2))
    more = [ProcessExecutor(2, admission=both) for _ in range(2)]
    with anyio.fail_after(BOUND):
        for pair in (executors, more):
            async with pair[0], pair[1], create_task_group() as group:
                for executor in pair:
                    view = executor.attach_actors(actors("pid"))
                    group.start_soon(collect_rollouts, view, [spec_of()] * 20)
    assert [each.entries for each in (*shared, both)] == [20, 20, 40]
    assert both.most == 2
    assert all(each.most <= 2 for each in shared)


async def test_who_admits_may_fail_and_that_is_the_callers(tmp_path: Path) -> None:
    admission = Admission(1, tmp_path / "places")
    shutil.rmtree(tmp_path / "places")
    (tmp_path / "places").write_text("no directory any more")
    executor = ProcessExecutor(1, admission=admission)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            result = await view.rollout(spec_of())
    assert result.kind in ("caller", "infrastructure")
    assert failure_of(result).stage == "worker"


async def test_who_is_let_in_after_all_have_left_is_told(line: Any) -> None:
    view = ProcessExecutor(1, admission=Admission(1)).attach_actors(actors("gate"))
    results: list[Result] = []

    async def late() -> None:
        results.append(await view.rollout(RolloutSpec("rules", Task("t", line.path))))

    with anyio.fail_after(BOUND):
        async with create_task_group() as group, view:
            group.start_soon(late)
            group.start_soon(late)
            await line.begun()
    assert [failure_of(result).type for result in results] == ["ExecutorClosed", "ContractError"]


async def test_a_disk_that_refuses_when_a_sandbox_is_looked_up_is_in_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(sandbox: SandboxSpec) -> str:
        raise OSError("no space left")

    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1).attach_actors(actors("pid")) as view:
            monkeypatch.setattr(plane, "reach", refuses)
            result = await view.rollout(spec_of(sandbox=SandboxSpec(level="bubblewrap")))
    assert (result.kind, failure_of(result).message) == ("infrastructure", "no space left")


async def test_all_pools_are_told_to_close_before_any_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    all_told, told = anyio.Event(), list[str]()

    class Closing(Pool):
        async def close(self) -> None:
            told.append("")
            if len(told) == 2:
                all_told.set()
            await all_told.wait()
            await super().close()

    monkeypatch.setattr(plane, "Pool", Closing)
    both = plane.Plane(plane.PlaneOptions(1, 1, None, None, BOUND), Workspaces(tmp_path / "rooms"))
    with anyio.fail_after(BOUND):
        await both.enter(SandboxSpec())
        both.pool("shared")
        both.pool("scoring")
        await both.leave()
    assert len(told) == 2


# Where workers live --------------------------------------------------------------------------------------------------


class Provider:
    """Keeps workspaces as the real one does, and a book about it."""

    def __init__(self, root: Path) -> None:
        self._workspaces = Workspaces(root)
        self.root = root
        self.ttl = 60.0
        self.held: set[str] = set()
        self.acquired: list[str] = []
        self.reaped = 0

    async def acquire(self, owner: str) -> Workspace:
        workspace = await self._workspaces.acquire(owner)
        self.held.add(workspace.id)
        self.acquired.append(owner)
        return workspace

    async def release(self, workspace: Workspace) -> None:
        await self._workspaces.release(workspace)
        self.held.discard(workspace.id)

    async def renew(self) -> None:
        await self._workspaces.renew()

    async def reap(self) -> int:
        self.reaped += 1
        return await self._workspaces.reap()


async def test_workers_live_where_they_are_given_a_place(line: Any, tmp_path: Path) -> None:
    provider = Provider(tmp_path / "rooms")
    executor = ProcessExecutor(2, provider=provider)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("here")) as view:
            results = await collect_rollouts(view, [spec_of()] * 3)
            assert len(provider.held) == executor.counters()["workers_started"]
    assert {Path(result.output[0]).parent for result in results} == {provider.root}
    assert provider.held == set()
    assert provider.reaped == 1
    assert len(provider.acquired) == len(set(provider.acquired)) == executor.counters()["workers_started"]


async def test_places_are_looked_after_once_however_often_an_executor_is_opened() -> None:
    executor = ProcessExecutor(1)
    with anyio.fail_after(BOUND):
        for _ in range(3):
            async with executor, executor:
                names = [task.name for task in anyio.get_running_tasks()]
                assert names.count("workspaces") == 1


async def test_without_confinement_nobody_needs_a_place(tmp_path: Path) -> None:
    provider = Provider(tmp_path / "rooms")
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1, provider=provider, sandbox=SandboxSpec(level="none")) as executor:
            assert (await executor.attach_actors(actors("pid")).rollout(spec_of())).level == "none"
    assert provider.acquired == []


async def test_a_place_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    (tmp_path / "rooms").write_text("no directory")
    executor = ProcessExecutor(1, provider=Workspaces(tmp_path / "rooms"))
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            result = await view.rollout(spec_of())
    assert (result.kind, failure_of(result).type) == ("infrastructure", "WorkerNotReady")
    assert str(tmp_path / "rooms") in failure_of(result).message


async def test_a_place_that_cannot_be_given_back_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rooms = tmp_path / "rooms"
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1, provider=Workspaces(rooms)).attach_actors(actors("pid")) as view:
            assert (await view.rollout(spec_of())).kind == "ok"
            rooms.chmod(0o777)
    assert [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "adescent"] == [
        "the workspace of a worker cannot be removed"
    ]
    rooms.chmod(0o700)


@pytest.mark.parametrize(
    ("program", "word"),
    [("/bin/false", "exited with code 1"), ("/nonexistent/python", "could not be started"), ("/bin/cat", "")],
)
async def test_an_interpreter_that_is_none_is_told_and_not_tried_for_ever(
    program: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = ProcessExecutor(2)
    monkeypatch.setattr(sys, "executable", program)
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(actors("pid")) as view:
            results = await collect_rollouts(view, [spec_of()] * 5)
            assert {(result.kind, failure_of(result).type) for result in results} == {
                ("infrastructure", "WorkerNotReady")
            }
            assert word in failure_of(results[0]).message
            assert executor.counters()["workers_started"] <= 12
            monkeypatch.undo()
            assert (await view.rollout(spec_of())).kind == "ok"
            assert executor.counters()["redispatched"] == 0


# What levels need ----------------------------------------------------------------------------------------------------


async def test_a_level_that_is_not_reached_is_said_aloud_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(plane, "reach", lambda sandbox: "limits")
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1, provider=Workspaces(tmp_path / "rooms")) as executor:
            view = executor.attach_actors(actors("pid"))
            specs = [spec_of(sandbox=SandboxSpec(level="bubblewrap")) for _ in range(4)]
            results = await collect_rollouts(view, specs, concurrency=4) + [await view.rollout(specs[0])]
    assert {result.level for result in results} == {"limits"}
    warnings = [record.getMessage() for record in caplog.records if record.name == "adescent"]
    assert warnings == ["the sandbox level 'bubblewrap' was asked for, and 'limits' is what can be reached here"]


async def test_spares_are_kept_for_the_first_sandbox_that_isolates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "reach", lambda sandbox: sandbox.level)
    if reach(SandboxSpec(level="landlock")) != "landlock":
        pytest.skip("landlock cannot be reached here")
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1) as executor:
            view = executor.attach_actors(actors("pid"))
            assert executor.statistics().workers_started == 0
            assert (await view.rollout(spec_of(sandbox=SandboxSpec(level="landlock")))).level == "landlock"
            # One that ran, a spare at the least, and one that scores.
            assert executor.statistics().workers_started >= 3


async def test_a_directory_whose_name_is_no_text_is_left_out_of_a_workers_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/no/t\udcffext", *sys.path])
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1) as executor:
            assert (await executor.attach_actors(actors("pid")).rollout(spec_of())).kind == "ok"


async def test_what_a_worker_may_read_and_is_no_text_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "t\udcffext.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    reached = reach(SandboxSpec(level="landlock"))
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1, sandbox=SandboxSpec(level="landlock")) as executor:
            result = await executor.attach_actors(actors("pid")).rollout(spec_of())
            assert (result.kind, result.level) == ("ok", reached)


async def test_a_workspace_whose_name_is_no_text_is_refused_before_there_is_a_process(tmp_path: Path) -> None:
    with anyio.fail_after(BOUND):
        async with ProcessExecutor(1, provider=Workspaces(str(tmp_path / "t\udcffext"))) as executor:
            result = await executor.attach_actors(actors("pid")).rollout(spec_of())
    assert result.error is not None
    assert "no text in this locale: use one of UTF-8" in result.error.message

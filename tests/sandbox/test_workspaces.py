"""Workspaces are there while somebody holds them, and gone some time after nobody does."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.errors import ContractError, OptionError
from adescent.policies import SandboxProvider
from adescent.sandbox.workspaces import Workspaces
from adescent.workspec import Workspace

BOUND = 20.0

both_loops = pytest.mark.anyio


def leases(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*.lease"))


def names(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def is_there(workspace: Workspace) -> bool:
    return Path(workspace.path).exists()


def mode(folder: Path | str) -> int:
    return Path(folder).stat().st_mode & 0o777


def age(root: Path, seconds: float = 3600.0) -> None:
    """Nobody has renewed anything for so long."""
    for path in root.glob("*.lease"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def abandon(workspaces: Workspaces) -> None:
    """What the kernel does when a holder dies."""
    for lease in workspaces._held.values():
        lease.close()


def litter(workspace: Workspace) -> None:
    Path(workspace.path, "folder").mkdir()
    Path(workspace.path, "folder", "file").write_text("left behind")


@both_loops
async def test_a_workspace_is_an_empty_directory_of_its_own(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces: SandboxProvider = Workspaces(tmp_path / "root")
    with anyio.fail_after(BOUND):
        first, second = await workspaces.acquire("worker 1"), await workspaces.acquire("worker 2" * 1000)
        for workspace in (first, second):
            assert workspace.path.startswith("/")
            assert names(workspace.path) == []
            assert mode(workspace.path) == 0o700
        assert first.path != second.path
        litter(first)
        await workspaces.release(first)
        assert not is_there(first)
        assert is_there(second)
        await workspaces.release(second)
        assert names(tmp_path / "root") == []


@both_loops
async def test_the_lease_says_who_holds_it(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path, ttl=7)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker 1")
        note = json.loads((tmp_path / f"{workspace.id}.lease").read_text())
        assert (note["owner"], note["pid"], note["ttl"]) == ("worker 1", os.getpid(), 7)
        await workspaces.release(workspace)


@both_loops
async def test_released_again_or_by_another_nothing_happens(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker 1")
        await Workspaces(tmp_path).release(workspace)
        assert is_there(workspace)
        await workspaces.release(workspace)
        await workspaces.release(workspace)


@both_loops
async def test_only_what_has_expired_and_is_nobodys_is_reaped(anyio_backend: Any, tmp_path: Path) -> None:
    holder, gone = Workspaces(tmp_path), Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        held, left = await holder.acquire("holder"), await gone.acquire("gone")
        litter(left)
        assert await Workspaces(tmp_path).reap() == 0  # both are held
        abandon(gone)
        assert await Workspaces(tmp_path).reap() == 0  # nobody holds one of them, and it is young
        age(tmp_path)
        assert await Workspaces(tmp_path).reap() == 1  # both are old, and one is held
        assert leases(tmp_path) == [f"{held.id}.lease"]
        assert is_there(held)
        assert not is_there(left)
        await holder.release(held)


@both_loops
async def test_how_long_a_lease_lasts_is_its_holders_to_say(anyio_backend: Any, tmp_path: Path) -> None:
    patient, hasty = Workspaces(tmp_path, ttl=10_000), Workspaces(tmp_path, ttl=10)
    with anyio.fail_after(BOUND):
        await patient.acquire("patient")
        kept = leases(tmp_path)
        await hasty.acquire("hasty")
        abandon(patient)
        abandon(hasty)
        age(tmp_path, 100)
        assert await Workspaces(tmp_path, ttl=1e6).reap() == 1
        assert leases(tmp_path) == kept


@both_loops
async def test_a_lease_whose_holder_did_not_get_to_write_it_expires_too(anyio_backend: Any, tmp_path: Path) -> None:
    for number, text in enumerate(["", "{", "[]", '{"ttl": null}', '{"ttl": NaN}', '{"ttl": Infinity}']):
        (tmp_path / f"{number:016x}.lease").write_text(text)
    with anyio.fail_after(BOUND):
        assert await Workspaces(tmp_path).reap() == 0
        age(tmp_path)
        assert await Workspaces(tmp_path).reap() == 6
    assert leases(tmp_path) == []


@both_loops
async def test_a_renewed_lease_has_not_expired(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        await workspaces.renew()  # nothing to renew
        for _ in range(3):
            await workspaces.acquire("worker")
        age(tmp_path)
        await workspaces.renew()
        abandon(workspaces)  # what another host sees, that knows nothing of the lock
        assert await Workspaces(tmp_path).reap() == 0
        age(tmp_path)
        assert await Workspaces(tmp_path).reap() == 3


@both_loops
async def test_a_released_lease_is_not_renewed_back(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        (tmp_path / f"{workspace.id}.lease").unlink()
        await workspaces.renew()
        assert leases(tmp_path) == []
        await workspaces.release(workspace)
        assert names(tmp_path) == []


@both_loops
async def test_what_is_no_lease_stays(anyio_backend: Any, tmp_path: Path) -> None:
    for name in ("notes.lease", "0123456789abcdef", "0123456789ABCDEF.lease"):
        (tmp_path / name).touch()
    age(tmp_path)
    with anyio.fail_after(BOUND):
        assert await Workspaces(tmp_path).reap() == 0
    assert len(names(tmp_path)) == 3


@both_loops
async def test_a_lease_that_is_reaped_before_it_is_locked_is_not_taken(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    flock = fcntl.flock
    overtaken: list[Path] = []

    def late(file: Any, operation: int) -> None:
        if not overtaken:
            overtaken.extend(tmp_path.glob("*.lease"))
            overtaken[0].unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        assert leases(tmp_path) == [f"{workspace.id}.lease"] != [overtaken[0].name]
        await workspaces.release(workspace)
    assert names(tmp_path) == []


@both_loops
async def test_a_disk_that_refuses_leaves_no_lease(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir(0o700)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, anyio.fail_after(BOUND), pytest.raises(OSError, match="No space"):
        patch.setattr(os, "mkdir", full)
        await Workspaces(root).acquire("worker")
    assert names(root) == []


# Whose directory it is -----------------------------------------------------------------------------------------------


@both_loops
@pytest.mark.parametrize("hostile", ["link", "file", "writable", "foreign"])
async def test_a_root_that_others_prepared_is_refused(
    hostile: str, anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    lease = elsewhere / f"{1:016x}.lease"
    lease.touch()
    age(elsewhere)
    if hostile == "link":
        root.symlink_to(elsewhere)
    elif hostile == "file":
        root.touch()
    elif hostile == "writable":
        root.mkdir()
        root.chmod(0o770)
    else:
        root.mkdir(0o700)
        owner = root.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    workspaces = Workspaces(root)
    with anyio.fail_after(BOUND):
        with pytest.raises(ContractError, match=r"root cannot hold workspaces .*Workspaces\(root=…\)"):
            await workspaces.acquire("worker")
        with pytest.raises(ContractError):
            await workspaces.reap()
    assert lease.exists()


@both_loops
async def test_by_default_it_is_this_users_place_for_temporary_files(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    workspaces = Workspaces()
    assert names(tmp_path) == []
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        (root,) = names(tmp_path)
        assert str(os.geteuid()) in root
        assert mode(tmp_path / root) == 0o700
        assert workspace.path == str(tmp_path / root / workspace.id)
        await workspaces.release(workspace)


@pytest.mark.parametrize("ttl", [0, -1.0, float("nan"), float("inf"), True, "60", None])
def test_a_time_that_is_none_is_refused(ttl: Any) -> None:
    with pytest.raises(OptionError, match="ttl"):
        Workspaces(ttl=ttl)


# Leaving in the middle -----------------------------------------------------------------------------------------------


@both_loops
async def test_a_cancelled_release_finishes_what_is_quick(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        litter(workspace)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await workspaces.release(workspace)
    assert names(tmp_path) == []


@both_loops
async def test_a_cancelled_release_leaves_the_rest_to_a_reaper(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        litter(workspace)
        with monkeypatch.context() as patch, anyio.CancelScope() as scope:
            patch.setattr("adescent.sandbox.workspaces.SLICE_SECONDS", -1.0)
            scope.cancel()
            await workspaces.release(workspace)
        assert scope.cancelled_caught
        assert leases(tmp_path) == [f"{workspace.id}.lease"]
        age(tmp_path)
        assert await Workspaces(tmp_path).reap() == 1
    assert names(tmp_path) == []


@both_loops
async def test_a_cancelled_acquire_leaves_nothing(anyio_backend: Any, tmp_path: Path) -> None:
    with anyio.fail_after(BOUND):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await Workspaces(tmp_path).acquire("worker")
    assert names(tmp_path) == []


@both_loops
async def test_what_cannot_be_removed_is_left_to_a_reaper(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workspaces = Workspaces(tmp_path)

    def refusing(*_: Any) -> bool:
        raise PermissionError(1, "Operation not permitted")

    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        with monkeypatch.context() as patch:
            patch.setattr("adescent.sandbox.leases.demolish", refusing)
            await workspaces.release(workspace)
            age(tmp_path)
            assert await Workspaces(tmp_path).reap() == 0
        assert f"workspace {workspace.path} cannot be removed yet: [Errno 1] Operation not permitted" in caplog.text
        assert await Workspaces(tmp_path).reap() == 1
    assert names(tmp_path) == []


@both_loops
async def test_a_removal_that_somebody_outruns_ends(
    anyio_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workspaces = Workspaces(tmp_path)
    with anyio.fail_after(BOUND):
        workspace = await workspaces.acquire("worker")
        litter(workspace)
        with monkeypatch.context() as patch:
            patch.setattr("adescent.sandbox.workspaces.SLICE_SECONDS", -1.0)
            patch.setattr("adescent.sandbox.workspaces.SLICES", 3)
            await workspaces.release(workspace)
        assert "left to a later run" in caplog.text
        age(tmp_path)
        assert await Workspaces(tmp_path).reap() == 1


# Several at once, and the dead ---------------------------------------------------------------------------------------


@both_loops
async def test_many_tasks_at_once(anyio_backend: Any, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    paths = []

    async def use() -> None:
        workspace = await workspaces.acquire("worker")
        paths.append(workspace.path)
        litter(workspace)
        await workspaces.renew()
        await workspaces.release(workspace)

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as group:
            for _ in range(30):
                group.start_soon(use)
    assert len(set(paths)) == 30
    assert names(tmp_path) == []


@both_loops
async def test_two_reapers_at_once_remove_each_once(anyio_backend: Any, tmp_path: Path) -> None:
    gone, counts = Workspaces(tmp_path), []

    async def reap() -> None:
        counts.append(await Workspaces(tmp_path).reap())

    with anyio.fail_after(BOUND):
        for _ in range(40):
            litter(await gone.acquire("gone"))
        abandon(gone)
        age(tmp_path)
        async with anyio.create_task_group() as group:
            group.start_soon(reap)
            group.start_soon(reap)
    assert sum(counts) == 40
    assert names(tmp_path) == []

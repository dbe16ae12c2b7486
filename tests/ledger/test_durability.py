"""What is on disk before what: a power cut may take what was not acknowledged, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from adescent.errors import UnknownArtifact
from adescent.evolvable import Evolvable
from adescent.ledger import GitLedger, packing
from adescent.ledger.keeper import Move
from adescent.ledger.refs import Branches

RULES = Evolvable("rules", {"a": "1"})


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[list[str]]:
    """What happens to files below a folder: ``sync NAME``, ``name NAME`` (by a rename or a link), in order."""
    events: list[str] = []

    def noting(call: Callable[..., Any], note: Callable[..., str]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            events.append(note(*arguments))
            return call(*arguments)

        return noted

    def short(path: str) -> str:
        return str(Path(path).relative_to(folder))

    with monkeypatch.context() as patched:
        for function in ("rename", "link"):
            patched.setattr(os, function, noting(getattr(os, function), lambda _, new: f"name {short(new)}"))
        patched.setattr(os, "fsync", noting(os.fsync, lambda handle: f"sync {short(name_of(handle))}"))
        yield events


def name_of(handle: int) -> str:
    return str(Path(f"/proc/self/fd/{handle}").readlink())


def is_pack(event: str, suffix: str) -> bool:
    return event.startswith("name objects/pack/pack-") and event.endswith(suffix)


def test_objects_are_on_disk_before_the_branch_and_the_branch_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(GitLedger(tmp_path)) as ledger:
        ledger.register(RULES)
        with recorded(monkeypatch, tmp_path) as events:
            ledger.commit(RULES, 1)
        pack, index = (next(n for n, event in enumerate(events) if is_pack(event, end)) for end in (".pack", ".idx"))
        branch = events.index("name refs/heads/dev")
        assert events[pack - 1].startswith("sync ledger.spares/")
        assert events[index - 1].startswith("sync ledger.spares/")
        assert pack < index < events.index("sync objects/pack") < branch
        assert events.index("sync ledger.next") < events.index("name refs/heads/dev.lock") < branch
        assert branch < events.index("sync refs/heads")


def test_a_new_pack_is_on_disk_before_the_old_ones_go_and_they_are_gone_before_they_are_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "GATHERED_COMMITS", 3)
    with closing(GitLedger(tmp_path)) as ledger:
        head = ledger.register(RULES)
        head = ledger.commit(RULES, head.version)
        with recorded(monkeypatch, tmp_path) as events:
            ledger.commit(RULES, head.version)
        retired = [number for number, event in enumerate(events) if event.startswith("name ledger.spares/pack-")]
        syncs = [number for number, event in enumerate(events) if event == "sync objects/pack"]
        assert len(retired) == 6
        assert len(syncs) == 3
        assert syncs[0] < syncs[1] < min(retired)
        assert max(retired) < syncs[2]


def test_a_fast_ledger_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(monkeypatch, tmp_path) as events, closing(GitLedger(tmp_path, durability="fast")) as ledger:
        ledger.register(RULES)
        ledger.commit(RULES, 1)
        ledger.promote("rules", 2)
    assert events
    assert not [event for event in events if event.startswith("sync")]


def test_whoever_dies_while_registering_has_registered_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(BaseException):
        pass

    moved: list[str] = []
    move = Branches.move

    def dying(self: Branches, to: Move) -> None:
        if moved:
            raise Died
        moved.append(to.branch)
        move(self, to)

    with closing(GitLedger(tmp_path, durability="fast")) as ledger:
        with monkeypatch.context() as patched, pytest.raises(Died):
            patched.setattr(Branches, "move", dying)
            ledger.register(RULES)
        assert moved == ["stable"]
        with pytest.raises(UnknownArtifact):
            ledger.head("rules")
        other = evolve(RULES, state={"a": "2"})
        assert ledger.register(other) == ledger.head("rules") == ledger.head("rules", "stable")

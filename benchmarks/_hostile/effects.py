"""How it is told whether an attempt has an effect now: by what it was aimed at, never by what it says itself."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from _processes import open_files, resident_mib

from _hostile.scene import HEAD, SCORER, Scene, processes_called

Effect = Callable[[Scene], bool]

HOST_MIB, HOST_SECONDS = 512, 1.0
EATEN_MIB, FILLED_BYTES, MANY_FILES = 350, 60 << 20, 10_000
"""Above these it is an effect: of the parent memory and silence; of candidates what they hold, wrote and have open."""


def told(which: Callable[[Scene], str]) -> Effect:
    """A secret stands in something that came out of a rollout."""
    return lambda scene: which(scene) in json.dumps(scene.said)


def scored(scene: Scene) -> bool:
    """A rollout has a score that it has not earned: the answer was in none of their outputs."""
    return any(said.get("score") for said in scene.said.values())


def reached(listener: str) -> Effect:
    """Something has come to a listener of the witness."""
    return lambda scene: scene.reached(listener)


def serves(scene: Scene) -> bool:
    """Something answers at the port where nobody listened."""
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", scene.free_port)) == 0


def alive(scene: Scene) -> bool:
    """A process is there that goes by the name the candidate gave it."""
    return bool(processes_called(scene.marker))


def scorer_changed(scene: Scene) -> bool:
    """The scorer's file says something else, or a later rollout was scored by something else."""
    return text_of(scene.path("code/hostile_scorer.py")) != SCORER or scored(scene)


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def mode_changed(scene: Scene) -> bool:
    """The file can be read by fewer than before."""
    return not scene.path("code/hostile_kit/words.txt").stat().st_mode & stat.S_IROTH


def ledger_changed(scene: Scene) -> bool:
    """The head has moved, or is gone."""
    return text_of(scene.path(HEAD)) != scene.secret


def found_by_the_next(scene: Scene) -> bool:
    """The next rollout has found what this one left."""
    return bool(answers(scene, "next").get("found"))


def neighbour_spoilt(scene: Scene) -> bool:
    """The honest rollout beside it did not get back what it had kept."""
    return answers(scene, "neighbour").get("kept", scene.mine) != scene.mine


def neighbour_died(scene: Scene) -> bool:
    """The honest rollout beside it has lost a worker, or failed."""
    said = scene.said.get("neighbour")
    return said is not None and bool(said["deaths"] or said["error"])


def answers(scene: Scene, role: str) -> dict[str, object]:
    """What a rollout has returned."""
    output = scene.said.get(role, {}).get("output")
    return output if isinstance(output, dict) else {}


def precious_lost(scene: Scene) -> bool:
    """What a link led to has been removed."""
    return {path.name for path in scene.path("precious").iterdir()} != {"one", "two"}


def segment_left(scene: Scene) -> bool:
    """There is a segment of shared memory under the key."""
    return scene.segment >= 0


def mounted(scene: Scene) -> bool:
    """Something is mounted that all can see."""
    return scene.path("mounted").is_mount()


def privileged(scene: Scene) -> bool:
    """A process of the candidate's has, or has had, a capability: what it did with it may last."""
    if any("CapEff:\t0000000000000000" not in status for status in _statuses(processes_called(scene.marker))):
        scene.noticed.add("privileged")
    return "privileged" in scene.noticed


def _statuses(pids: Iterable[int]) -> Iterable[str]:
    for pid in pids:
        try:
            yield Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue


def host_killed(scene: Scene) -> bool:
    """The parent has ended."""
    return not scene.host.is_alive


def host_traced(scene: Scene) -> bool:
    """Somebody is, or has been, the parent's debugger."""
    if scene.host.is_traced:
        scene.noticed.add("traced")
    return "traced" in scene.noticed


def canary_touched(scene: Scene) -> bool:
    """The canary's memory has been changed, or it did not survive."""
    return scene.canary.is_touched


def canary_slowed(scene: Scene) -> bool:
    """The canary gets less of the processors."""
    return scene.canary.is_slowed


def canary_limited(scene: Scene) -> bool:
    """The canary may use less than before, or is the first to be ended when memory is short."""
    return scene.canary.is_limited


def memory_eaten(scene: Scene) -> bool:
    """The candidate's processes hold much more than they were given, together."""
    return sum(_figures(scene, resident_mib)) > EATEN_MIB


def files_opened(scene: Scene) -> bool:
    """A process of the candidate's holds very many files open."""
    return max(_figures(scene, open_files), default=0) > MANY_FILES


def _figures(scene: Scene, figure: Callable[[int], float]) -> list[float]:
    found = []
    for pid in processes_called(scene.marker):
        try:
            found.append(figure(pid))
        except OSError:
            continue
    return found


def host_overwhelmed(scene: Scene) -> bool:
    """The parent holds very much memory, or its event loop has had no turn to give for too long."""
    if scene.host.silent_for > HOST_SECONDS:
        scene.noticed.add("silent")
    return "silent" in scene.noticed or (scene.host.is_alive and resident_mib(scene.host.pid) > HOST_MIB)


def filled(scene: Scene) -> bool:
    """Files of the candidate's take up much, on disk or in a memory file system of its sandbox."""
    places = [*scene.path("workspaces").iterdir(), scene.path("cwd"), *map(Path, scene.places)]
    hoards = (place / "hostile hoard" for place in places)
    on_disk = sum(hoard.stat().st_size for hoard in hoards if hoard.exists())
    return on_disk + sum(_in_memory(scene)) > FILLED_BYTES


def _in_memory(scene: Scene) -> Iterable[int]:
    """Bytes used in the file systems that only the candidate's processes see."""
    ours = {Path(place).stat().st_dev for place in ("/tmp", "/dev/shm", scene.folder)}
    for pid in processes_called(scene.marker):
        try:
            for place in (f"/proc/{pid}/cwd", f"/proc/{pid}/root/tmp", f"/proc/{pid}/root/dev/shm"):
                if Path(place).stat().st_dev not in ours:
                    used = os.statvfs(place)
                    yield (used.f_blocks - used.f_bfree) * used.f_bsize
        except OSError:
            continue

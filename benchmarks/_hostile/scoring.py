"""Techniques to get a better score, now or in the rollouts that follow, and to leave them something. In workers."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from _hostile.calls import IPC_CREAT, call_myself, shared_segment
from _hostile.processes import ignore_everything
from _hostile.technique import SHOWN, Given, own_pipes, to
from adescent.executors.child import rollouts as child_rollouts
from adescent.executors.framing import frame
from adescent.executors.wire import Checkpoint, Done, Log, Run, encode
from adescent.tasks import Score

LEASES = range(1, 40)
"""Numbers that the rollouts under way may have."""
FLOOD_SECONDS = 8.0
SWOLLEN_BYTES = 20 << 20
GENEROUS = "def reward(task, output):\n    return 1.0\n"


def own_lease() -> int:
    """The number of the rollout under way."""
    return next((each.lease for each in gc.get_objects() if isinstance(each, Run)), LEASES[0])


def forge(leases: list[int]) -> None:
    """Write answers to the parent."""
    answers = [Done(lease, 0.001, {"answer": "forged"}, 1.0) for lease in leases]
    for pipe in own_pipes(os.O_WRONLY):
        os.write(pipe, b"".join(part for answer in answers for part in frame(encode(answer))))


@to("forged answer")
def answer_before_it_is_asked(given: Given) -> None:
    forge([own_lease()])


@to("runs on")
def answer_and_run_on(given: Given) -> None:
    call_myself(given["marker"])
    time.sleep(SHOWN)
    answer_before_it_is_asked(given)
    ignore_everything(given)


@to("another's answer")
def answer_for_others(given: Given) -> None:
    mine = own_lease()
    forge([lease for lease in LEASES if lease != mine])


@to("patched scorer")
def give_the_scorer_other_code(given: Given) -> None:
    scorer: Any = importlib.import_module("hostile_scorer")
    generous: dict[str, Any] = {}
    exec(GENEROUS, generous)  # what candidates do
    scorer.reward.__code__ = generous["reward"].__code__
    scorer.reward = generous["reward"]


@to("hooks")
def leave_a_thread_that_patches(given: Given) -> None:
    worker: Any = child_rollouts

    def patch() -> None:
        for _ in range(1000):
            worker.as_score = lambda raw: Score(1.0)
            time.sleep(0.01)

    threading.Thread(target=patch, daemon=True).start()


@to("hooks")
def leave_hooks_in_the_interpreter(given: Given) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if scorer := sys.modules.get("hostile_scorer"):
                scorer.__dict__["reward"] = lambda task, output: 1.0

    sys.meta_path.insert(0, Finder)
    atexit.register(forge, list(LEASES))


@to("scorer's file")
def write_the_scorer(given: Given) -> None:
    Path(given["scorer"]).write_text(GENEROUS)


@to("scorer's file")
def put_another_in_its_place(given: Given) -> None:
    other = Path(given["scorer"]).with_suffix(".new")
    other.write_text(GENEROUS)
    other.rename(given["scorer"])


@to("mode of a file")
def take_away_all_rights_to_it(given: Given) -> None:
    Path(given["words"]).chmod(0)


@to("ledger")
def move_the_head(given: Given) -> None:
    Path(given["head"]).write_text("0" * 40)


@to("ledger")
def remove_the_run(given: Given) -> None:
    shutil.rmtree(Path(given["head"]).parent)


@to("files in its workspace")
def leave_files_where_it_works(given: Given) -> None:
    for place in {Path.cwd(), *(Path(os.environ.get(name, ".")) for name in ("HOME", "TMPDIR"))}:
        (place / "hostile note").write_text(given["token"])


@to("files elsewhere")
def leave_files_in_public_places(given: Given) -> None:
    failed = []
    for path in given["left"]:
        try:
            Path(path).write_text(given["token"])
        except OSError as error:
            failed.append(error)
    if failed:
        raise failed[0]


@to("shared memory left")
def leave_a_segment(given: Given) -> int:
    return shared_segment(given["key"], 1 << 20, IPC_CREAT | 0o666)


@to("neighbour's workspace")
def overwrite_what_it_keeps(given: Given) -> int:
    kept = list(Path(given["workspaces"]).glob("*/mine.txt"))
    for path in [*kept, Path(f"/proc/{given['neighbour']}/cwd/mine.txt")]:
        path.write_text("spoilt")
    return len(kept)


@to("neighbour's workspace")
def overwrite_it_where_all_work(given: Given) -> None:
    if Path("mine.txt").exists():
        Path("mine.txt").write_text("spoilt")


@to("workspace replaced")
def fill_it_with_links(given: Given) -> None:
    Path("hostile link").symlink_to(given["precious"])
    Path("folder").mkdir()
    Path("folder", "hostile link").symlink_to(given["precious"])


@to("workspace replaced")
def put_a_link_in_its_place(given: Given) -> None:
    here = Path.cwd()
    here.rename(here.with_name(f"{here.name}-moved"))
    here.symlink_to(given["precious"])


def write_all(pipe: int, data: bytes) -> None:
    """Write, however long the other side takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]


@to("flood")
def drown_the_parent(given: Given) -> None:
    lease = own_lease()
    state = b"".join(frame(encode(Checkpoint(lease, "x" * (32 << 20)))))
    lines = b"".join(frame(encode(Log(lease, "x")))) * 10_000
    until = time.monotonic() + FLOOD_SECONDS
    while time.monotonic() < until:
        for pipe in own_pipes(os.O_WRONLY):
            write_all(pipe, state)
            write_all(pipe, lines)


@to("swollen message")
def send_many_values(given: Given) -> None:
    """An answer whose output is an array of empty arrays: a byte each on the way, and many times that at its end."""
    head, tail = encode(Done(own_lease(), 0.001, "HERE")).split(b"\xa4HERE")
    array = b"\xdd" + SWOLLEN_BYTES.to_bytes(4, "big") + b"\x90" * SWOLLEN_BYTES
    size = len(head) + len(array) + len(tail)
    for pipe in own_pipes(os.O_WRONLY):
        write_all(pipe, size.to_bytes(4, "big") + head + array + tail)
    time.sleep(FLOOD_SECONDS)

"""What a worker and its parent say to each other, from hello to bye."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adescent.executors.wire import VERSION, ArtifactText, Bye, Cancel, Done, Log, Ready, Run

Start = Callable[..., Any]


def test_it_says_that_it_is_ready_and_how_confined(spawn: Start) -> None:
    assert spawn().greet(level="limits") == Ready(VERSION, "limits")


def test_few_descriptors_are_enough(start: Start) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        worker = start(level="limits")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    limit = "import resource as r; output = r.getrlimit(r.RLIMIT_NOFILE)[0]"
    assert worker.output(1, limit) == 64


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ({"version": VERSION + 1}, "use one release"),
        ({"level": "limits", "workspace": "/nonexistent"}, "No such file or directory"),
        ({"level": "bubblewrap"}, "bubblewrap"),
    ],
)
def test_it_says_why_it_cannot_begin(spawn: Start, hello: dict[str, Any], reason: str) -> None:
    worker = spawn()
    bye = worker.greet(**hello)
    assert isinstance(bye, Bye)
    assert reason in bye.reason
    assert worker.exit_code() == 1


@pytest.mark.parametrize("message", [Ready(VERSION, "none"), Bye(), Cancel(1)])
def test_it_begins_with_nothing_but_a_hello(spawn: Start, message: Any) -> None:
    worker = spawn()
    worker.send(message)
    assert "is no hello" in worker.expect(Bye).reason
    assert worker.exit_code() == 1


def test_it_leaves_when_it_hears_what_is_no_message(worker: Any) -> None:
    worker.send_bytes(b"\0\0\0\2ab")
    assert "no message" in worker.expect(Bye).reason
    assert worker.exit_code() == 1


@pytest.mark.parametrize("message", [Done(1, 0.5), Run(1, 1, "another", "id", ""), Run(1, 9, "artifact", "id", "")])
def test_it_leaves_when_it_is_told_what_makes_no_sense(worker: Any, message: Any) -> None:
    worker.send(message)
    assert worker.expect(Bye).reason
    assert worker.exit_code() == 1


def test_it_leaves_through_the_interpreters_exit_when_nothing_more_will_come(worker: Any) -> None:
    worker.output(1, "import atexit, os; atexit.register(os.write, 1, b'at exit')")
    worker.stop_talking()
    assert worker.expect(Bye) == Bye()
    assert worker.exit_code() == 0
    assert worker.rest() == "at exit"


def test_what_waits_is_not_begun_when_nothing_more_will_come(worker: Any, tmp_path: Path) -> None:
    hold(worker, 1, tmp_path)
    worker.begin(2)
    worker.stop_talking()
    release(tmp_path)
    assert worker.expect(Done).lease == 1
    assert worker.expect(Bye) == Bye()


def test_it_loads_no_loop_and_no_engine(worker: Any) -> None:
    loaded = set(worker.output(1, "import sys; output = sorted(sys.modules)"))
    strangers = {"anyio", "asyncio", "trio", "sniffio", "pygit2", "multiprocessing", "concurrent.futures", "ctypes"}
    assert not loaded & strangers
    ours = {name.removeprefix("adescent.") for name in loaded if name.startswith("adescent.")}
    rooms = {"doors", "errors", "canonical", "checks", "refs", "tasks", "workspec", "executors", "sandbox"}
    assert {name.split(".")[0] for name in ours} == rooms
    executors = {name.removeprefix("executors.") for name in ours if name.startswith("executors.")}
    assert {name for name in executors if not name.startswith(("child", "wire"))} == {
        "context",
        "framing",
        "results",
        "signatures",
    }
    assert {name for name in ours if name.startswith("sandbox.")} == {"sandbox.confinement", "sandbox.redaction"}


def test_it_has_the_parents_path_and_no_trace_of_how_it_was_found(start: Start) -> None:
    worker = start({"PYTHONPATH": os.environ.get("PYTHONPATH", "") + os.pathsep + str(Path(__file__).parents[3])})
    output = worker.output(1, "import os, sys; output = [sys.path, 'PYTHONPATH' in os.environ, len(sys.argv)]")
    assert output == [[str(Path(__file__).parent), str(Path(__file__).parents[3]), *sys.path], False, 1]


def test_an_artifact_is_forgotten_and_a_run_that_named_it_is_not(worker: Any, tmp_path: Path) -> None:
    hold(worker, 1, tmp_path)
    worker.send(ArtifactText("second", "the second"))
    worker.begin(2, "output = rendered", artifact="second")
    worker.send(ArtifactText("third", "the third", forget=["second", "never known"]))
    worker.begin(3, "output = rendered", artifact="third")
    release(tmp_path)
    assert [worker.expect(Done).output for _ in range(3)] == ["held", "the second", "the third"]
    worker.begin(4, artifact="second")
    assert "lease 4" in worker.expect(Bye).reason


def test_a_rollout_that_waits_can_be_cancelled_and_one_under_way_goes_on(worker: Any, tmp_path: Path) -> None:
    hold(worker, 1, tmp_path)
    for lease in (2, 3, 4):
        worker.begin(lease)
    worker.send(Cancel(1), Cancel(3), Cancel(99))
    release(tmp_path)
    assert [worker.expect(Done).lease for _ in range(3)] == [1, 2, 4]


def test_it_hears_a_cancel_before_it_begins_the_next(worker: Any, tmp_path: Path) -> None:
    hold(worker, 1, tmp_path)
    hold(worker, 2, tmp_path, "second")
    release(tmp_path)
    assert worker.expect(Done).lease == 1
    assert worker.expect(Log).lease == 2
    worker.begin(3)
    worker.send(Cancel(3))
    release(tmp_path, "second")
    worker.begin(4)
    assert [worker.expect(Done).lease for _ in range(2)] == [2, 4]


GRANDCHILD = "import re, subprocess, time; print(subprocess.Popen(['sleep', '600']).pid); "


@pytest.mark.parametrize("busy", ["time.sleep(600)", "re.match(r'(a*)*b', 'a' * 40)"], ids=["waits", "holds the lock"])
@pytest.mark.parametrize("level", ["none", "limits"])
def test_it_ends_with_its_parent_and_so_does_what_it_started(start: Start, busy: str, level: str) -> None:
    worker = start(level=level)
    worker.begin(1, GRANDCHILD + busy)
    grandchild = os.pidfd_open(int(worker.expect(Log).text))
    try:
        worker.let_go()
        assert worker.exit_code() == -signal.SIGKILL
        assert select.select([grandchild], [], [], 20.0)[0]
    finally:
        os.close(grandchild)


def test_it_ends_with_a_parent_that_is_killed(start: Start) -> None:
    worker = start()
    parent = subprocess.Popen(["sleep", "600"], pass_fds=[worker.lifeline])
    worker.let_go()
    assert worker.output(1, "output = 1") == 1  # somebody still holds the other end
    parent.kill()
    parent.wait(20.0)
    assert worker.exit_code() == -signal.SIGKILL


def test_a_parent_that_was_gone_before_it_began_is_noticed(spawn: Start) -> None:
    worker = spawn()
    worker.let_go()
    assert worker.exit_code() == -signal.SIGKILL


def test_a_thread_that_does_not_end_keeps_it_from_exiting_until_it_is_told(worker: Any) -> None:
    worker.output(1, "import threading, time; threading.Thread(target=time.sleep, args=[600]).start()")
    worker.stop_talking()
    assert worker.expect(Bye) == Bye()
    with pytest.raises(EOFError):
        os.killpg(worker.process.pid, signal.SIGTERM)
        worker.next()
    assert worker.exit_code() == -signal.SIGTERM


def test_daemon_threads_keep_it_from_nothing(worker: Any) -> None:
    worker.output(1, "import threading, time; threading.Thread(target=time.sleep, args=[600], daemon=True).start()")
    worker.stop_talking()
    assert worker.exit_code() == 0


def test_it_does_not_mind_ctrl_c(worker: Any) -> None:
    worker.output(1, "import os, signal; os.killpg(0, signal.SIGINT)")
    assert worker.output(2, "output = 2") == 2


def hold(worker: Any, lease: int, folder: Path, name: str = "gate") -> None:
    """Begin a plain rollout, and wait until it is under way; it ends when it is released."""
    os.mkfifo(folder / name)
    worker.begin(lease, f"print('held'); open({str(folder / name)!r}).read(); output = 'held'")
    if name == "gate":
        assert worker.expect(Log).text == "held\n"


def release(folder: Path, name: str = "gate") -> None:
    (folder / name).write_text("")

"""What a rollout may do to its worker, on purpose or not, and the next one does not feel."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adescent.executors.wire import Bye, Checkpoint, Done, Failed, Log

Start = Callable[..., Any]


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.close(0); os.close(1); os.close(2)",
        "import os; os.closerange(0, 100)",
        "import os; os.closerange(3, 100); x = [os.open('/dev/null', os.O_RDWR) for _ in range(50)]",
        "import os; os.write(1, b'\\0\\0\\0\\1garbage' * 1000)",
        "import os\nfor fd in range(100):\n  try: os.write(fd, b'\\0\\0\\0\\1garbage')\n  except OSError: pass",
        "import os\nfor fd in range(100):\n  try: os.read(fd, 1)\n  except OSError: pass",
        "import sys, io; sys.stdout = sys.stderr = io.StringIO()",
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; del sys.stdout",
        "import os; os.chdir('/')",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_DFL)",
        "import threading, time; threading.Thread(target=time.sleep, args=[600]).start()",
        "import subprocess; subprocess.Popen(['sleep', '600'])",
        "import gc, sys; gc.disable(); sys.setrecursionlimit(200); sys.argv = None; sys.path.clear()",
        "import os; os.environ.clear(); os.umask(0o777)",
        "import builtins; builtins.print = None; builtins.open = None",
    ],
)
@pytest.mark.parametrize("level", ["none", "limits"])
def test_the_next_rollout_does_not_feel_it(start: Start, level: str, code: str) -> None:
    worker = start(level=level)
    here = worker.output(1, "import os; output = os.getcwd()")
    assert worker.output(2, code) is None
    again, log = worker.answer(3, "import os, sys; print('printed'); output = os.getcwd()")
    if "builtins" in code:
        assert isinstance(again, Failed)  # what it breaks of Python is broken; what it says is heard all the same
    else:
        assert (again.output, log) == (here, "printed\n")
    worker.stop_talking()
    assert worker.next() == Bye()


def test_a_file_of_the_next_rollout_has_the_usual_mode(worker: Any) -> None:
    hide = "import os; output = os.umask(0o777)"
    assert worker.output(1, hide) == worker.output(2, hide)


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.closerange(0, 1000)",
        "import os; [os.close(fd) for fd in map(int, os.listdir('/proc/self/fd')) if fd > 2 and fd != 3]",
        "import os; os._exit(3)",
        "import os; os.abort()",
        "import ctypes; ctypes.string_at(0)",
        "import os, signal; os.kill(0, signal.SIGTERM)",
    ],
)
def test_what_ends_it_ends_it_at_once(worker: Any, code: str) -> None:
    worker.begin(1, code)
    with pytest.raises(EOFError):
        worker.next()
    assert worker.exit_code() != 0


def test_how_it_crashed_is_told_where_the_parent_keeps_it(worker: Any) -> None:
    worker.begin(1, "import ctypes; ctypes.string_at(0)")
    assert worker.exit_code() == -signal.SIGSEGV
    printed = worker.rest()
    assert "Fatal Python error: Segmentation fault" in printed
    assert '"<the task>", line 1' in printed


def test_what_is_being_said_is_whole_though_a_signal_interrupts_and_its_handler_prints(worker: Any) -> None:
    code = """
        import os, signal
        signal.signal(signal.SIGALRM, lambda *_: (print('rung'), os.write(2, b'!')))
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        ctx.checkpoint('x' * 2**20)
        signal.setitimer(signal.ITIMER_REAL, 0)
    """
    worker.begin(1, code)
    select.select([worker.out], [], [], 30.0)
    for _ in range(100):  # more than can have come before it began to speak; the pipe is full now, and nobody reads
        assert os.read(worker.err, 1) == b"!"
    said = [worker.next()]
    while not isinstance(said[-1], Done):
        said.append(worker.next())
    assert Checkpoint(1, "x" * 2**20) in said
    printed = [message.text for message in said if isinstance(message, Log)]
    assert not "".join(printed).replace("rung", "").strip("\n")  # on a busy machine one interrupts the other


@pytest.mark.parametrize("timer", ["ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"])
def test_an_alarm_does_not_go_off_in_the_next_rollout(patient: Any, timer: str) -> None:
    assert patient.output(1, f"import signal; signal.setitimer(signal.{timer}, 60.0)") is None
    assert patient.output(2, f"import signal; output = signal.getitimer(signal.{timer})") == [0.0, 0.0]


def test_who_leaves_too_many_threads_is_answered_and_the_worker_ends(worker: Any) -> None:
    leave = "import threading as t; [t.Thread(target=t.Event().wait, daemon=True).start() for _ in range(70)]"
    assert [worker.output(lease, leave) for lease in (1, 2)] == [None, None]
    assert "threads" in worker.expect(Bye).reason
    assert worker.exit_code() == 1


def test_neither_does_one_that_is_to_dump_tracebacks(worker: Any) -> None:
    code = "import faulthandler, os; faulthandler.dump_traceback_later(0.2, exit=True, file=os.open('/dev/null', 1))"
    assert worker.output(1, code) is None
    assert worker.output(2, "import time; output = time.sleep(0.4)") is None


def test_it_may_recurse_as_deep_as_its_actors_want_and_no_rollout_changes_that(worker: Any, tmp_path: Path) -> None:
    limit = "import sys; output = sys.getrecursionlimit()"
    usual = worker.output(1, limit)
    assert worker.output(2, "import sys; sys.setrecursionlimit(10**6)") is None
    assert worker.output(3, limit) == usual
    (tmp_path / "deep.py").write_text(
        "import sys\nsys.setrecursionlimit(4321)\ndef run(rendered, task): return sys.getrecursionlimit()\n"
    )
    assert worker.output(4, f"import sys; sys.path.append({str(tmp_path)!r}); sys.setrecursionlimit(60)") is None
    job = worker.has("deep:run", allow=["deep:"])
    assert [worker.output(5, "", job), worker.output(6, limit), worker.output(7, "", job)] == [4321] * 3


def test_what_multiprocessing_has_started_and_lost_it_starts_again(start: Start) -> None:
    worker = start(level="limits")
    pool = """
        import multiprocessing
        with multiprocessing.get_context('forkserver').Pool(1) as pool: output = pool.map(abs, [-1])
    """
    server = "from multiprocessing.connection import Listener; Listener(family='AF_UNIX').close()"
    for lease in range(1, 7, 2):
        answer, log = worker.answer(lease, pool)
        assert (answer.output, log) == ([1], "")
        assert worker.output(lease + 1, server) is None


@pytest.mark.parametrize("what", ["fork", "multiprocessing"])
def test_a_forked_copy_neither_speaks_nor_listens_for_it(worker: Any, what: str) -> None:
    if what == "fork":
        code = "import os; pid = os.fork(); output = 'copy' if pid == 0 else 'worker'\nif pid: os.waitpid(pid, 0)"
    else:
        code = (
            "import multiprocessing as m; m.set_start_method('fork', force=True); q = m.SimpleQueue()\n"
            "p = m.Process(target=lambda: (print('copy'), q.put(1))); p.start(); q.get(); p.join(); output = 'worker'"
        )
    answer, log = worker.answer(1, code)
    assert (answer.output, log) == ("worker", "")
    assert worker.output(2, "output = 2") == 2


LEFT = """
    import os
    from pathlib import Path
    Path('file').write_text('left')
    Path('locked').mkdir(); Path('locked', 'inner').touch(); Path('locked').chmod(0)
    os.symlink('/', 'link')
    for _ in range(50): os.mkdir('d'); os.chdir('d')
"""


@pytest.mark.parametrize("code", [LEFT, "import os, shutil; shutil.rmtree(os.getcwd())"], ids=["left", "removed"])
def test_its_workspace_is_empty_again(start: Start, code: str) -> None:
    worker = start(level="limits")
    assert worker.output(1, code) is None
    found = worker.output(2, "import os; open('written', 'w').close(); output = [os.getcwd(), os.listdir()]")
    assert found == [str(worker.workspace), ["written"]]


def test_its_answer_comes_when_its_workspace_is_empty(start: Start) -> None:
    worker = start(level="limits")
    assert worker.output(1, "import os; [os.mkdir(str(number)) for number in range(2000)]; output = 1") == 1
    assert list(worker.workspace.iterdir()) == []


def test_a_workspace_that_is_made_to_look_untouched_is_emptied_all_the_same(start: Start) -> None:
    worker = start(level="limits")
    assert worker.output(1, "pass") is None
    write = "import os; was = os.stat('.'); open('left', 'w').close()"
    assert worker.output(2, f"{write}; os.utime('.', ns=(was.st_atime_ns, was.st_mtime_ns))") is None
    assert worker.output(3, "import os; output = os.listdir()") == []


def test_a_directory_that_is_not_its_own_is_left_alone(start: Start) -> None:
    worker = start(level="none")
    assert worker.output(1, "open('kept', 'w').close(); import os; os.chdir('/')") is None
    assert worker.output(2, "import os; output = os.listdir()") == ["kept"]
    assert worker.output(3, "import os, shutil; shutil.rmtree(os.getcwd())") is None
    assert worker.output(4, "output = 4") == 4


def test_what_has_taken_the_place_of_its_workspace_is_not_touched(start: Start, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    worker = start(level="limits")
    worker.begin(1, f"import os; here = os.getcwd(); os.rmdir(here); os.symlink({str(precious)!r}, here)")
    worker.expect(Done)
    assert "taken the place of the workspace" in worker.expect(Bye).reason
    assert worker.exit_code() == 1
    assert (precious / "file").exists()


@pytest.mark.slow
def test_processor_time_is_allowed_a_rollout_at_a_time(start: Start) -> None:
    worker = start(level="limits")
    job = worker.has(cpu_seconds=1)
    spend = "import time; start = time.process_time()\nwhile time.process_time() < start + 0.6: pass"
    for lease in range(2):
        assert worker.output(lease, spend, job) is None
    worker.begin(3, "while True: pass", job)
    assert worker.exit_code() == -signal.SIGXCPU


def test_processor_time_without_a_limit_is_given_back(start: Start) -> None:
    worker = start(level="limits")
    limited = worker.has(cpu_seconds=1)
    most = "import resource as r; output = r.getrlimit(r.RLIMIT_CPU)[0]"
    first = worker.output(1, most)
    assert worker.output(2, most, limited) not in (first, -1)
    assert worker.output(3, most) == first


def test_a_limit_on_processor_time_that_a_rollout_has_set_is_not_the_next_ones(worker: Any) -> None:
    limits = "import resource as r; output = r.getrlimit(r.RLIMIT_CPU)"
    first = worker.output(1, limits)
    assert worker.output(2, f"{limits}; r.setrlimit(r.RLIMIT_CPU, (3600, output[1]))") == first
    assert worker.output(3, limits) == first


def test_it_is_told_apart_from_its_parent(worker: Any) -> None:
    assert worker.output(1, "import os; output = [os.getsid(0), os.getpgid(0)]") == [worker.process.pid] * 2
    assert os.getsid(0) != worker.process.pid

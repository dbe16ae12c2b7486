"""The limits a worker sets itself, in real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from typing import Any

import pytest

from adescent.sandbox.confinement import FILE_BYTES, MOST_OPEN_FILES, OPEN_FILES, PROCESSES

LEVELS = ("limits", "landlock", "bubblewrap")
SECONDS = 30


def after(code: str, *, before: str = "", level: str = "limits") -> Any:
    """What ``code`` prints, as JSON, in an interpreter that ran ``before`` and confined itself."""
    script = (
        f"import json, os, resource, sys, threading; {before}\n"
        "from adescent.sandbox.confinement import allow_cpu, confine\n"
        f"confine({level!r}, workspace=os.getcwd(), memory_mb=512, network=False, readable=[])\n"
        f"print(json.dumps({code}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
    )
    if ran.returncode:
        raise ChildProcessError(ran.stderr)
    return json.loads(ran.stdout)


@pytest.mark.parametrize("level", LEVELS)
def test_memory_beyond_the_limit_is_not_to_be_had(place: Any, level: str) -> None:
    place.need(level)
    assert place.attempt(level, "take_memory", mib=300, memory_mb=512) == {"take_memory": 300 << 20}
    assert "MemoryError" in place.attempt(level, "take_memory", mib=600, memory_mb=512)["take_memory"]


def test_memory_without_a_limit_is_the_systems_matter(place: Any) -> None:
    assert place.attempt("limits", "take_memory", mib=600, memory_mb=None) == {"take_memory": 600 << 20}


def test_shared_memory_is_not_counted(place: Any) -> None:
    assert place.attempt("limits", "share_memory", mib=600, memory_mb=512) == {"share_memory": 600 << 20}


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_has_a_largest_size(place: Any, level: str) -> None:
    place.need(level)
    found = place.attempt(level, "write_a_large_file", mib=(FILE_BYTES >> 20) + 1)
    assert "File too large" in found["write_a_large_file"]


def test_no_more_than_so_many_files_are_open_at_once(place: Any) -> None:
    assert "Too many open files" in place.attempt("limits", "open_many_files", files=OPEN_FILES)["open_many_files"]


@pytest.mark.parametrize("level", LEVELS)
def test_the_limits_are_what_they_are_said_to_be(place: Any, level: str) -> None:
    place.need(level)
    limits = place.attempt(level, "say_its_limits", memory_mb=512)["say_its_limits"]
    assert limits["CORE"] == [0, 0]
    assert limits["DATA"] == [512 << 20, 512 << 20]
    assert limits["FSIZE"] == [FILE_BYTES, FILE_BYTES]
    assert limits["NOFILE"] == [OPEN_FILES, min(MOST_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])]
    if level == "bubblewrap":
        assert limits["NPROC"] == [PROCESSES, PROCESSES]
    else:
        assert PROCESSES < limits["NPROC"][0] == limits["NPROC"][1]


@pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not count the processes of root")
def test_processes_have_a_number_that_is_not_passed(place: Any) -> None:
    running = len(os.listdir("/proc"))  # noqa: PTH208
    asked = running + 4 * PROCESSES
    assert place.attempt("limits", "fork_many", processes=asked)["fork_many"] < asked


def test_a_limit_that_is_lower_already_stays() -> None:
    lower = "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 100)); resource.setrlimit(resource.RLIMIT_FSIZE, (5, 7))"
    kept = "[resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_FSIZE)]"
    assert after(kept, before=lower) == [[60, 100], [5, 7]]


def test_at_none_nothing_changes(place: Any) -> None:
    limits = place.attempt("none", "say_its_limits", memory_mb=1)["say_its_limits"]
    assert limits["DATA"] == list(resource.getrlimit(resource.RLIMIT_DATA))
    assert limits["NOFILE"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))


def test_processor_time_beyond_what_was_allowed_ends_the_process(place: Any) -> None:
    assert place.exit_code("limits", "burn") == -signal.SIGXCPU


def test_processor_time_is_allowed_anew_for_what_comes_next(place: Any) -> None:
    found = place.attempt("limits", "burn_more_than_was_allowed_at_first", "allow_all_again")
    assert found["burn_more_than_was_allowed_at_first"] > 1.2
    assert found["allow_all_again"] is True


def test_limits_beyond_what_the_kernel_counts_are_no_limits() -> None:
    script = (
        "import os; from adescent.sandbox.confinement import allow_cpu, confine;"
        "confine('limits', workspace=os.getcwd(), memory_mb=10**18, network=False, readable=[]); allow_cpu(1e300)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=SECONDS)


def test_landlock_is_refused_beside_another_thread(place: Any) -> None:
    place.need("landlock")
    waiting = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    with pytest.raises(ChildProcessError, match="before it has a second thread"):
        after("0", before=waiting, level="landlock")


def test_bubblewrap_is_not_claimed_outside_of_it() -> None:
    with pytest.raises(ChildProcessError, match="start the worker by what bubblewrap_command"):
        after("0", level="bubblewrap")


def test_a_worker_loads_little_for_it() -> None:
    loaded = set(after("sorted(sys.modules)", before="sys.modules.pop('ctypes', None)"))
    assert "adescent.sandbox.confinement" in loaded
    assert loaded.isdisjoint({"subprocess", "ctypes", "tempfile", "anyio"})
    assert {name for name in loaded if name.startswith("adescent.sandbox.")} == {"adescent.sandbox.confinement"}

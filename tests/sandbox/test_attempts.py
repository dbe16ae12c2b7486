"""What each level stops, tried by real interpreters: the table of the documentation, row by row.

Whether an attempt is stopped is told by the level that stops nothing of the kind: there it has to succeed, or it shows
nothing on this machine.
"""

from __future__ import annotations

import functools
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adescent.sandbox import landlock

ATTEMPTS = (
    "read_a_file_outside",
    "have_a_program_read_a_file_outside",
    "link_to_a_file_outside",
    "list_a_directory_outside",
    "write_a_file_outside",
    "empty_a_file_outside",
    "remove_a_file_outside",
    "move_a_file_in",
    "read_the_users",
    "patch_what_is_shared",
    "change_the_mode_of_what_is_shared",
    "connect_by_tcp",
    "connect_by_fast_open",
    "connect_by_multipath_tcp",
    "listen_on_tcp",
    "send_by_udp",
    "connect_to_a_program",
    "connect_to_a_program_by_name",
    "talk_to_the_machine_around",
    "signal_the_parent",
    "read_the_parents_environment",
    "read_the_parents_memory",
    "trace_the_parent",
    "trace_who_is_the_same_user",
    "share_memory_by_number",
    "lower_the_parents_limits",
    "mount_something",
    "get_capabilities_by_running_a_program",
    "lift_the_memory_limit",
    "read_the_key_ring",
    "make_a_ring",
    "become_root_of_a_namespace",  # the last one: what comes after it would be in there
)
NOT_STOPPED = {
    "landlock": {"change_the_mode_of_what_is_shared"},
    # In a network of its own, where nobody else is.
    "bubblewrap": {"listen_on_tcp"},
    "bubblewrap as root": {"listen_on_tcp"},
}
REFUSED = (
    *("PermissionError", "FileNotFoundError", "ProcessLookupError", "ConnectionRefusedError"),
    *("OSError", "ValueError: not allowed", "CalledProcessError", "Nothing arrived"),
)
NECESSARY = {
    "work_in_the_workspace": "kept",
    "import_a_library": "looped",
    "import_a_neighbour": "neighbour",
    "run_a_program": "heard",
    "start_a_thread": "threaded",
    "talk_to_itself": "heard",
    "throw_away": None,
    "draw_at_random": 4,
    "read_its_own_state": "R",
}


def achieved(place: Any, variant: str, attempts: tuple[str, ...], *, network: bool = False) -> dict[str, Any]:
    level = variant.split()[0]
    private = place.outside.with_name("private")
    private.mkdir(mode=0o700, exist_ok=True)
    # What only root may read keeps the sandbox from becoming somebody else.
    readable = (private,) if variant == "bubblewrap as root" else ()
    place.shared.chmod(0o755)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        found: dict[str, Any] = place.attempt(
            level, *attempts, network=network, readable=readable, udp=udp.getsockname()[1]
        )
        if "send_by_udp" in found and not select.select([udp], [], [], 0)[0]:
            found["send_by_udp"] = found["send_by_udp"] or "! Nothing arrived"
    return found


Achieved = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def at(module_place: Any) -> Achieved:
    """What was achieved in one variant, looked up once."""

    @functools.cache
    def found(variant: str) -> dict[str, Any]:
        for name in ("secret", "to be emptied", "to be removed", "to be moved"):
            (module_place.outside / name).write_text("secret")
        return achieved(module_place, variant, (*NECESSARY, *ATTEMPTS))

    return found


def failed(outcome: Any) -> bool:
    return isinstance(outcome, str) and outcome.startswith("! ")


VARIANTS = ("landlock", "bubblewrap", "bubblewrap as root")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_code_was_not_given_is_out_of_its_reach(
    at: Achieved, module_place: Any, variant: str, attempt: str
) -> None:
    module_place.need(variant.split()[0])
    if variant == "landlock" and attempt == "signal_the_parent" and landlock._abi() < 6:
        pytest.skip("this kernel's Landlock knows nothing of signals (Linux 6.12 does)")
    unconfined = at("limits")[attempt]
    if failed(unconfined):
        pytest.skip(f"not to be had on this machine anyway: {unconfined}")
    outcome = at(variant)[attempt]
    if attempt in NOT_STOPPED[variant]:
        assert not failed(outcome)
    else:
        assert failed(outcome)
        assert outcome.removeprefix("! ").startswith(REFUSED)


@pytest.mark.parametrize("variant", ["limits", *VARIANTS])
def test_what_code_needs_it_can_do(at: Achieved, module_place: Any, variant: str) -> None:
    module_place.need(variant.split()[0])
    found = at(variant)
    assert {name: found[name] for name in NECESSARY} == NECESSARY


def test_most_attempts_would_succeed_without_confinement(at: Achieved) -> None:
    outcomes = at("limits")
    unprivileged = [name for name in ATTEMPTS if failed(outcomes[name])]
    assert len(unprivileged) <= len(ATTEMPTS) // 3, unprivileged


@pytest.mark.parametrize("variant", VARIANTS)
def test_who_may_use_the_network_reaches_no_program_beside_it(place: Any, variant: str) -> None:
    place.need(variant.split()[0])
    attempts = ("connect_by_tcp", "send_by_udp", "connect_to_a_program", "connect_to_a_program_by_name")
    found = achieved(place, variant, (*attempts, "talk_to_the_machine_around"), network=True)
    assert not failed(found["connect_by_tcp"])
    assert not failed(found["send_by_udp"])
    assert all(failed(found[name]) for name in (*attempts[2:], "talk_to_the_machine_around"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
def test_root_keeps_its_capabilities_up_to_limits_only(at: Achieved, module_place: Any) -> None:
    module_place.need("landlock")
    assert not failed(at("limits")["get_capabilities_by_running_a_program"])
    assert failed(at("landlock")["get_capabilities_by_running_a_program"])

"""What the pages list is what the code has: options, outcomes, policies, errors, events, counters, levels, files."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from attrs import fields

import adescent
from adescent import errors, telemetry
from adescent.budget import Purpose
from adescent.cli import exits
from adescent.config import front_door_signature
from adescent.executors import PoolStatistics, ProcessExecutor, outcomes
from adescent.policies import Outcome, Policies
from adescent.runtime.result import EvolutionResult
from adescent.sandbox import LEVELS
from adescent.workspec import FailureKind, Level, SandboxSpec

REPOSITORY = Path(__file__).parents[2]
PACKAGE = Path(adescent.__file__).parent
HEADER = re.compile(r"\| *:?-+")


def table(page: str, first_header: str) -> list[list[str]]:
    """The rows of the one table of a page whose first column has this header, as the texts of their cells."""
    lines = (REPOSITORY / "docs" / page).read_text(encoding="utf-8").splitlines()
    (start,) = (at for at, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    assert HEADER.match(lines[start + 1])
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def codes(cell: str) -> list[str]:
    """What stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def named(page: str, first_header: str) -> list[str]:
    """What the first column of a table names."""
    return [name for row in table(page, first_header) for name in codes(row[0])]


def test_every_option_is_listed_in_order_with_its_default() -> None:
    listed = {codes(option)[0]: default for option, default, _ in table("options.md", "option")}
    parameters = front_door_signature("rounds").parameters
    assert list(listed) == list(parameters)
    for name, parameter in parameters.items():
        required = parameter.default is parameter.empty
        empty_bundle = name in ("budget", "policies")
        default = "required" if required else f"`{name.title()}()`" if empty_bundle else f"`{parameter.default!r}`"
        assert listed[name] == default, name


def test_every_option_of_a_process_executor_is_listed_in_order_with_its_default() -> None:
    listed = {codes(option)[0]: default for option, default, *_ in table("processes.md", "option")}
    parameters = dict(inspect.signature(ProcessExecutor).parameters)
    required = parameters.pop("n")
    assert required.default is required.empty
    assert listed == {"n": "required", **{name: f"`{each.default!r}`" for name, each in parameters.items()}}


def test_every_statistic_of_a_pool_is_listed_in_order() -> None:
    assert named("processes.md", "statistic") == [each.name for each in fields(PoolStatistics)]
    assert set(ProcessExecutor(1).counters()) == set(named("processes.md", "statistic")[-5:])


def test_counters_of_a_pool_are_among_those_of_a_run() -> None:
    assert set(ProcessExecutor(1).counters()) <= set(named("failures.md", "counter"))


def test_every_level_is_counted_in_a_run() -> None:
    counted = {f"rollouts_at_{level}" for level in LEVELS if level != "none"}
    assert counted <= set(named("failures.md", "counter"))


def test_every_way_to_lose_a_rollout_is_listed() -> None:
    assert named("processes.md", "`type`") == [name for name, _ in outcomes._LOST.values()]


def test_every_kind_of_result_is_listed() -> None:
    assert set(named("executors.md", "`kind`")) == {"ok", *get_args(FailureKind)}


def test_every_field_of_a_sandbox_is_listed_in_order_with_its_default() -> None:
    listed = [(codes(name)[0], default) for name, default, _ in table("processes.md", "field")]
    assert listed == [(each.name, f"`{each.default!r}`") for each in fields(SandboxSpec)]


def test_every_level_of_confinement_is_listed_weakest_first() -> None:
    assert named("processes.md", "level") == list(get_args(Level))


def test_every_field_of_a_result_that_is_for_reading_is_listed() -> None:
    beside = {"artifact_id", "exception", "noisy", "resumed_from", "elapsed", "outcome_counts", "fusion", "under_way"}
    listed = {name.partition("(")[0] for name in named("quickstart.md", "field")}
    assert {each.name for each in fields(EvolutionResult)} - beside <= listed


def test_outcomes_are_those_of_the_code() -> None:
    assert named("concepts.md", "outcome") == [outcome.value for outcome in Outcome]


def test_purposes_are_those_of_the_code() -> None:
    assert named("concepts.md", "purpose") == list(get_args(Purpose))


def test_every_policy_is_listed_in_order() -> None:
    listed = table("policies.md", "field")
    assert [codes(row[0])[0] for row in listed] == [each.name for each in fields(Policies)]
    for name, protocol, *_ in listed:
        assert codes(protocol)[0] in Policies.__annotations__[codes(name)[0]]


def test_every_error_is_listed() -> None:
    listed = [codes(row[0])[0] for row in table("failures.md", "error")]
    assert sorted(listed) == sorted(errors.__all__)


def test_exit_codes_are_those_of_the_command() -> None:
    codes_of_the_command = {getattr(exits, name) for name in exits.__all__}
    assert named("failures.md", "exit code") == [str(code) for code in sorted(codes_of_the_command)]


def test_every_event_is_listed() -> None:
    assert sorted(named("architecture.md", "event")) == sorted(set(telemetry.__all__) - {"Emit", "Event", "EventHub"})


def test_every_counter_that_is_listed_is_counted_somewhere() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    patterns = {f"audits_{decision}": 'f"audits_{' for decision in ("passed", "rejected", "unavailable")}
    patterns |= {f"rollouts_at_{level}": 'f"rollouts_at_{' for level in LEVELS}
    patterns |= dict.fromkeys(("reward_failed", "worker_failed"), 'f"{failure.stage}_failed"')
    for name in named("failures.md", "counter"):
        assert patterns.get(name, f'"{name}"') in source, name


def test_every_counter_that_is_counted_is_listed() -> None:
    counted = {name for path in PACKAGE.rglob("*.py") for name in counted_in(path)}
    assert "retries" in counted
    assert counted <= set(named("failures.md", "counter"))


def counted_in(path: Path) -> Iterator[str]:
    """The names that a file counts under, those it puts together aside."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match call:
            case ast.Call(func=ast.Attribute(attr="count" | "_count"), args=[ast.Constant(value=str(name))]):
                yield name
            case ast.Call(func=ast.Attribute(attr="count" | "_count"), args=[ast.IfExp(body=body, orelse=other)]):
                yield from (str(node.value) for node in (body, other) if isinstance(node, ast.Constant))


@pytest.fixture(scope="module")
def floors() -> tuple[tuple[str, ...], ...]:
    """The table of floors, as the test of the layering has it."""
    tree = ast.parse((REPOSITORY / "tests" / "test_layering.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "FLOORS"
    )
    assert value is not None
    found: tuple[tuple[str, ...], ...] = ast.literal_eval(value)
    return found


def test_rooms_and_their_floors_are_those_of_the_package(floors: tuple[tuple[str, ...], ...]) -> None:
    there = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    listed = [(int(floor), codes(room)[0]) for floor, room, _ in table("architecture.md", "floor")]
    assert listed == [(at, room) for at, rooms in enumerate(floors) for room in sorted(rooms) if room in there]


@pytest.mark.parametrize("room", ["executors", "executors/child", "sandbox"])
def test_every_file_of_a_room_that_has_many_is_listed_once(room: str) -> None:
    there = sorted(path.stem for path in (PACKAGE / room).glob("*.py"))
    assert sorted(named("architecture.md", f"file in `{room}/`")) == there

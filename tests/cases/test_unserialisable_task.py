"""What cannot be stored is refused at the start and by name, not when it is to be saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from adescent.errors import ContractError
from adescent.evolution import async_evolve
from adescent.tasks import Task

VALUES: dict[str, Callable[[], Any]] = {
    "a lambda": lambda: lambda: None,
    "a set": lambda: {1, 2},
    "an object": object,
    "not a number": lambda: float("nan"),
    "bytes": lambda: b"bytes",
    "a lambda deep inside": lambda: {"list": [1, {"deep": lambda: None}]},
    "half a character": lambda: "\ud800",
}


@pytest.mark.anyio
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("where", ["tasks", "held_out", "test"])
@pytest.mark.parametrize("as_row", [True, False], ids=["row", "task"])
async def test_meta_that_cannot_be_stored_is_refused_before_anything_runs(
    rows: Any, actors: Any, score: Any, where: str, value: str, as_row: bool, tmp_path: Path, anyio_backend: Any
) -> None:
    bad: Any = {"id": "the-bad-one", "prompt": "?", "the_field": VALUES[value]()}
    if not as_row:
        bad = Task(bad["id"], bad["prompt"], {"the_field": bad["the_field"]})
    options: dict[str, Any] = {"tasks": rows, "held_out": rows[:5], "test": rows[:5]}
    options[where] = [*options[where], bad]
    with anyio.fail_after(30), pytest.raises(ContractError, match=r"the-bad-one.*the_field"):
        await async_evolve(options.pop("tasks"), score, **actors, **options, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.anyio
async def test_an_open_file_is_refused_too(
    rows: Any, actors: Any, score: Any, tmp_path: Path, anyio_backend: Any
) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(ContractError, match="the_field"):
        await async_evolve([*rows, {"id": "x", "prompt": "?", "the_field": file}], score, **actors)

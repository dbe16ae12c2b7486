"""Secrets in worker processes: what is named gets there, and comes back from nowhere."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from adescent.executors import ProcessExecutor, collect_rollouts
from adescent.policies import Actors
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task
from adescent.workspec import Failure, Result, RolloutSpec, SandboxSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("importable", "tokens")]

BOUND = 30.0
TASK = Task("t1", "?")
TOKEN = "s3cret/token+value"


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", TOKEN)
    monkeypatch.setenv("OTHER_TOKEN", "nobody named this one")


def ref(name: str) -> Ref:
    return Ref(f"process_actors:{name}", call=False)


def spec_of(rendered: str = "rules", task: Task = TASK, **more: Any) -> RolloutSpec:
    return RolloutSpec(rendered, task, **more)


def failure_of(result: Result) -> Failure:
    assert result.error is not None
    return result.error


async def rolled_out(executor: ProcessExecutor, run: str, reward: str, *specs: RolloutSpec) -> list[Result]:
    cast = Actors(ref(run), ref(reward), resolver=Resolver(("process_actors:",)))
    with anyio.fail_after(BOUND):
        async with executor.attach_actors(cast) as view:
            return await collect_rollouts(view, specs)


async def test_variables_are_passed_by_name_and_their_values_come_back_nowhere(anyio_backend: Any) -> None:
    executor = ProcessExecutor(1, sandbox=SandboxSpec(env=("API_TOKEN",)))
    environment, returned, raised, died = await rolled_out(
        executor,
        "leaking",
        "leaking_feedback",
        spec_of(run=ref("environment")),
        spec_of(),
        spec_of("raise"),
        spec_of("die"),
    )
    assert environment.output["API_TOKEN"] == "«API_TOKEN»"
    assert not {"OTHER_TOKEN", "PYTHONPATH"} & set(environment.output)
    assert returned.output == {"deep": [{"«API_TOKEN»": "<«API_TOKEN»>"}]}
    assert returned.score == Score(1.0, "the token is «API_TOKEN»")
    assert failure_of(raised).message == "raised «API_TOKEN»"
    assert "Transient: raised «API_TOKEN»" in raised.traceback
    for result in (returned, raised, died):
        assert result.log.startswith("printed «API_TOKEN»\n")
        assert result.checkpoint == {"kept": "«API_TOKEN»"}
    assert died.log.count("died of «API_TOKEN»") == 3
    for result in (environment, returned, raised, died):
        assert TOKEN not in repr(result)


async def test_values_are_those_of_the_opening(anyio_backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ProcessExecutor(1, sandbox=SandboxSpec(env=("API_TOKEN",)))
    for token in (TOKEN, "the-next-one"):
        monkeypatch.setenv("API_TOKEN", token)
        (died,) = await rolled_out(executor, "leaking", "leaking_feedback", spec_of("die"))
        assert died.log.count("died of «API_TOKEN»") == 3
        assert token not in repr(died)


async def test_nor_in_the_names_of_metrics_and_exceptions(anyio_backend: Any) -> None:
    executor = ProcessExecutor(1, sandbox=SandboxSpec(env=("API_TOKEN",)))
    named, raised = await rolled_out(executor, "threads", "leaking_names", spec_of(), spec_of(task=Task("t2", "raise")))
    assert named.score == Score(1.0, metrics={"«API_TOKEN»": 2.0})
    assert failure_of(raised).type == "«API_TOKEN»"
    assert TOKEN not in repr(named) + repr(raised)

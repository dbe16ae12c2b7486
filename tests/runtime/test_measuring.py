"""What is measured on which tasks, how often, and what the figures of a result rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from adescent.aggregator import ConfirmedPromotion
from adescent.evolution import Evolution, async_evolve
from adescent.policies import Policies
from adescent.runtime.result import EvolutionResult
from adescent.stats import rate_interval
from adescent.tasks import Score, Task

pytestmark = pytest.mark.anyio

BOUND = 60.0


class Watched:
    """Actors of a world with five lessons that write down what they were asked."""

    def __init__(self, tasks: int = 20) -> None:
        self.rows = [{"id": f"t{at}", "prompt": f"lesson-{at % 5}"} for at in range(tasks)]
        self.ran: list[tuple[str, str]] = []
        self.proposed: list[str] = []
        self.flips: Callable[[str, int], bool] = lambda task_id, count: False
        self.counts: Counter[tuple[str, str]] = Counter()

    async def run(self, rendered: str, task: Task) -> bool:
        await anyio.lowlevel.checkpoint()
        self.ran.append((rendered, task.id))
        return task.prompt in rendered

    async def reward(self, task: Task, output: bool) -> float:
        self.counts["reward", task.id] += 1
        return float(output ^ self.flips(task.id, self.counts["reward", task.id]))

    async def propose(self, rendered: str, task: Task, output: Any, score: Score) -> str:
        self.proposed.append(task.id)
        return f"know {task.prompt}"

    async def evolve(self, schedule: str, **options: Any) -> EvolutionResult:
        given = {"run": self.run, "propose": self.propose, "rounds": 5, "schedule": schedule, **options}
        with anyio.fail_after(BOUND):
            return await async_evolve(given.pop("tasks", self.rows), given.pop("reward", self.reward), **given)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def rows(prefix: str, count: int) -> list[dict[str, str]]:
    return [{"id": f"{prefix}{at}", "prompt": f"lesson-{at % 5}"} for at in range(count)]


# Splits ---------------------------------------------------------------------------------------------------------------


async def test_each_split_has_its_use(watched: Watched, schedule: str, anyio_backend: Any) -> None:
    result = await watched.evolve(
        schedule, tasks=rows("train", 10), held_out=rows("held", 5), test=rows("sealed", 7), noise="no"
    )
    first = sorted(task_id for _, task_id in watched.ran[:5])
    assert first == [f"held{at}" for at in range(5)], "the seed, before anything else"
    assert all(task_id.startswith("train") for task_id in watched.proposed)
    opened = [at for at, (_, task_id) in enumerate(watched.ran) if task_id.startswith("sealed")]
    assert opened == list(range(len(watched.ran) - 7, len(watched.ran))), "at the very end, each once"
    assert {rendered for rendered, _ in watched.ran[-7:]} == {result.rendered}
    assert result.test.trials == 7
    assert result.test_reward == 1.0


async def test_tasks_that_share_an_id_across_splits_are_not_mixed(
    watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    held = [{"id": f"t{at}", "prompt": "unknowable"} for at in range(6)]
    result = await watched.evolve(schedule, tasks=rows("t", 6), held_out=held)
    assert result.seed_reward == result.final_reward == 0.0
    assert result.version == 1


async def test_the_test_split_stays_sealed_when_there_is_none(
    watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    none: list[Task] = []
    for test in (None, none):
        result = await watched.evolve(schedule, rounds=1, test=test)
        assert result.test_reward is None
        assert "test" not in result.calls_by_purpose


# Figures --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [1, 3])
async def test_figures_rest_on_what_was_measured(
    watched: Watched, schedule: str, repeats: int, anyio_backend: Any
) -> None:
    result = await watched.evolve(schedule, eval_repeats=repeats, test_frac=0.25)
    held_out, test = 8, 5
    assert (result.seed.value, result.seed.trials) == (0.0, held_out * repeats)
    assert (result.final.value, result.final.trials) == (1.0, held_out * repeats)
    assert (result.test.value, result.test.trials) == (1.0, test * repeats)
    assert result.calls_by_purpose["final"] == held_out * repeats, "measured anew"
    assert result.noisy is (repeats > 1)
    assert ("noise" in result.calls_by_purpose) is (repeats == 1)
    for figure in (result.seed, result.final, result.test, result.stable):
        assert figure.value is not None
        assert figure.interval == rate_interval(figure.value * figure.trials, figure.trials)
    assert result.stable_version == result.version
    assert result.stable_reward == 1.0


async def test_a_head_that_lost_its_worth_is_not_promoted_at_the_end(
    watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    """The world changes under the last measurement: what is stable stays the version that holds."""
    over = False

    async def fickle(rendered: str, task: Task) -> bool:
        return task.prompt in rendered and not over

    options: Any = {"run": fickle, "propose": watched.propose, "schedule": schedule, "rounds": 10_000}
    options["policies"] = Policies(promotion=ConfirmedPromotion(k=10_000))  # not before the end
    with anyio.fail_after(BOUND):
        async with Evolution(watched.rows, watched.reward, initial_state="know lesson-0", **options) as run:
            while run.status().version < 2:
                await anyio.lowlevel.checkpoint()
            over = True
            run.stop()
            result = await run.result()
    assert result.final_reward == 0.0
    assert result.version > result.stable_version
    assert result.stable_reward == result.seed_reward is not None


# Noise ----------------------------------------------------------------------------------------------------------------


async def test_a_scorer_that_changes_its_mind_is_noticed(watched: Watched, schedule: str, anyio_backend: Any) -> None:
    probed = {f"t{at}" for at in range(20)}
    watched.flips = lambda task_id, count: count == 2 and task_id in probed  # only the second look differs
    result = await watched.evolve(schedule)
    assert result.noisy
    assert result.calls_by_purpose["noise"] == 8


@pytest.mark.parametrize(("noise", "noisy"), [("yes", True), ("no", False)])
async def test_who_says_what_noise_there_is_is_not_asked_to_pay(
    noise: str, noisy: bool, watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    result = await watched.evolve(schedule, noise=noise)
    assert result.noisy is noisy
    assert "noise" not in result.calls_by_purpose


async def test_noise_is_probed_on_at_most_eight_tasks(schedule: str, anyio_backend: Any) -> None:
    for tasks, probed in ((10, 4), (40, 8)):
        result = await Watched(tasks).evolve(schedule, rounds=1)
        assert result.calls_by_purpose["noise"] == probed
        assert not result.noisy


@pytest.mark.parametrize("confirm_repeats", [1, 2, 4])
async def test_a_noisy_candidate_is_confirmed_as_often_as_asked(
    watched: Watched, schedule: str, confirm_repeats: int, anyio_backend: Any
) -> None:
    result = await watched.evolve(schedule, noise="yes", confirm_repeats=confirm_repeats, n_workers=1, rounds=1)
    assert result.version == 2
    # One look, then so many fresh measurements of both sides, on eight held-out tasks.
    assert result.calls_by_purpose["gate"] == 8 * (1 + 2 * confirm_repeats)


async def test_without_noise_one_look_decides(watched: Watched, schedule: str, anyio_backend: Any) -> None:
    result = await watched.evolve(schedule, n_workers=1, rounds=1, confirm_repeats=4)
    assert result.calls_by_purpose["gate"] == 8


# The oracle -----------------------------------------------------------------------------------------------------------


async def test_an_oracle_that_disagrees_has_the_last_word(watched: Watched, schedule: str, anyio_backend: Any) -> None:
    async def doubt(task: Task, output: Any) -> float:
        return 0.5

    result = await watched.evolve(schedule, blast_radius=0.5, oracle=doubt)
    assert result.version == 1
    assert result.outcomes()["oracle-rejected"] > 0
    assert result.counters["audits_rejected"] > 0


@pytest.mark.parametrize("blast_radius", [0.3, 0.31])
async def test_far_reaching_artifacts_go_through_the_oracle(
    watched: Watched, schedule: str, blast_radius: float, anyio_backend: Any
) -> None:
    async def agree(task: Task, output: Any) -> float:
        return float(output)

    result = await watched.evolve(schedule, blast_radius=blast_radius, oracle=agree, n_workers=1)
    assert result.final_reward == 1.0
    assert (result.counters.get("audits_passed", 0) > 0) is (blast_radius > 0.3)


async def test_without_an_oracle_of_its_own_nothing_is_bought_twice(
    watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    result = await watched.evolve(schedule, blast_radius=0.5)
    assert result.final_reward == 1.0
    assert result.counters["audits_passed"] > 0
    assert "audit" not in result.calls_by_purpose


async def test_an_oracle_beyond_its_budget_is_missed_and_not_replaced(
    watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    scored: list[str] = []

    async def agree(task: Task, output: Any) -> float:
        scored.append(task.id)
        return float(output)

    # The first audit takes 8 for the base and 8 for the candidate; the next base is known, its candidate is not.
    result = await watched.evolve(schedule, blast_radius=0.5, oracle=agree, oracle_budget=20, n_workers=1)
    assert len(scored) == 16
    assert result.version == 2
    assert result.outcomes()["audit-unavailable"] > 0


async def test_the_cheap_subset_is_drawn_from_train(watched: Watched, schedule: str, anyio_backend: Any) -> None:
    async def agree(task: Task, output: Any) -> float:
        return float(output)

    split = {"tasks": rows("train", 10), "held_out": rows("held", 5)}
    result = await watched.evolve(schedule, **split, oracle=agree, cheap_eval_tasks=3, n_workers=1)
    assert result.calls_by_purpose["rule"] % 3 == 0
    assert result.final_reward == 1.0


# Verified by workers --------------------------------------------------------------------------------------------------


async def test_a_worker_that_verifies_hands_in_only_what_helped(
    watched: Watched, schedule: str, anyio_backend: Any
) -> None:
    known = "\n".join(f"- know lesson-{at}" for at in range(5))

    async def half(task: Task, output: bool) -> float:
        return 0.5 if output else 0.25

    async def spoil(*_: Any) -> dict[str, list[str]]:
        watched.proposed.append("")
        return {"remove": [f"know lesson-{at}" for at in range(5)]}

    options: dict[str, Any] = {"initial_state": known, "reward": half, "propose": spoil}
    careless = await watched.evolve(schedule, **options)
    assert sum(careless.outcomes().values()) > 0
    careful = await watched.evolve(schedule, **options, self_verify=True)
    assert careful.outcomes() == {}
    assert careful.counters["self_verify_rejected"] == careful.calls_by_purpose["proposal"] == careful.rollouts
    assert 0 < careful.calls_by_purpose["self-verify"] <= careful.rollouts

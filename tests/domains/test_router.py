from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from adescent.domains import Domain, route, router_domain, router_run
from adescent.domains.router import LABELS
from adescent.errors import OptionError
from adescent.evolvable import Diff, State, changed, contradicts
from adescent.refs import Ref, Resolver
from adescent.tasks import Score, Task, make_splits

FAILED = Score(0.0)


def rate(domain: Domain, state: State, tasks: Sequence[Task] = ()) -> float:
    rendered = domain.strategy.render(state)
    scores = [float(domain.reward(task, route(rendered, task.prompt))) for task in tasks or domain.tasks]
    return sum(scores) / len(scores)


def start(domain: Domain) -> State:
    return domain.strategy.initial(domain.initial_state)


def proposed(domain: Domain, state: State, task: Task) -> Diff:
    return domain.strategy.to_diff(state, domain.propose(domain.strategy.render(state), task, "", FAILED), "rules")


# Routing --------------------------------------------------------------------------------------------------------------

RULES = "- (otherwise): sales\n- kolabu: billing\n- please: returns\n- never: returns\n- tafori: account"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("nothing is known here", "sales"),
        ("question kolabu today", "billing"),
        ("kolabu please", "billing"),  # one vote each: the first one decides
        ("please kolabu", "returns"),
        ("kolabu please never", "returns"),
        ("kolabu please please", "returns"),  # every word counts
        ("kolabus tafori", "account"),  # whole words only
        ("", "sales"),
    ],
)
def test_the_most_votes_win(text: str, label: str) -> None:
    assert route(RULES, text) == label


def test_without_any_rule_there_is_no_answer() -> None:
    assert route("", "question kolabu today") == ""


@pytest.mark.anyio
async def test_the_actor_routes_the_prompt() -> None:
    with anyio.fail_after(5):
        assert await router_run()(RULES, Task("t", "question kolabu")) == "billing"


@pytest.mark.trio
async def test_a_rollout_takes_the_delay_asked_for(autojump_clock: Any) -> None:
    before = anyio.current_time()
    await router_run(delay=60.0)(RULES, Task("t", "question kolabu"))
    assert anyio.current_time() - before == pytest.approx(60.0)


def test_a_ref_names_the_actor() -> None:
    ref = Ref("adescent.domains.router:router_run", {"delay": 0.0})
    assert callable(Resolver().resolve(ref))


# The domain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_there_is_much_to_learn_and_it_can_all_be_learnt(seed: int) -> None:
    domain = router_domain(seed=seed)
    assert 0.1 <= rate(domain, start(domain)) <= 0.3
    assert domain.solution is not None
    assert rate(domain, domain.solution) == 1.0


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_contradictions_leave_no_perfect_artifact(share: float) -> None:
    domain = router_domain(contradictions=share)
    assert domain.solution is not None
    assert rate(domain, domain.solution) == pytest.approx(1.0 - share / 2)


def test_the_same_options_give_the_same_domain() -> None:
    one, same, other = router_domain(seed=1), router_domain(seed=1), router_domain(seed=2)
    assert (one.tasks, one.solution) == (same.tasks, same.solution)
    assert one.tasks != other.tasks
    state = start(one)
    assert [proposed(one, state, task) for task in one.tasks] == [proposed(same, state, task) for task in one.tasks]


def test_clusters_and_labels_are_equally_common() -> None:
    domain = router_domain(n_clusters=6, tasks_per_cluster=24)
    assert Counter(task.cluster for task in domain.tasks) == {f"c{number}": 24 for number in range(6)}
    assert Counter(task.meta["gold"] for task in domain.tasks) == dict.fromkeys(LABELS, 24)


def test_a_cluster_teaches_nothing_about_another() -> None:
    domain = router_domain(noise=0.0)
    own = [task for task in domain.tasks if task.cluster == "c0"]
    others = [task for task in domain.tasks if task.cluster != "c0"]
    state = start(domain)
    for task in own:
        state = changed(state, proposed(domain, state, task).ops)
    assert rate(domain, state, own) == 1.0
    assert rate(domain, state, others) == rate(domain, start(domain), others)


def test_what_the_train_split_teaches_holds_on_the_held_out_one() -> None:
    domain = router_domain(noise=0.0)
    splits = make_splits(domain.tasks)
    state = start(domain)
    rates = []
    for task in splits.train:
        state = changed(state, proposed(domain, state, task).ops)
        rates.append(rate(domain, state, splits.held_out))
    assert rates[20] < 0.6 < 0.9 < rates[-1]


# Proposing ------------------------------------------------------------------------------------------------------------


def mistakes(noise: float) -> float:
    domain = router_domain(noise=noise, seed=3)
    assert domain.solution is not None
    wrong = 0
    for task in domain.tasks:
        ops = proposed(domain, start(domain), task).ops
        wrong += any(domain.solution.get(keyword) != label for keyword, label in ops.items())
    return wrong / len(domain.tasks)


def test_as_many_proposals_are_wrong_as_asked_for() -> None:
    assert mistakes(0.0) == 0.0
    assert 0.12 <= mistakes(0.2) <= 0.28
    assert mistakes(1.0) == 1.0


def test_chance_hangs_on_the_artifact_so_a_moved_head_gives_a_new_try() -> None:
    domain = router_domain(noise=0.5)
    before = start(domain)
    after = {**before, "unrelated": "sales"}
    changes = [proposed(domain, before, task) != proposed(domain, after, task) for task in domain.tasks]
    assert 0.2 <= sum(changes) / len(changes) <= 0.9


def test_rules_that_outvote_the_right_one_are_removed() -> None:
    domain = router_domain(noise=0.0)
    task = next(task for task in domain.tasks if task.meta["gold"] == "account")
    assert domain.solution is not None
    wrong = [word for word in task.prompt.split() if word not in domain.solution][:2]
    state = {**domain.solution, **dict.fromkeys(wrong, "sales")}
    assert route(domain.strategy.render(state), task.prompt) == "sales"
    assert proposed(domain, state, task).ops == dict.fromkeys(wrong)


def contradicting_pairs(share: float) -> int:
    domain = router_domain(noise=0.0, contradictions=share)
    diffs = {(task.cluster, proposed(domain, start(domain), task)) for task in domain.tasks}
    return sum(contradicts(one, other) for cluster, one in diffs for neighbour, other in diffs if cluster < neighbour)


def test_diffs_of_two_clusters_contradict_each_other_where_asked_for() -> None:
    assert contradicting_pairs(0.0) == 0
    assert contradicting_pairs(0.5) > 0


@pytest.mark.parametrize(
    "option",
    [
        {"n_clusters": 0},
        {"tasks_per_cluster": 1.5},
        {"noise": 1.1},
        {"contradictions": -0.1},
        {"delay": -1},
        {"noise": True},
    ],
)
def test_numbers_out_of_range_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(option))):
        router_domain(**option)

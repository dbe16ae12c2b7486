from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from adescent.aggregator.books import COUNTED, HISTORY, REJECTED, Book
from adescent.aggregator.ends import End
from adescent.evolvable import Diff, Evolvable
from adescent.policies import Measurement, Outcome, Pool, Reading, SettledCard

HEAD = Evolvable("a", {"x": "1"}, version=1)
EDIT = Diff("a", {"y": "1"})
LOST = End(Outcome.TIE, "no better")


@pytest.fixture
def book() -> Book:
    return Book(HEAD, HEAD)


def test_a_rejection_holds_for_the_content_it_was_measured_against(book: Book) -> None:
    book.reject(EDIT, LOST)
    assert book.rejected(EDIT) == LOST
    assert book.rejected(Diff("a", {"y": "2"})) is None
    book.moved(evolve(HEAD, state={"x": "2"}, version=2))
    assert book.rejected(EDIT) is None
    book.moved(evolve(HEAD, version=3))  # rolled back: the same content again
    assert book.rejected(EDIT) == LOST


def test_memory_is_bounded_and_forgets_the_oldest(book: Book) -> None:
    for number in range(REJECTED + 1):
        book.reject(Diff("a", {"y": str(number)}), LOST)
    assert book.rejected(Diff("a", {"y": "0"})) is None
    assert book.rejected(Diff("a", {"y": "1"})) == book.rejected(Diff("a", {"y": str(REJECTED)})) == LOST


def test_what_is_remembered_is_the_text_that_was_measured(book: Book) -> None:
    """New keys stand in the order of the edit, so the same keys and values in another order are another text."""
    book.reject(Diff("a", {"y": "1", "z": "2"}), LOST)
    assert book.rejected(Diff("a", {"y": "1", "z": "2"})) == LOST
    assert book.rejected(Diff("a", {"z": "2", "y": "1"})) is None


def test_repeat_numbers_are_used_once_for_each_content(book: Book) -> None:
    assert book.unused_repeats(HEAD, 2) == range(2)
    assert book.unused_repeats(HEAD, 1) == range(2, 3)
    other = evolve(HEAD, state={"x": "2"})
    book.used(other, 3)
    book.used(other, 1)
    assert book.unused_repeats(other, 1) == range(3, 4)
    assert book.unused_repeats(evolve(HEAD, version=7), 1) == range(3, 4)


def test_head_and_stable_keep_their_repeat_numbers_however_many_candidates_come(book: Book) -> None:
    """Measured under a number of before, a head would be confirmed by the very scores that made it the head."""
    head = evolve(HEAD, state={"x": "2"}, version=2)
    book.used(HEAD, 5)
    book.used(head, 3)
    book.moved(head)
    for number in range(2 * COUNTED):
        book.used(evolve(HEAD, state={"x": f"candidate {number}"}), 1)
    assert book.unused_repeats(head, 1) == range(3, 4)
    assert book.unused_repeats(HEAD, 1) == range(5, 6)
    assert book.unused_repeats(evolve(HEAD, state={"x": "candidate 0"}), 1) == range(1)  # the others are bounded


def test_the_pool_of_a_head_that_is_stable_is_stables(book: Book) -> None:
    book.measured(Measurement((Reading("h0", 1.0, 1),)))
    assert book.stable_pool == book.pool == Pool({"h0": (1.0, 1)})
    book.committed(evolve(HEAD, version=2), Pool({"h0": (0.0, 1)}))
    assert book.stable_pool == Pool({"h0": (1.0, 1)})
    book.measured(Measurement((Reading("h0", 1.0, 1),)))
    assert book.stable_pool == Pool({"h0": (1.0, 1)})
    book.promoted()
    assert (book.stable.version, book.stable_pool) == (2, Pool({"h0": (1.0, 2)}))


@pytest.mark.parametrize(
    ("outcomes", "quiet"),
    [
        (["below-threshold", "tie"], 2),
        (["below-threshold", "committed"], 0),
        (["tie", "oracle-rejected"], 0),
        (["stale", "duplicate", "no-op", "unmeasured", "rebase-failed"], 1),
        ([], 1),
    ],
)
def test_what_moves_the_promotion_clock(book: Book, card: Any, outcomes: list[str], quiet: int) -> None:
    book.quiet = 1
    book.settled(tuple(SettledCard(card(x="1"), Outcome(outcome)) for outcome in outcomes))
    assert book.quiet == quiet
    assert len(book.history) == len(outcomes) <= HISTORY

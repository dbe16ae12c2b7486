"""What has been read is remembered, within bounds."""

from __future__ import annotations

import pytest
from attrs import evolve

from adescent.evolvable import Evolvable
from adescent.ledger import MemoryLedger, parsed


def test_memory_is_bounded_and_what_was_forgotten_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed, "REMEMBERED_BYTES", 30_000)
    ledger = MemoryLedger()
    for number in range(30):
        head = ledger.register(Evolvable(f"a{number}", {"text": "0", "rest": "x" * 300}))
        for turn in range(3):
            head = ledger.commit(evolve(head, state={**head.state, "text": str(turn)}), head.version)
        assert ledger._parsed._bytes <= 30_000
        assert sum(weight for _, weight in ledger._parsed._known.values()) == ledger._parsed._bytes
    assert {held.state["text"] for held in ledger.snapshot().values()} == {"2"}
    assert len(ledger.log()) == 120
    assert ledger.diff("a0", 1, 4).ops == {"text": "2"}
    assert ledger._parsed._bytes <= 30_000


def test_what_is_known_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger()
    head = ledger.register(Evolvable("a", {"text": "0"}))
    monkeypatch.setattr(ledger._keeper, "read", lambda *_: pytest.fail("read back"))
    for turn in range(5):
        head = ledger.commit(evolve(head, state={"text": str(turn)}), head.version)
    assert ledger.snapshot()["a"] is ledger.head("a") is head
    assert len(ledger.history("a")) == 6

from __future__ import annotations

import anyio
import pytest
from attrs import frozen

from adescent.telemetry import Event, EventHub

pytestmark = pytest.mark.anyio


@frozen(kw_only=True)
class Numbered(Event):
    number: int


def emit(hub: EventHub, *numbers: int) -> None:
    for number in numbers:
        hub.emit(lambda elapsed, number=number: Numbered(elapsed=elapsed, number=number))  # type: ignore[misc]


def unwanted(elapsed: float) -> Event:
    pytest.fail("an event was made that nobody listens to")


async def test_every_subscriber_gets_what_happens_from_its_subscription_on() -> None:
    hub = EventHub()
    with anyio.fail_after(5), hub.open() as early:
        emit(hub, 1)
        with hub.open() as late:
            emit(hub, 2)
            hub.close()
            assert [event.number async for event in early if isinstance(event, Numbered)] == [1, 2]
            assert [event.number async for event in late if isinstance(event, Numbered)] == [2]


async def test_no_event_is_made_for_nobody() -> None:
    hub = EventHub()
    hub.emit(unwanted)
    with hub.open():
        hub.close()
        hub.emit(unwanted)


async def test_a_subscriber_that_does_not_read_loses_the_newest_and_stalls_nobody() -> None:
    hub = EventHub(buffer=2)
    with anyio.fail_after(5), hub.open() as slow, hub.open() as fast:
        seen = []
        for number in range(5):
            emit(hub, number)
            event = fast.receive_nowait()
            assert isinstance(event, Numbered)
            seen.append(event.number)
        hub.close()
        assert seen == [0, 1, 2, 3, 4]
        assert [event.number async for event in slow if isinstance(event, Numbered)] == [0, 1]
        assert hub.dropped == 3


async def test_a_subscriber_that_left_is_forgotten() -> None:
    hub = EventHub()
    with hub.open() as stays:
        with hub.open():
            pass
        emit(hub, 1, 2)
        assert stays.statistics().current_buffer_used == 2
        hub.close()
    gone = EventHub()
    with gone.open():
        pass
    emit(gone, 1)
    gone.emit(unwanted)
    assert gone.dropped == 0


async def test_who_subscribes_after_the_end_is_told_at_once() -> None:
    hub = EventHub()
    hub.close()
    hub.close()
    with anyio.fail_after(5), hub.open() as late:
        assert [event async for event in late] == []
        hub.emit(unwanted)


async def test_events_carry_the_seconds_of_the_run() -> None:
    hub = EventHub()
    with hub.open() as events:
        before = hub.elapsed()
        emit(hub, 1)
        assert 0.0 <= before <= events.receive_nowait().elapsed <= hub.elapsed()
        hub.close()

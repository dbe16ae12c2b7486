"""What a watcher sees of a run: events, delivered without ever stalling it."""

from __future__ import annotations

from adescent.telemetry.events import *  # noqa: F403 - the room's own public names
from adescent.telemetry.events import __all__ as _events
from adescent.telemetry.hub import Emit, EventHub

__all__ = ["Emit", "EventHub", *_events]

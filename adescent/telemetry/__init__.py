"""What a watcher sees of a run: events, delivered without ever stalling it."""

from __future__ import annotations

from adescent.telemetry.events import *  # noqa: F403 - the room's own public names
from adescent.telemetry.events import __all__ as _events
from adescent.telemetry.hub import EventHub

__all__ = ["EventHub", *_events]  # noqa: PLE0604 - the list holds strings

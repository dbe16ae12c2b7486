"""Where the line between algorithm and infrastructure is written down: protocols, their records, and the bundle."""

from __future__ import annotations

from adescent.policies.bundle import Policies
from adescent.policies.protocols import *  # noqa: F403 - the room's own public names
from adescent.policies.protocols import __all__ as _protocols
from adescent.policies.records import *  # noqa: F403 - the room's own public names
from adescent.policies.records import __all__ as _records

__all__ = ["Policies", *_protocols, *_records]

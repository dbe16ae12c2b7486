"""Where the line between algorithm and infrastructure is written down: protocols, their records, and the bundle.

Protocols carry no implementation, and decisions are functions of what they are given. What needs state between calls
hands out a view for one run (``begin``, or a factory in the bundle), so that one policy object may serve several runs
at once.
"""

from __future__ import annotations

from adescent.policies.bundle import Policies
from adescent.policies.execution import *  # noqa: F403 - the room's own public names
from adescent.policies.execution import __all__ as _execution
from adescent.policies.keeping import *  # noqa: F403
from adescent.policies.keeping import __all__ as _keeping
from adescent.policies.measuring import *  # noqa: F403
from adescent.policies.measuring import __all__ as _measuring
from adescent.policies.records import *  # noqa: F403
from adescent.policies.records import __all__ as _records
from adescent.policies.search import *  # noqa: F403
from adescent.policies.search import __all__ as _search

__all__ = ["Policies", *_execution, *_keeping, *_measuring, *_records, *_search]

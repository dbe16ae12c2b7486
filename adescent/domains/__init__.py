"""Things to run on that need no model, no network and no key."""

from __future__ import annotations

from adescent.domains.domain import Domain
from adescent.domains.router import route, router_domain, router_run

__all__ = ["Domain", "route", "router_domain", "router_run"]

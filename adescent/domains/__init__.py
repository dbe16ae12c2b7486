"""Things to run on that need no model, no network and no key."""

from __future__ import annotations

from adescent.domains.domain import Domain
from adescent.domains.router import route, router_domain, router_run
from adescent.domains.utterances import jsonl_domain, utterance_domain

__all__ = ["Domain", "jsonl_domain", "route", "router_domain", "router_run", "utterance_domain"]

"""The rules that a swarm's record can break, each by its stable name. It must never check anything; ``shape``,
``record`` and ``actions`` do.

``refold explain`` has a page for each of them; a fault names the rule and says in words how it was broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["RULE_TEXTS"]

RULE_TEXTS: Final[Mapping[str, str]] = {
    "swarm.json": "the text is exactly one JSON value: no key twice, no NaN, no infinity, not too deep",
    "swarm.field": "every field has its type",
    "swarm.missing": "the fields without a default are there",
    "swarm.key": "keys are text that can be stored",
    "swarm.worker_key": "workers and guidances stand under worker ids: decimal digits, no leading zero, at most 2^64-1",
    "swarm.entries_max": "no list and no map has more entries than a swarm may have workers",
    "swarm.own_name": "a worker, and an action, stands under its own id or name",
    "swarm.one_escalation": "at most one escalation of a worker is open",
    "swarm.done_once": "done_workers names each worker once",
    "swarm.worker_known": "escalations, guidances and done_workers name workers of the record",
    "swarm.raised_in_time": "an escalation was raised at the record's tick or before",
    "swarm.has_escalation": "has_escalation says whether an escalation of the worker is open",
    "swarm.phase": "a worker's phase agrees with the escalations and the done workers",
}
"""Every rule by its stable name."""

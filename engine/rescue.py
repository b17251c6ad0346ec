"""Rescue: what lies behind the damage of a store, as lines of JSON. It must never give them a form that ``refold
import`` takes: they are evidence, never data.

What lies behind a damage is no run any more, since the state it would be folded into is not known. Each line is one
event, with ``proved`` saying whether the link of its commit follows from the one before it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from engine.archive import stored_type, to_json
from engine.core.catalog import Catalog
from engine.core.errors import EngineError
from engine.savable import Behind

__all__ = ["rescue_lines"]

FORMAT: Final = 1


def rescue_lines(found: Behind, catalog: Catalog) -> Iterator[str]:
    """Yield the events of a commit behind the damage, a line each, without line ends.

    ``run`` and ``seq`` are null when the commit does not say whose it is. An event of a kind that is not known, or of
    another form, stands as it is under ``wire``.
    """
    seq = found.commit.first - 1
    for at_ms, actor, command_id, _, cause, events in found.commit.groups:
        for wire in events:
            seq += 1
            line = {
                "refold_rescue": FORMAT,
                "proved": found.proved,
                "run": found.run,
                "seq": None if found.run is None else seq,
                "recorded_at_ms": _shown(at_ms),
                "actor": _shown(actor),
                "command_id": _shown(command_id),
                "cause": _shown(cause),
                "cause_back": _shown(wire[1]),
                **_content(wire, catalog),
            }
            yield json.dumps(line, ensure_ascii=False, allow_nan=False)


def _content(wire: Any, catalog: Catalog) -> dict[str, Any]:
    try:
        event_type = stored_type(catalog, wire)
        data = event_type.data(wire)
        event_type.check(data)
    except (EngineError, ValueError, TypeError):
        return {"type": None, "wire": _shown(wire)}
    return {"type": event_type.label, "data": {name: to_json(value) for name, value in data.items()}}


def _shown(value: Any) -> Any:
    """Return anything that can be decoded as JSON."""
    if value is None or type(value) in (bool, int, str) or (type(value) is float and isfinite(value)):
        return value
    if type(value) is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if type(value) is list:
        return [_shown(item) for item in value]
    if type(value) is dict:
        return {"$pairs": [[_shown(key), _shown(item)] for key, item in value.items()]}
    return repr(value)

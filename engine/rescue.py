"""Rescue: what lies behind the damage of a store, and how it is told. It must never give it a form that ``refold
import`` takes: it is evidence, never data.

What lies behind a damage is no run any more, since the state it would be folded into is not known. Each event is a line
of JSON, with ``proved`` saying whether the link of its commit follows from the one before it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from engine.archive import stored_type, to_json
from engine.core.catalog import Catalog
from engine.core.codec import NotCanonical, decode
from engine.core.envelope import EVENTS, LINK_BYTES, Commit, body_of
from engine.core.errors import EngineError
from engine.savable import Plan, Savable, Saved
from engine.store.remains import Place, Remains

__all__ = ["Behind", "astray", "behind", "rescue_lines", "savable"]

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Behind:
    """A commit behind the damage: of which run (None: no run that is known), and whether its link follows from the row
    before it."""

    run: str | None
    commit: Commit
    proved: bool


def behind(plan: Plan, made: Saved) -> Iterator[Behind]:
    """Yield what lies behind the first damage of a run, in order."""
    remains, before = plan.remains, [made.link]
    for first, places in remains.rows(made.run, after=made.last):
        left = [place for place in places if place not in plan.strays]
        found = next((found for link in before for place in left if (found := remains.open(place, first, link))), None)
        if found is not None:
            yield Behind(made.run, found.commit, True)
            before = [found.commit.link]
            continue
        commit = next((commit for place in left if (commit := _unproved(remains, first, place))), None)
        if commit is not None:
            yield Behind(made.run, commit, False)
        before = [remains.link(place) for place in left] or before  # damaged rows may state their link still


def astray(plan: Plan) -> Iterator[Behind]:
    """Yield what is of no run that is known. To be asked when the plan is through."""
    for place in plan.remains.astray():
        commit = None if place in plan.strays else _unproved(plan.remains, 1, place)
        if commit is not None:
            yield Behind(None, commit, False)


def savable(made: Saved, found: Iterable[Behind]) -> Savable:
    """Return what is to be said of a run, having counted what lies behind its damage."""
    counts = {True: 0, False: 0}
    for one in found:
        counts[one.proved] += one.commit.count
    return Savable(made.run, made.last, made.expected, counts[True], counts[False], made.note)


def _unproved(remains: Remains, first: int, place: Place) -> Commit | None:
    """Return a commit whose link does not hold, None when its bytes are none."""
    for stored in remains.readable(place):
        try:
            groups = decode(body_of(stored))
        except NotCanonical:
            continue
        if type(groups) is list and groups and all(map(_is_group, groups)):
            return Commit(first, sum(len(group[EVENTS]) for group in groups), stored[:LINK_BYTES], groups)
    return None


def _is_group(group: Any) -> bool:
    """Return whether a value has the form of a command's events."""
    return (
        type(group) is list
        and len(group) == EVENTS + 1
        and type(group[EVENTS]) is list
        and group[EVENTS] != []
        and all(type(wire) is list and len(wire) >= 2 for wire in group[EVENTS])
    )


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

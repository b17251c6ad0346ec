"""What a fold must not do with what it is given: change an event, keep a part of one, share a record with its dump; nor
change a record without telling its table, or return a state instead of changing the one it has. Found by doing to the
event and the dump what must not matter, and looking whether it does.

A projection may say ``shares_values = True``: values inside its records are only ever replaced as a whole, so it may
keep those of events and hand them out in dumps. Then it is checked that it keeps that word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from engine.core.catalog import EventType, Wire
from engine.core.codec import decode, encode, encode_exactly
from engine.core.envelope import COMMAND_ID, EVENTS, FINGERPRINT, Group
from engine.core.errors import InvalidValue, LimitExceeded
from engine.core.model import Model
from engine.core.state import ModelState
from engine.core.table import Key, Table
from engine.difference import difference, difference_of_dumps, difference_of_forms
from engine.divergence import Divergence, last_touch
from engine.testing.failure import ReplayDiffers

__all__ = ["WatchedFold", "check_purity", "since"]

_MARK: Final = "changed behind its back"
_WATCHED_MAX: Final = 200
_RECORDS_MAX: Final = 500  # up to which all records are looked at after every event, and not only those it touched


def check_purity(model: Model, groups: Iterable[Group]) -> int:
    """Fold groups and check every event and every touched record; return the number of events. Raises ReplayDiffers.

    After each event: the event is as it was, and so are those before it; changing it afterwards does not change the
    state; every record that it touched is equal to what its dump loads to, and shares nothing with the dump.
    """
    fold = WatchedFold(model)
    for group in groups:
        fold.group(group)
    return fold.state.seq


class WatchedFold:
    """A fold that is watched. ``handed`` are the events and dumps that it must leave alone from now on, ``known`` the
    records as of the last event."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.state = model.initial()
        self.handed: deque[tuple[str, Any, bytes]] = deque(maxlen=_WATCHED_MAX)
        self.known: dict[tuple[str, Key], bytes] | None = {}
        self.sharing = {p.name for p in model.projections if getattr(p, "shares_values", False)}

    def group(self, group: Group) -> None:
        """Fold the events of a group, one by one, and look at what became of each."""
        if group[COMMAND_ID] is not None:
            self.state.note(group[COMMAND_ID], group[FINGERPRINT], self.state.seq + 1, len(group[EVENTS]))
        for wire in group[EVENTS]:
            self.event(self.model.catalog.lift(wire))

    def event(self, wire: Wire) -> None:
        """Fold one event and look at what became of it."""
        state = self.state
        event_type = self.model.catalog.type_of(wire)
        for table in state.tables.values():
            table.changed.clear()
        given = decode(encode(wire))
        where = f"event {state.seq + 1} ({event_type.label})"
        self.handed.append((where, given, encode(wire)))
        self._fold(given, event_type, where)
        self._check_handed(where, event_type)
        self._check_untouched(where)
        touched = [(name, table, key) for name, table in state.tables.items() for key in table.changed]
        dumps = {(name, key): _dump(table, key) for name, table, key in touched}
        owner = self.model.owner.get(wire[0])
        if owner is None or owner.name not in self.sharing:
            self.handed.pop()
            _spoil(given[2:])
        for name, table, key in touched:
            if _dump(table, key) != dumps[name, key]:
                raise ReplayDiffers(f"evolve keeps a part of {where} in {name} {key!r}: copy what the state is to hold")
            shares = name.partition(".")[0] in self.sharing
            if shares:
                self._hand_out(f"the dump of {name} {key!r} after {where}", table, key)
            self._check_record(name, key, where, shares=shares)

    def _fold(self, given: Wire, event_type: EventType, where: str) -> None:
        owner = self.model.owner.get(given[0])
        if owner is not None:
            returned = owner.evolve[event_type.name](self.state.parts[owner.name], given, self.state.seq + 1)
            if returned is not None:
                raise ReplayDiffers(
                    f"evolve of {where} returns {type(returned).__name__}, which nobody keeps: "
                    "change the state it is given, and return nothing"
                )
        self.state.seq += 1

    def _check_untouched(self, where: str) -> None:
        """Check that no record has changed but those that their tables know of."""
        tables = {name: table for name, table in self.state.tables.items() if table is not self.state.ledger}
        if sum(len(table.rows) for table in tables.values()) > _RECORDS_MAX:
            self.known = None
            return
        now = {(name, key): encode(row.dump()) for name, table in tables.items() for key, row in table.rows.items()}
        before = now if self.known is None else self.known
        for name, key in {**before, **now}:
            if key not in tables[name].changed and now.get((name, key)) != before.get((name, key)):
                raise ReplayDiffers(
                    f"evolve changed {name} {key!r} without a note of its table (after {where}): "
                    "take a record to change from table.edit(), put new ones in by table.add()"
                )
        self.known = now

    def _check_handed(self, where: str, event_type: EventType) -> None:
        for what, value, before in self.handed:
            if encode(value) == before:
                continue
            apart = difference_of_forms(decode(before), value)
            if what != where:
                raise ReplayDiffers(f"evolve of {where} changed a value of {what}, {apart}: replace what is shared")
            parts = zip(decode(before), value, strict=False)
            place = next((index for index, (one, other) in enumerate(parts) if encode(one) != encode(other)), 0)
            field = event_type.names[place - 2] if place >= 2 else "tag"
            raise ReplayDiffers(f"evolve changed {where}, which it was given, in field {field}: {apart}")

    def _hand_out(self, what: str, table: Table[Any], key: Key) -> None:
        row = table.rows.get(key)
        if row is not None:
            dumped = row.dump()
            self.handed.append((what, dumped, encode(dumped)))

    def _check_record(self, name: str, key: Key, where: str, *, shares: bool) -> None:
        table = self.state.tables[name]
        row, named = table.rows.get(key), f"{name} {key!r}"
        if row is None:
            return
        dumped = row.dump()
        try:
            before = encode_exactly(row.dump(), f"the dump of {named}")
        except (InvalidValue, LimitExceeded) as error:
            raise ReplayDiffers(f"no checkpoint can hold a record (after {where}): {error.message}") from error
        given = decode(before)
        loaded = table.load(given)
        if encode(loaded.dump()) != before:
            apart = difference_of_dumps(name, key, self.state, dumped, loaded.dump())
            raise ReplayDiffers(f"load of {named} does not give back what dump wrote (after {where}): {apart}")
        if shares:
            return
        _spoil(dumped)
        if encode(row.dump()) != before:
            raise ReplayDiffers(f"dump of {named} shares a part of the record (after {where}): copy what is mutable")
        _spoil(given)
        if encode(loaded.dump()) != before:
            raise ReplayDiffers(
                f"load of {named} keeps a part of what it is given (after {where}): copy what is mutable"
            )


def _dump(table: Table[Any], key: Key) -> bytes | None:
    row = table.rows.get(key)
    return None if row is None else encode(row.dump())


def _spoil(value: Any) -> None:
    """Change every list and map inside a value."""
    if type(value) is list:
        for item in value:
            _spoil(item)
        value.append(_MARK)
    elif type(value) is dict:
        for item in value.values():
            _spoil(item)
        value[_MARK] = True


def since(groups: Iterable[Group], fold: ModelState, other: ModelState) -> Divergence | None:
    """Return how a state differs from the fold of these groups, and the last event that touched what differs."""
    found = difference(fold, other)
    if found is None:
        return None
    if found.table not in fold.tables:
        return Divergence(fold.seq, None, found)
    seq, label = last_touch(groups, fold.model.initial(), found.table, found.key)
    return Divergence(seq, label, found)

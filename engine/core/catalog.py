"""The event catalogue: names, versions and field tables. A stored event of an older version is lifted here, step by
step; it is never edited.

On the wire an event is ``[tag, cause, field, ...]``. The tag of a catalogued type is ``number * 16 + version``: small,
and a reader
that knows the number but not the version can say so. Types without a number (users' own) are tagged by their text,
``name/version``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from engine.core.checker import Check, checker
from engine.core.codec import encode
from engine.core.errors import InvalidValue, LimitExceeded, SchemaError
from engine.core.fields import Field

__all__ = ["Catalog", "EventType", "Tag", "Upcast", "Wire"]

Tag: TypeAlias = int | str
Wire: TypeAlias = list[Any]
"""An event as stored: ``[tag, cause_back, field, ...]``; ``cause_back`` is 0 for the command, k for the event k places
before."""

VERSIONS_MAX = 15
_DIGITS_MAX: Final = 9  # of a version that somebody else wrote; Python refuses to read very many


@dataclass(frozen=True)
class EventType:
    """One version of one kind of event: ``name`` is past tense with its projection in front (``task.finished``)."""

    name: str
    fields: tuple[Field, ...]
    doc: str = ""
    version: int = 1
    number: int | None = None
    tag: Tag = field(init=False)
    names: tuple[str, ...] = field(init=False)
    check: Check = field(init=False, repr=False, compare=False)
    """``check({field: value})``: the stored form, every value checked and normalised. A missing key reads as None.
    Raises InvalidValue naming the field, also for a key that the event does not have."""

    def __post_init__(self) -> None:
        assert 1 <= self.version <= VERSIONS_MAX and (self.number is None or self.number > 0)
        put = object.__setattr__
        put(self, "tag", self.label if self.number is None else self.number * 16 + self.version)
        put(self, "names", tuple(column.name for column in self.fields))
        put(self, "check", checker(self.tag, self.fields, self._check_slowly))

    @property
    def label(self) -> str:
        """The name that people and exports see, ``task.finished/1``."""
        return f"{self.name}/{self.version}"

    def wire(self, *values: Any) -> Wire:
        """Return the stored form of an event whose values are already checked, caused by the command."""
        assert len(values) == len(self.fields), f"{self.label} takes {len(self.fields)} fields, not {len(values)}"
        return [self.tag, 0, *values]

    def _check_slowly(self, data: Mapping[str, Any]) -> Wire:
        """Do :attr:`check` field by field."""
        wire: Wire = [self.tag, 0]
        for column in self.fields:
            try:
                wire.append(column.type.check(data.get(column.name)))
            except InvalidValue as error:
                raise error.at(f"{self.name}.{column.name}") from None
        extra = sorted(str(key) for key in data if key not in self.names)
        if extra:
            hint = f"fields: {', '.join(self.names)}" if self.names else "the event has no fields"
            raise InvalidValue(f"{self.name}.{extra[0]}", "the event has no such field", hint=hint)
        return wire

    def data(self, wire: Sequence[Any]) -> dict[str, Any]:
        """Return ``{field: value}`` of a stored event of this type."""
        return dict(zip(self.names, wire[2:], strict=True))


@dataclass(frozen=True, slots=True)
class Upcast:
    """The step from one version of an event to the next: takes and returns the fields in order, and must be pure."""

    old: EventType
    lift: Callable[[Sequence[Any]], Sequence[Any]]


def _lifted(step: Upcast, newer: EventType, values: Sequence[Any]) -> list[Any]:
    """Return what an upcast makes of the fields of a stored event. Raises SchemaError."""
    try:
        lifted = list(step.lift(values))
    except Exception as error:  # it is somebody's code, and the event is as it was written
        raise _bad_upcast(step.old, f"fails with {type(error).__name__}: {error}") from error
    if len(lifted) != len(newer.names):
        raise _bad_upcast(step.old, f"gives {len(lifted)} fields, where {newer.label} has {len(newer.names)}")
    return lifted


def _bad_upcast(old: EventType, problem: str) -> SchemaError:
    hint = "mend the upcast; nothing is wrong with an event of a record that 'refold verify' faults for nothing else"
    return SchemaError(f"the upcast of {old.label} {problem}", hint=hint, tag=old.label)


def _recheck(event_type: EventType, wire: Wire) -> None:
    values = wire[2:]
    if len(values) != len(event_type.names) or len(wire) < 2:
        found = f"{len(values)} fields, where {event_type.label} has {len(event_type.names)}"
        raise InvalidValue(event_type.name, found)
    checked = event_type.check(event_type.data(wire))
    for name, value, now in zip(event_type.names, values, checked[2:], strict=True):
        if now is not value and encode(now) != encode(value):
            raise InvalidValue(f"{event_type.name}.{name}", "not the one form that the check gives such a value")


class Catalog:
    """All event types a model knows, with the steps that lift older versions. Immutable after it is built."""

    def __init__(self, types: Iterable[EventType], upcasts: Iterable[Upcast] = ()) -> None:
        self.types = tuple(types)
        self.upcasts = tuple(upcasts)
        self.by_name = {event_type.name: event_type for event_type in self.types}
        self.by_tag: dict[Tag, EventType] = {event_type.tag: event_type for event_type in self.types}
        assert len(self.by_name) == len(self.by_tag) == len(self.types), "two event types share a name or a number"
        self.older: dict[Tag, Upcast] = {step.old.tag: step for step in self.upcasts}
        for step in self.upcasts:
            current = self.by_name.get(step.old.name)
            assert current is not None and current.number == step.old.number, f"{step.old.label} has no current version"
            versions = range(step.old.version, current.version)
            assert all(self._tag_of(current, version) in self.older for version in versions), (
                f"no way up from {step.old.label}"
            )

    @staticmethod
    def _tag_of(current: EventType, version: int) -> Tag:
        return f"{current.name}/{version}" if current.number is None else current.number * 16 + version

    def type_of(self, wire: Wire) -> EventType:
        """Return the current type of a stored event of any version. Raises SchemaError when it is unknown or newer."""
        tag = wire[0] if wire else None
        known = self.by_tag.get(tag) if isinstance(tag, int | str) else None
        if known is not None:
            return known
        step = self.older.get(tag) if isinstance(tag, int | str) else None
        if step is not None:
            return self.by_name[step.old.name]
        raise self.unknown(tag)

    def lift(self, wire: Wire) -> Wire:
        """Return the event in its current version: itself when it already is, otherwise a new list; the stored one is
        left alone."""
        if not wire or not isinstance(wire[0], int | str):
            raise self.unknown(wire[0] if wire else None)
        while (step := self.older.get(wire[0])) is not None:
            wire, _ = self._lift_once(step, wire)
        if wire[0] not in self.by_tag:
            raise self.unknown(wire[0])
        return wire

    def _lift_once(self, step: Upcast, wire: Wire) -> tuple[Wire, EventType]:
        """Return the event one version further, and its type there."""
        current = self.by_name[step.old.name]
        above = self.older.get(self._tag_of(current, step.old.version + 1))
        newer = current if above is None else above.old
        return [newer.tag, wire[1], *_lifted(step, newer, wire[2:])], newer

    def recheck(self, wire: Wire) -> None:
        """Check a stored event of any version as if its fields were given now; it must be what the check makes of them.
        For who doubts what all readers believe. Raises InvalidValue and LimitExceeded for what no table allowed, and
        SchemaError for an event that this catalogue does not know, or whose upcasts give what their table refuses."""
        current = self.type_of(wire)
        step = self.older.get(wire[0])
        _recheck(current if step is None else step.old, wire)
        while step is not None:
            wire, newer = self._lift_once(step, wire)
            try:
                _recheck(newer, wire)
            except (InvalidValue, LimitExceeded) as error:
                raise _bad_upcast(step.old, f"gives what {newer.label} does not allow: {error.message}") from error
            step = self.older.get(newer.tag)

    def unknown(self, tag: object) -> SchemaError:
        """Return the error for a tag that this catalogue cannot read, saying whether it is newer or foreign."""
        if isinstance(tag, int):
            for event_type in self.types:
                if event_type.number == tag // 16:
                    return self._other_version(event_type, tag % 16)
        if isinstance(tag, str):
            name, _, version = tag.rpartition("/")
            if name in self.by_name and version.isascii() and version.isdigit() and len(version) <= _DIGITS_MAX:
                return self._other_version(self.by_name[name], int(version))
        return SchemaError(
            f"unknown event {tag!r:.200}",
            hint="written by a newer refold, or with a projection that is not loaded: upgrade, or load it",
            tag=tag if isinstance(tag, int | str) else repr(tag),
        )

    @staticmethod
    def _other_version(known: EventType, version: int) -> SchemaError:
        label = f"{known.name}/{version}"
        if version > known.version:
            message = f"event {label} is newer than this refold, which reads up to {known.label}"
            hint = "upgrade refold to the version that wrote the run"
        else:
            message = f"event {label} is not recorded any more; the version now is {known.label}"
            hint = f"give the fields of {known.label}"
        return SchemaError(message, hint=hint, tag=label)

    def check(self, name: str, data: Mapping[str, Any]) -> Wire:
        """Return the stored form of a named event with checked values. ``name`` may carry its version. Raises
        SchemaError, InvalidValue, LimitExceeded."""
        event_type = self.by_name.get(name)
        if event_type is None:
            event_type = self.by_name.get(name.partition("/")[0])
            if event_type is None or name != event_type.label:
                raise self.unknown(name)
        return event_type.check(data)

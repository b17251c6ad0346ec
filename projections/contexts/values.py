"""Reading JSON objects key by key, with the path of what is wrong. It must never guess: a value of another type is
refused, a key nobody asked for is handed back as extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.core.codec import normalise
from engine.core.errors import InvalidValue
from engine.core.fields import Checked, FieldType
from engine.core.json_patch import same
from engine.core.limits import JSON_ENTRIES_MAX, NESTING_DEPTH_MAX

__all__ = ["REQUIRED", "JsonObject", "ObjectReader", "Violation", "array_of", "copy_json", "trimmed"]

JsonObject: TypeAlias = dict[str, Any]

_LEVELS_AROUND: Final = 8

REQUIRED: Final = object()
"""Default of a key that must be there."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with a record: the path to it, what it is, and the message's index when it is a
    message."""

    path: str
    problem: str
    index: int | None = None

    def to_json(self) -> JsonObject:
        """Return the plain form that errors and reports carry."""
        shape: JsonObject = {"path": self.path, "problem": self.problem}
        if self.index is not None:
            shape["index"] = self.index
        return shape


def copy_json(value: Any, depth: int = 0) -> Any:
    """Return a JSON value that shares no container with ``value``. What is none is left as it is, as is what is nested
    too deep: whoever checks the copy then finds it."""
    kind = type(value)
    if kind is dict and depth <= NESTING_DEPTH_MAX:
        return {key: copy_json(item, depth + 1) for key, item in value.items()}
    if kind is list and depth <= NESTING_DEPTH_MAX:
        return [copy_json(item, depth + 1) for item in value]
    return value


def trimmed(values: list[Any], *defaults: Any) -> list[Any]:
    """Return ``values`` without the trailing ones that equal their default; ``defaults`` are those of the last
    places."""
    while defaults and type(values[-1]) is type(defaults[-1]) and values[-1] == defaults[-1]:
        values.pop()
        defaults = defaults[:-1]
    return values


def array_of(label: str, load: Callable[[list[Any]], Any], read: Callable[[Any], Any]) -> Checked:
    """Return the field type of a keyless array: what ``load`` makes of it must pass ``read`` as JSON, and is stored
    trimmed.

    One set of rules then serves JSON records and events from other runtimes.
    """

    def check(value: Any) -> list[Any]:
        if type(value) is not list and type(value) is not tuple:
            raise InvalidValue("", f"expected {label}, found {type(value).__name__}")
        # What loads it takes any sequence for a list. The levels round a user's own value do not count as his.
        plain = normalise(list(value), depth=-_LEVELS_AROUND, entries_max=JSON_ENTRIES_MAX)
        try:
            shape = load(plain).to_json()
        except (TypeError, ValueError, IndexError, KeyError, AttributeError):
            raise InvalidValue("", f"not {label}") from None
        stored: list[Any] = read(shape).dump()
        if not _is_rest(plain, stored):
            raise InvalidValue("", f"not {label}", hint="a list where there is one, and nothing else in its place")
        return stored

    return Checked(label, check)


def _is_rest(given: Any, stored: Any) -> bool:
    """Return whether an array is what is stored of it, and empty behind that, as are those in it: what loads one takes
    a text for the list of its letters, and an object for that of its keys."""
    if type(given) is list and type(stored) is list:
        kept = len(stored)
        return kept <= len(given) and all(map(_is_rest, given, stored)) and not any(given[kept:])
    return same(given, stored)


class ObjectReader:
    """One JSON object being read. ``take`` returns the value of a key, checked; ``extra`` what no one took.

    What is wrong is raised; or, with a list of ``faults``, added to it, and read as if it were not there.
    """

    __slots__ = ("_faults", "_left", "_what")

    def __init__(self, value: Any, what: str, faults: list[InvalidValue] | None = None) -> None:
        if type(value) is not dict:
            raise InvalidValue("", f"expected {what} (an object), found {type(value).__name__}")
        self._left = dict(value)
        self._what = what
        self._faults = faults

    def fault(self, error: InvalidValue) -> None:
        """Raise what is wrong, or note it."""
        if self._faults is None:
            raise error from None
        self._faults.append(error)

    def take(self, key: str, kind: FieldType, default: Any = REQUIRED) -> Any:
        """Return the checked value of ``key``, or the default when the key is absent: None for one that must be there.
        A fault names the key."""
        if key in self._left:
            try:
                return kind.check(self._left.pop(key))
            except InvalidValue as error:
                self.fault(error.at(key))
        elif default is REQUIRED:
            self.fault(InvalidValue(key, f"missing in {self._what}"))
        return None if default is REQUIRED else default

    def entries(self, key: str, read: Callable[[Any], Any], default: Any = ()) -> tuple[Any, ...]:
        """Return what ``read`` makes of the list's entries, without those that it refuses; a fault names each."""
        kept = []
        for index, entry in enumerate(self.take(key, _LIST, default) or ()):
            try:
                kept.append(read(entry))
            except InvalidValue as error:
                self.fault(error.at(f"{key}[{index}]"))
        return tuple(kept)

    def drop(self, key: str) -> None:
        """Leave a key out, whatever it holds."""
        self._left.pop(key, None)

    def extra(self) -> JsonObject | None:
        """Return the keys that were not taken, in canonical form, or None when there is none."""
        try:
            return normalise(self._left) if self._left else None
        except InvalidValue as error:
            self.fault(error)
            return None


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise InvalidValue("", f"expected a list, found {type(value).__name__}")
    return value


_LIST: Final = Checked("list", _list)

"""The types that event fields may have. A field type checks and normalises; it must never coerce one type to another.

``check(value)`` returns the value to store or raises InvalidValue without a path (the caller knows the field's name
and adds it).
``label`` is what FORMAT.md prints; ``arguments`` are what the type was made of, for a strategy that generates values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Protocol, TypeAlias

from engine.core.codec import normalise, text
from engine.core.errors import InvalidValue
from engine.core.limits import ID_BYTES_MAX, TIME_MS_MAX, U32_MAX, U64_MAX
from engine.core.quoted import quoted

__all__ = [
    "BOOL", "BYTES", "FLOAT", "ID", "JSON", "JSON_OBJECT", "TEXT", "TIME_MS", "U32", "U64", "UNIT",
    "Field", "FieldType", "check_id", "list_of", "one_of", "optional",
]  # fmt: skip


class FieldType(Protocol):
    """What a field may hold: ``label`` for documents, ``check`` for values."""

    @property
    def label(self) -> str: ...

    def check(self, value: Any) -> Any: ...


Name: TypeAlias = Callable[[Any], str]
"""Gives a constant a name in the source of a checker."""

Quick: TypeAlias = Callable[[str, Name], str]
"""``quick(variable, name)``: a Python expression that is true only of values that ``check`` returns as they are."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A field type made of a label and a check function. ``arguments``: the inner types, or the labels to choose
    from. ``quick`` is for types that a comparison can tell."""

    label: str
    check: Callable[[Any], Any]
    arguments: tuple[Any, ...] = ()
    quick: Quick | None = None
    takes_none: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One column of an event: its name, its type and one line of meaning."""

    name: str
    type: FieldType
    doc: str = ""


_known_ids: set[str] = set()  # ids come again and again: a pure check need not be made twice
_KNOWN_IDS_MAX: Final = 20_000


def check_id(value: Any) -> str:
    """Return ``value`` if it is an id: text of 1..256 UTF-8 bytes, not blank, no control characters.

    Source of the rule: section 1 of the task table's contract; it holds for every id in refold.
    """
    if type(value) is not str:
        raise InvalidValue("", f"expected an id (text), found {type(value).__name__}")
    if value in _known_ids:
        return value
    text(value, "", ID_BYTES_MAX)
    if not value.strip():
        raise InvalidValue("", "an id must not be empty or blank")
    for char in value:
        if char < " " or "\x7f" <= char <= "\x9f":
            raise InvalidValue("", f"an id must not hold the control character {char!r}")
    if len(_known_ids) >= _KNOWN_IDS_MAX:
        _known_ids.clear()
    _known_ids.add(value)
    return value


def _integer(low: int, high: int, name: str) -> Checked:
    def check(value: Any) -> int:
        if type(value) is not int:
            raise InvalidValue("", f"expected {name} (a whole number), found {type(value).__name__}")
        if not low <= value <= high:
            found = value if abs(value) <= 2**64 else "a longer number"  # Python refuses to print very long ones
            raise InvalidValue("", f"{found} is outside {low}..{high}")
        return value

    return Checked(name, check, quick=lambda value, _: f"type({value}) is int and {low} <= {value} <= {high}")


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidValue("", f"expected true or false, found {type(value).__name__}")
    return value


def _float(value: Any) -> float:
    if type(value) is int and abs(value) <= 2**53:
        return float(value)  # JSON writes 5.0 as 5; the value is the same number, exactly
    if type(value) is not float:
        raise InvalidValue("", f"expected a number, found {type(value).__name__}")
    if not isfinite(value):
        raise InvalidValue("", f"{value} is not a finite number")
    return value + 0.0


def _unit(value: Any) -> float:
    number = _float(value)
    if not 0.0 <= number <= 1.0:
        raise InvalidValue("", f"{number} is outside 0..1")
    return number


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise InvalidValue("", f"expected bytes, found {type(value).__name__}")
    return value


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidValue("", f"expected an object, found {type(value).__name__}")
    result: dict[str, Any] = normalise(value)
    return result


ID: Final = Checked("id", check_id, quick=lambda value, name: f"type({value}) is str and {value} in {name(_known_ids)}")
TEXT: Final = Checked("text", lambda value: text(value, ""))
U32: Final = _integer(0, U32_MAX, "u32")
U64: Final = _integer(0, U64_MAX, "u64")
TIME_MS: Final = _integer(0, TIME_MS_MAX, "time_ms")
BOOL: Final = Checked("bool", _bool, quick=lambda value, _: f"({value} is True or {value} is False)")
FLOAT: Final = Checked("float", _float)
UNIT: Final = Checked("float 0..1", _unit)
BYTES: Final = Checked("bytes", _bytes)
JSON: Final = Checked("json", normalise)
JSON_OBJECT: Final = Checked("json object", _object)


def optional(inner: FieldType) -> Checked:
    """Return a type that also takes None. None, absent and empty stay three distinct values."""
    check = inner.check
    quick = inner.quick if isinstance(inner, Checked) else None
    return Checked(
        f"{inner.label} or null",
        lambda value: None if value is None else check(value),
        (inner,),
        None if quick is None else lambda value, name: f"({value} is None or {quick(value, name)})",
        takes_none=True,
    )


def one_of(name: str, labels: Sequence[str]) -> Checked:
    """Return a type that takes exactly the given labels."""
    allowed = frozenset(labels)

    def check(value: Any) -> str:
        if type(value) is not str or value not in allowed:
            raise InvalidValue("", f"{quoted(value)} is not a {name}", hint=f"one of: {', '.join(labels)}")
        return value

    return Checked(
        f"{name} ({' | '.join(labels)})",
        check,
        tuple(labels),
        lambda value, name: f"type({value}) is str and {value} in {name(allowed)}",
    )


def list_of(inner: FieldType, *, unique: bool = False) -> Checked:
    """Return a type that takes a list (or tuple) of ``inner``, in order; with ``unique``, without duplicates."""

    def check(value: Any) -> list[Any]:
        if type(value) is not list and type(value) is not tuple:
            raise InvalidValue("", f"expected a list, found {type(value).__name__}")
        items = []
        for index, item in enumerate(value):
            try:
                items.append(inner.check(item))
            except InvalidValue as error:
                raise error.at(f"[{index}]") from None
        if unique and len(set(items)) != len(items):
            raise InvalidValue("", "holds a duplicate")
        return items

    return Checked(f"list of {inner.label}", check, (inner, "unique") if unique else (inner,))

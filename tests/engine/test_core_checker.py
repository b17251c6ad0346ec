"""The checker made for an event is the fields' own checks, one after another: same values, same errors."""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.catalog import EventType
from engine.core.errors import EngineError, InvalidValue
from engine.core.fields import BOOL, ID, TEXT, U32, U64, Field, FieldType, list_of, one_of, optional
from engine.core.limits import U32_MAX, U64_MAX
from projections.model import MODEL


class Text(str):
    __slots__ = ()


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


AWKWARD: list[Any] = [
    None, True, False, 0, 1, -1, U32_MAX, U32_MAX + 1, U64_MAX, U64_MAX + 1, 1.0, -0.0, float("nan"), "", " ", "a",
    "red", "running", "\ud800", "\x00", "x" * 300, b"a", [], ["a"], ["a", "a"], ("a",), {}, {"a": 1}, Text("red"),
    Colour.RED, Number.ONE, object(), [[]], {1: 2},
]  # fmt: skip
MISSING = object()


def outcome(check: Any, data: Any) -> Any:
    """Return what a check gives: the values with their types, or the error in full."""
    try:
        return [(type(value), value) for value in check(data)]
    except EngineError as error:
        return (type(error), str(error), error.hint, error.details)


def both(event_type: EventType, data: dict[str, Any]) -> None:
    quickly, slowly = outcome(event_type.check, data), outcome(event_type._check_slowly, data)
    assert repr(quickly) == repr(slowly), data


@pytest.mark.parametrize("event_type", MODEL.catalog.types, ids=lambda event_type: event_type.name)
@given(st.data())
def test_every_event_is_checked_as_its_fields_are(event_type: EventType, data: st.DataObject) -> None:
    """For values of every awkward kind, missing and superfluous keys: the same event, or the same error."""
    values = {name: data.draw(st.sampled_from([MISSING, *AWKWARD])) for name in event_type.names}
    if data.draw(st.booleans()):
        values[data.draw(st.sampled_from(["more", "", 7]))] = 1  # type: ignore[index]
    both(event_type, {name: value for name, value in values.items() if value is not MISSING})


KINDS: list[FieldType] = [ID, TEXT, U32, U64, BOOL, one_of("colour", ("red", "green")), list_of(ID)]


@pytest.mark.parametrize("kind", [*KINDS, *map(optional, KINDS), optional(optional(U32))], ids=lambda kind: kind.label)
@pytest.mark.parametrize("value", AWKWARD, ids=lambda value: f"{type(value).__name__}-{value!r:.20}")
def test_every_kind_of_field_alone_and_beside_another(kind: FieldType, value: Any) -> None:
    """Each awkward value in a field of each type, twice: an id is known the second time."""
    alone = EventType("test.alone", (Field("value", kind),))
    beside = EventType("test.beside", (Field("first", U32), Field("value", kind)))
    for _ in range(2):
        both(alone, {"value": value})
        both(beside, {"first": 1, "value": value})
        both(beside, {"value": value})


def test_as_many_keys_as_fields_are_not_enough() -> None:
    """A key that is missing is not made up for by one that the event does not have, and none is added to what was
    given."""
    event_type = EventType("test.two", (Field("a", U32), Field("b", optional(U32))))
    assert event_type.check(MappingProxyType({"a": 1})) == ["test.two/1", 0, 1, None]
    for data in ({"a": 1, "c": 2}, {"b": 1, "c": 2}):
        given_ = defaultdict(int, data)
        with pytest.raises(InvalidValue):
            event_type.check(given_)
        assert given_ == data


def test_names_of_fields_are_data_in_the_checker() -> None:
    """No text of a catalogue becomes source: any name works, and says nothing but itself."""
    names = ("class", "a b", "'); raise SystemExit #", "data", "c1", "v0", "get", "slowly")
    event_type = EventType("test.names", tuple(Field(name, U32) for name in names))
    assert event_type.check(dict.fromkeys(names, 1)) == ["test.names/1", 0, *[1] * len(names)]
    with pytest.raises(InvalidValue, match="raise SystemExit"):
        event_type.check({**dict.fromkeys(names, 1), names[2]: "x"})

"""The catalogue: events of every version that was ever stored are lifted to the current one, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.catalog import Catalog, EventType, Upcast
from engine.core.errors import InvalidValue, SchemaError
from engine.core.fields import ID, JSON, TEXT, U64, Field, optional

# One event through four versions: a field is added, one is renamed and split, one is dropped.
V1 = EventType("thing.made", (Field("name", ID),), number=7, version=1)
V2 = EventType("thing.made", (Field("name", ID), Field("size", U64)), number=7, version=2)
V3 = EventType("thing.made", (Field("id", ID), Field("title", TEXT), Field("size", U64)), number=7, version=3)
V4 = EventType("thing.made", (Field("id", ID), Field("title", TEXT)), number=7, version=4)
STEPS = (
    Upcast(V1, lambda fields: [*fields, 1]),
    Upcast(V2, lambda fields: [fields[0], f"the {fields[0]}", fields[1]]),
    Upcast(V3, lambda fields: fields[:2]),
)
OWN_1 = EventType("users.own", (Field("x", U64),), version=1)
OWN_2 = EventType("users.own", (Field("x", U64), Field("y", optional(JSON))), version=2)
CATALOG = Catalog((V4, OWN_2), (*STEPS, Upcast(OWN_1, lambda fields: [*fields, None])))


@pytest.mark.parametrize(
    ("stored", "lifted"),
    [
        ([V1.tag, 0, "a"], [V4.tag, 0, "a", "the a"]),
        ([V2.tag, 3, "a", 5], [V4.tag, 3, "a", "the a"]),
        ([V3.tag, 0, "a", "A", 5], [V4.tag, 0, "a", "A"]),
        ([V4.tag, 0, "a", "A"], [V4.tag, 0, "a", "A"]),
        (["users.own/1", 2, 8], ["users.own/2", 2, 8, None]),
    ],
)
def test_a_stored_version_is_lifted_step_by_step(stored: list[Any], lifted: list[Any]) -> None:
    """The lifted event is the current version's, its cause kept, and the stored one is left as it is."""
    before = list(stored)
    assert CATALOG.lift(stored) == lifted
    assert stored == before
    assert CATALOG.type_of(stored).tag == lifted[0]


@given(st.text(min_size=1, max_size=5), st.integers(min_value=1, max_value=3))
def test_the_chain_of_steps_equals_lifting_from_any_version_between(name: str, start: int) -> None:
    """Lifting v1 to v4 at once equals lifting it by hand to any version between and from there to v4."""
    wire: list[Any] = [V1.tag, 0, name]
    whole = CATALOG.lift(wire)
    for step in STEPS[:start]:
        wire = [V1.number * 16 + step.old.version + 1, wire[1], *step.lift(wire[2:])]  # type: ignore[operator]
    assert CATALOG.lift(wire) == whole


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        (V4.number * 16 + 5, "thing.made/5 is newer than this refold, which reads up to thing.made/4"),  # type: ignore[operator]
        ("users.own/3", "users.own/3 is newer than this refold, which reads up to users.own/2"),
        (V4.number * 16, "thing.made/0"),  # type: ignore[operator]
        (999 * 16 + 1, "unknown event 15985"),
        ("nobody.did/1", "unknown event 'nobody.did/1'"),
        ("users.own", "unknown event 'users.own'"),
        (None, "unknown event None"),
        (1.5, "unknown event 1.5"),
        ([1], "unknown event"),
        (b"x", "unknown event"),
    ],
)
def test_unknown_and_newer_events_are_refused_and_say_which(tag: Any, message: str) -> None:
    """The error names the event, and tells one from a newer refold from one that nobody knows."""
    for call in (CATALOG.lift, CATALOG.type_of):
        with pytest.raises(SchemaError) as caught:
            call([tag, 0])
        assert message in caught.value.message
        assert caught.value.hint


def test_an_event_without_a_tag_is_refused() -> None:
    """An empty event is an unknown one."""
    with pytest.raises(SchemaError):
        CATALOG.type_of([])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_version_is_not_called_newer(version: int) -> None:
    """Recording a fact under an old version's name is refused as that, not as one from the future."""
    with pytest.raises(SchemaError) as caught:
        CATALOG.check(f"thing.made/{version}", {})
    assert "newer" not in caught.value.message
    assert f"thing.made/{version}" in caught.value.message


def test_facts_are_checked_field_by_field() -> None:
    """A fact is taken by its name with or without its version; a bad field or an extra one is named by its path."""
    assert CATALOG.check("thing.made", {"id": "a", "title": "A"}) == [V4.tag, 0, "a", "A"]
    assert CATALOG.check("thing.made/4", {"id": "a", "title": "A"}) == [V4.tag, 0, "a", "A"]
    for data, path in [
        ({"id": "", "title": "A"}, "thing.made.id"),
        ({"id": "a"}, "thing.made.title"),
        ({"id": "a", "title": "A", "more": 1}, "thing.made.more"),
        ({"id": "a", "title": "A", 5: 1}, "thing.made.5"),
    ]:
        with pytest.raises(InvalidValue) as caught:
            CATALOG.check("thing.made", data)
        assert caught.value.path == path
    assert CATALOG.check("users.own", {"x": 1}) == ["users.own/2", 0, 1, None]


def test_a_catalogue_with_a_gap_or_a_double_is_a_programming_error() -> None:
    """Two types under one name or number, and versions without a way up, are noticed when the catalogue is built."""
    with pytest.raises(AssertionError, match="share"):
        Catalog((V4, EventType("other.name", (), number=7, version=4)))
    with pytest.raises(AssertionError, match="share"):
        Catalog((V3, V4))
    with pytest.raises(AssertionError, match="no way up"):
        Catalog((V4,), STEPS[:1])
    with pytest.raises(AssertionError, match="no current version"):
        Catalog((OWN_2,), STEPS)


def test_data_of_an_event_is_by_field_name() -> None:
    """What people see of an event is its fields by name; a wire of another length is no event of this type."""
    assert V2.data([V2.tag, 0, "a", 5]) == {"name": "a", "size": 5}
    with pytest.raises(ValueError, match="zip"):
        V2.data([V2.tag, 0, "a"])

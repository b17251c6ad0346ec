"""Field types: each takes exactly its own values and turns none into another."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import InvalidValue
from engine.core.fields import (
    BOOL,
    BYTES,
    FLOAT,
    ID,
    JSON,
    JSON_OBJECT,
    TEXT,
    TIME_MS,
    U32,
    U64,
    UNIT,
    FieldType,
    check_id,
    list_of,
    one_of,
    optional,
)
from tests.engine.strategies import json_values


class Name(str):
    __slots__ = ()


class Kind(enum.StrEnum):
    A = "a"


GOOD: list[tuple[FieldType, list[Any]]] = [
    (ID, ["a", "a b", "x" * 256, "ü" * 128, "  a", "任务", "a\u2028b"]),
    (TEXT, ["", " ", "\n\0", "x" * 10_000, "\ufeff", "\U0010ffff"]),
    (U32, [0, 2**32 - 1]),
    (U64, [0, 2**64 - 1]),
    (TIME_MS, [0, 2**53 - 1]),
    (BOOL, [True, False]),
    (FLOAT, [0.0, 1.5, -1e308, 5e-324]),
    (UNIT, [0.0, 0.5, 1.0]),
    (BYTES, [b"", b"\x00\xff"]),
    (JSON, [None, [], {}, "x", 1, 1.5, True]),
    (JSON_OBJECT, [{}, {"a": [1]}]),
    (optional(U32), [None, 0]),
    (one_of("kind", ["a", "b"]), ["a", "b"]),
    (list_of(ID), [[], ["a", "a"]]),
    (list_of(ID, unique=True), [[], ["a", "b"]]),
]
BAD: list[tuple[FieldType, list[Any]]] = [
    (
        ID,
        [
            "",
            " ",
            "\t",
            "\u3000",
            "a\n",
            "a\x7f",
            "a\x85",
            "x" * 257,
            "ü" * 129,
            "\ud800",
            1,
            None,
            b"a",
            Name("a"),
            Kind.A,
        ],
    ),
    (TEXT, [None, b"", 1, Name("a"), "\udc80", "x" * (8 * 1024 * 1024 + 1)]),
    (U32, [-1, 2**32, 1.0, True, "1", None]),
    (U64, [-1, 2**64, 1.0, False, "1", None]),
    (TIME_MS, [-1, 2**53, 1.0, True, None]),
    (BOOL, [0, 1, "true", None]),
    (FLOAT, [math.nan, math.inf, -math.inf, True, "1", None, 2**53 + 1, 10**400]),
    (UNIT, [-0.1, 1.0000001, math.nan]),
    (BYTES, ["", bytearray(b""), memoryview(b""), None]),
    (JSON, [(), {1}, b"", math.nan, Name("a"), Kind.A]),
    (JSON_OBJECT, [None, [], "x", 1]),
    (optional(U32), [-1, "", False]),
    (one_of("kind", ["a", "b"]), ["c", "", None, Kind.A, 1, ["a"]]),
    (list_of(ID), ["ab", None, {"a"}, {"a": 1}, iter(["a"]), ["a", ""], ["a", None]]),
    (list_of(ID, unique=True), [["a", "b", "a"]]),
]


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in GOOD for value in values])
def test_a_field_keeps_its_own_values(kind: FieldType, value: Any) -> None:
    """A value of the type comes back equal and of the same type."""
    kept = kind.check(value)
    assert kept == value
    assert type(kept) is type(value)


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD for value in values])
def test_a_field_refuses_everything_else(kind: FieldType, value: Any) -> None:
    """A value of another type is refused, never turned into one of this type."""
    with pytest.raises(InvalidValue) as caught:
        kind.check(value)
    assert caught.value.problem


def test_an_id_is_checked_the_same_the_second_time() -> None:
    """Whether an id was seen before changes no verdict: neither a good one's nor that of an equal value of another
    type."""
    for _ in range(2):
        assert check_id("known") == "known"
        for other in (Name("known"), "known\n", b"known"):
            with pytest.raises(InvalidValue):
                check_id(other)


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [(FLOAT, 5, 5.0), (FLOAT, -0.0, 0.0), (UNIT, 1, 1.0), (list_of(ID), ("a", "b"), ["a", "b"])],
)
def test_what_is_the_same_value_in_json_gets_one_form(kind: FieldType, value: Any, kept: Any) -> None:
    """A whole number for a float, -0.0 and a tuple for a list are the same JSON value, and get its one form."""
    checked = kind.check(value)
    assert checked == kept
    assert type(checked) is type(kept)
    assert str(checked) == str(kept)


def test_a_bad_item_is_named_by_its_place() -> None:
    """The path of a refusal leads through lists to the item."""
    with pytest.raises(InvalidValue) as caught:
        list_of(list_of(JSON)).check([[1], [2, {"a": (1,)}]])
    assert caught.value.path == "[1][1].a"


@given(json_values, st.sampled_from([JSON, optional(JSON), list_of(JSON)]))
def test_json_fields_take_every_json_value(value: Any, kind: FieldType) -> None:
    """Every JSON value is a value of a JSON field."""
    given_value = [value] if kind.label.startswith("list") else value
    assert kind.check(given_value) == given_value


def test_labels_tell_types_apart() -> None:
    """A label is part of the schema's fingerprint: different types have different ones."""
    kinds = [kind for kind, _ in GOOD] + [list_of(U32), optional(list_of(U32)), one_of("kind", ["a"])]
    labels = [kind.label for kind in kinds]
    # A list with and without repetitions holds the same bytes; the rule is the decider's, not the reader's.
    assert len(set(labels)) == len(labels) - 1

"""The codec: one value, one byte form; everything else is refused with the path to it."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import math
import struct
import uuid
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.codec import NotCanonical, decode, decode_canonical, encode, encode_exactly, encode_many, normalise
from engine.core.errors import InvalidValue, LimitExceeded
from tests.engine.strategies import json_values, plain_values


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Evil:
    def __repr__(self) -> str:
        raise RuntimeError("even asking for my name fails")

    __hash__ = object.__hash__


@given(plain_values)
def test_decode_after_encode_is_identity(value: Any) -> None:
    """What is written is what is read, bit for bit, and its bytes are the canonical ones."""
    data = encode(value)
    assert same(decode(data), value)
    assert encode_many(value) == data == encode_many(value, bounded=True)


@given(json_values)
def test_normalise_keeps_json_values_and_is_idempotent(value: Any) -> None:
    """A JSON value survives normalisation as an equal value; a second normalisation changes nothing, order included."""
    once = normalise(value)
    assert once == value
    assert encode(normalise(once)) == encode(once)
    assert same(decode_canonical(encode(once)), once)


@given(json_values)
def test_normalise_gives_one_form_for_one_value(value: Any) -> None:
    """Maps that differ in the order of insertion only have the same bytes."""
    assert encode(normalise(turned_round(value))) == encode(normalise(value))


@given(st.dictionaries(st.text(), st.none(), max_size=8))
def test_map_keys_are_in_the_order_of_their_encoded_bytes(value: dict[str, None]) -> None:
    """The order of a normalised map is the order of its encoded keys, as RFC 8949 asks."""
    keys = [encode(key) for key in normalise(value)]
    assert keys == sorted(keys)


def test_normalise_shares_nothing_with_the_caller() -> None:
    """Changing the value that was given changes nothing that was kept."""
    inner: list[int] = [1]
    given_value = {"a": inner, "b": {"c": inner}}
    kept = normalise(given_value)
    inner.append(2)
    given_value["b"]["d"] = 1  # type: ignore[index, call-overload]
    assert kept == {"a": [1], "b": {"c": [1]}}


def test_negative_zero_becomes_zero() -> None:
    """-0.0 and 0.0 are one JSON number and get one byte form."""
    assert encode(normalise([-0.0, {"x": -0.0}])) == encode([0.0, {"x": 0.0}])


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
LOOP: dict[str, Any] = {}
LOOP["again"] = {"deep": [LOOP]}


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


AWKWARD: list[tuple[str, Any, str]] = [
    ("tuple", (1, 2), ""),
    ("set", {1}, ""),
    ("frozenset", frozenset({1}), ""),
    ("bytes", b"x", ""),
    ("bytearray", bytearray(b"x"), ""),
    ("decimal", decimal.Decimal("1.1"), ""),
    ("datetime", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), ""),
    ("date", datetime.date(2026, 1, 1), ""),
    ("uuid", uuid.UUID(int=1), ""),
    ("complex", 1j, ""),
    ("str enum", Colour.RED, ""),
    ("int enum", Number.ONE, ""),
    ("str subclass", Text("x"), ""),
    ("int subclass", Whole(1), ""),
    ("dict subclass", collections.OrderedDict(a=1), ""),
    ("defaultdict", collections.defaultdict(int), ""),
    ("range", range(3), ""),
    ("object", Evil(), ""),
    ("class", Evil, ""),
    ("nan", math.nan, ""),
    ("infinity", math.inf, ""),
    ("minus infinity", -math.inf, ""),
    ("2^64", 2**64, ""),
    ("-2^63-1", -(2**63) - 1, ""),
    ("huge", 10**400, ""),
    ("lone surrogate", "a\ud800", ""),
    ("in a list", [1, [2, {1}]], "[1][1]"),
    ("in a map", {"a": {"b": [None, (1,)]}}, "a.b[1]"),
    ("int key", {1: 2}, ".<key int>"),
    ("bool key", {"x": {True: 2}}, "x.<key bool>"),
    ("None key", {None: 2}, ".<key NoneType>"),
    ("enum key", {Colour.RED: 2}, ".<key Colour>"),
    ("object key", {Evil(): 2}, ".<key Evil>"),
    ("surrogate key", {"\udfff": 2}, ".<key '\\udfff'>"),
    ("65 levels", nested(65), "[0]" * 64),
    ("cycle", CYCLE, "[0]" * 64),
    ("cycle through maps", LOOP, None),
    ("1025 entries", [[0] * 1025], "[0]"),
    ("1025 keys", {str(key): 0 for key in range(1025)}, ""),
    ("9 MB of text", ["x" * (8 * 1024 * 1024 + 1)], "[0]"),
]  # type: ignore[list-item]


@pytest.mark.parametrize(("value", "path"), [case[1:] for case in AWKWARD], ids=[case[0] for case in AWKWARD])
def test_what_cannot_survive_exactly_is_refused_with_its_path(value: Any, path: str | None) -> None:
    """No value is coerced: each is refused as InvalidValue, and the error leads to it."""
    with pytest.raises(InvalidValue) as caught:
        normalise(value)
    if path is not None:
        assert caught.value.path == path
    assert caught.value.problem
    assert str(caught.value)


@pytest.mark.parametrize("value", [nested(64), [0] * 1024, "x" * (8 * 1024 * 1024), 2**64 - 1, -(2**63)])
def test_a_value_at_its_limit_is_kept(value: Any) -> None:
    """Limits are inclusive."""
    assert same(decode_canonical(encode(normalise(value))), value)


def test_a_value_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of two references to a list of two references ... is small in memory and endless on disk."""
    monkeypatch.setattr("engine.core.codec.JSON_ENTRIES_MAX", 20_000)
    value: Any = 0
    for _ in range(60):
        value = [value, value]
    with pytest.raises(LimitExceeded, match="JSON_ENTRIES_MAX"):
        normalise(value)


def test_one_text_many_times_is_refused_before_it_is_written() -> None:
    """A large text that is referred to a thousand times counts a thousand times."""
    with pytest.raises(LimitExceeded, match="EVENT_BYTES_MAX"):
        normalise(["x" * 1_000_000] * 1000)
    with pytest.raises(LimitExceeded, match="COMMIT_BYTES_MAX"):
        encode_many(["x" * 1_000_000] * 1000, bounded=True)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("long head for a small integer", "1800"),
        ("long head for a byte", "190017"),
        ("long head, four bytes", "1a00000017"),
        ("long head, eight bytes", "1b0000000000000017"),
        ("long negative", "3800"),
        ("long head of a text", "780161"),
        ("long head of bytes", "580161"),
        ("long head of a list", "980100"),
        ("long head of a map", "b801616100"),
        ("half float", "f93c00"),
        ("single float", "fa3f800000"),
        ("indefinite text", "7f6161ff"),
        ("indefinite bytes", "5f4161ff"),
        ("indefinite list", "9f00ff"),
        ("indefinite map", "bf616100ff"),
        ("duplicate key", "a2616100616101"),
        ("bytes after the value", "0000"),
        ("nothing", ""),
        ("cut off", "8201"),
        ("cut off text", "6361"),
        ("break alone", "ff"),
        ("invalid utf-8", "61ff"),
        ("surrogate in utf-8", "63eda080"),
        ("reserved head", "1c"),
        ("undefined", "f7"),
        ("simple value", "f0"),
        ("map with keys out of order", "a2616200616100"),
        ("map with a long key first", "a262616100616200"),
        ("map with a number as key", "a10100"),
        ("map with a list as key", "a18000"),
        ("map with bytes as key", "a1416100"),
        ("tag date", "c074323032362d30312d30315430303a30303a30305a"),
        ("tag epoch", "c100"),
        ("tag big number", "c249010000000000000000"),
        ("tag decimal", "c4820100"),
        ("tag set", "d9010280"),
        ("tag shared", "d81c80"),
        ("tag reference", "d81d00"),
        ("tag regular expression", "d8236161"),
        ("tag ip address", "d9010444c0a80001"),
        ("tag self-described", "d9d9f700"),
        ("tag unknown", "da0001000000"),
        ("endless length of a list", "9bffffffffffffffff"),
        ("endless length of a text", "7bffffffffffffffff"),
        ("endless length of a map", "bb7fffffffffffffff"),
        ("deep", "81" * 200 + "00"),
        ("very deep", "81" * 100_000 + "00"),
    ],
)
def test_bytes_in_any_other_form_are_refused(what: str, data: str) -> None:
    """Bytes from outside are read only if they are the ones that would have been written."""
    with pytest.raises(NotCanonical):
        decode_canonical(bytes.fromhex(data))


def test_maps_out_of_order_are_canonical_only_after_normalising() -> None:
    """Key order in stored maps is settled when the value comes in: decoding keeps what is stored."""
    assert list(decode(encode({"b": 1, "a": 2}))) == ["b", "a"]
    assert list(normalise({"bb": 0, "b": 1, "a": 2})) == ["a", "b", "bb"]


@given(st.binary(max_size=64))
def test_any_bytes_are_read_back_exactly_or_refused(data: bytes) -> None:
    """Whatever bytes come from outside, the reader refuses them or they are the canonical form of what it returns."""
    try:
        value = decode_canonical(data)
    except NotCanonical:
        return
    assert encode(value) == data


@pytest.mark.parametrize(
    "value", [{1, 2}, 2**70, decimal.Decimal(1), datetime.date(2026, 1, 1), object(), "\ud800", CYCLE, [Evil()], {1: 2}]
)
def test_unchecked_values_are_encoded_exactly_or_refused(value: Any) -> None:
    """What the plain encoder would turn into a tag, which no reader takes, is refused instead."""
    with pytest.raises(InvalidValue, match="cannot be kept exactly"):
        encode_exactly([value], "here")


def same(left: Any, right: Any) -> bool:
    """Return whether two values are the same in type, order and every bit of their floats."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    return bool(left == right)


def turned_round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: turned_round(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [turned_round(item) for item in value]
    return value


def test_cbor2_still_gives_the_form_that_stored_bytes_have() -> None:
    """The bytes of a sample are written down here: an encoder that changes its mind is noticed before a store is."""
    sample = [None, True, False, 0, 23, 24, 2**64 - 1, -1, -(2**63), 1.5, "ü", b"\x00", [], {"a": [1]}]
    assert (
        cbor2.dumps(sample).hex() == "8ef6f5f40017181"
        "81bffffffffffffffff203b7fffffffffffffff"
        "fb3ff800000000000062c3bc410080a1616181"
        "01"
    )

"""Deterministic CBOR: one value, one byte form. It must never build an object by name, nor coerce a value in silence.

Rules (FORMAT.md states them for other readers): definite lengths and shortest heads, 64-bit floats only, no tags, maps
with text keys in the order of their encoded bytes. Event rows are keyless arrays, so the plain encoder already gives
that form;
JSON values that users hand in are put in it once, by :func:`normalise`.
"""

from __future__ import annotations

import hashlib
import re
from io import BytesIO
from math import isfinite
from types import NoneType
from typing import Any, Final, NoReturn

import cbor2

from engine.core.errors import InvalidValue, LimitExceeded
from engine.core.limits import (
    COMMIT_BYTES_MAX,
    CONTAINER_ENTRIES_MAX,
    ENCODED_DEPTH_MAX,
    EVENT_BYTES_MAX,
    I64_MIN,
    JSON_ENTRIES_MAX,
    NESTING_DEPTH_MAX,
    TEXT_BYTES_MAX,
    U64_MAX,
)
from engine.core.unchecked import fault_in, refuse_unplain

__all__ = [
    "NotCanonical",
    "count_items",
    "decode",
    "decode_canonical",
    "digest",
    "encode",
    "encode_exactly",
    "encode_many",
    "normalise",
]

_SEVERAL: Final = "use several batches"


class NotCanonical(ValueError):
    """Bytes that are not the one form of a value. Callers turn it into CorruptJournal or ImportRefused, which know the
    place."""


def _refuse_tag(*_: Any) -> NoReturn:
    raise NotCanonical("CBOR tags are not part of the format")


# cbor2 has built-in decoders for these tags, some of which import modules; every one is replaced by a refusal.
_TAG_REFUSALS: Final = dict.fromkeys((*range(64), 100, *range(256, 300), 1004, 43000, 55799), _refuse_tag)


def encode(value: Any) -> bytes:
    """Return the bytes of a value made of None, bool, int, float, str, bytes, list, tuple and normalised dict."""
    data: bytes = cbor2.dumps(value)
    return data


class _Bounded(BytesIO):
    """A buffer that refuses to grow past its limit: one text met a thousand times is small in memory, not on disk."""

    room = COMMIT_BYTES_MAX

    def write(self, data: Any, /) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise LimitExceeded("COMMIT_BYTES_MAX", COMMIT_BYTES_MAX - self.room, COMMIT_BYTES_MAX, hint=_SEVERAL)
        return super().write(data)


def encode_many(value: Any, *, bounded: bool = False) -> bytes:
    """Return the same bytes as :func:`encode`, in two thirds of the time when the value holds many small arrays.

    ``bounded`` raises LimitExceeded before they outgrow COMMIT_BYTES_MAX.
    """
    buffer = _Bounded() if bounded else BytesIO()
    cbor2.CBOREncoder(buffer).encode(value)
    return buffer.getvalue()


def encode_exactly(value: Any, path: str) -> bytes:
    """Return the bytes of a value nobody has checked. Raises InvalidValue when they would not give back plain values:
    the plain encoder writes a set, a date or a large integer as a tag, and no reader of ours takes a tag."""
    refuse_unplain(value, path)
    try:
        return encode(value)
    except (cbor2.CBORError, ValueError) as error:  # a lone surrogate
        raise fault_in(value, path) or InvalidValue(path, f"cannot be kept exactly: {error}") from None


def decode(data: bytes) -> Any:
    """Return the value of bytes whose hash has been checked. Raises NotCanonical on tags, broken or endless
    structures."""
    try:
        return cbor2.loads(
            data,
            tag_hook=_refuse_tag,
            semantic_decoders=_TAG_REFUSALS,
            max_depth=ENCODED_DEPTH_MAX,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        )
    except (cbor2.CBORError, ValueError, RecursionError, OverflowError, TypeError) as error:
        raise NotCanonical(str(error) or type(error).__name__) from error


def decode_canonical(data: bytes) -> Any:
    """Return the value of bytes from outside, refusing any byte that :func:`encode` would not have written."""
    value = decode(data)
    try:
        again = encode(value)
    except (cbor2.CBORError, ValueError, RecursionError, TypeError) as error:
        raise NotCanonical(str(error)) from error
    if again != data:
        raise NotCanonical("bytes are not in the canonical form")
    if _MAY_HOLD_OTHERS.search(data):
        _only_plain(value)
    return value


def _steps() -> bytes:
    """Return how many bytes an item takes up, without what is in it, by its first byte; 0 where that does not tell."""
    steps = bytearray(256)
    for head in range(256):
        major, rest = divmod(head, 32)
        if major in (2, 3):
            steps[head] = 1 + rest if rest < 24 else 0
        else:
            steps[head] = 1 if rest < 24 else 1 + (1 << rest - 24) if rest < 28 else 0
    return bytes(steps)


_STEPS: Final = _steps()


def count_items(data: bytes, most: int) -> int:
    """Return how many items CBOR bytes hold, and ``most + 1`` as soon as it is more than ``most``; in memory that does
    not follow them. Of bytes that are no CBOR it counts what comes before."""
    at, count, end, steps = 0, 0, len(data), _STEPS
    while at < end and count <= most:
        count += 1
        step = steps[data[at]]
        if not step:
            size = 1 << (data[at] & 31) - 24
            if size > 8:
                return count
            step = 1 + size + int.from_bytes(data[at + 1 : at + 1 + size], "big")
        at += step
    return count


# Heads of maps, whose keys might not be texts, and of CBOR's simple values, "undefined" among them. They may also be
# parts of a text or a number: only then is the value walked.
_MAY_HOLD_OTHERS: Final = re.compile(rb"[\xa1-\xbb\xe0-\xf3\xf7\xf8]")
_PLAIN: Final = frozenset((NoneType, bool, int, float, str, bytes))


def _encoded_order(key: str) -> tuple[int, bytes]:
    """Return what sorts keys by their encoded bytes: shorter UTF-8 first (the head holds the length), then bytewise."""
    return len(raw := key.encode()), raw


def _only_plain(value: Any, *, ordered: bool = True) -> None:
    """Raise NotCanonical when a decoded value holds anything but plain values, or ``ordered`` maps in another order."""
    ahead = [value]
    while ahead:
        at = ahead.pop()
        if type(at) is list:
            ahead.extend(at)
        elif type(at) is dict:
            if any(type(key) is not str for key in at):
                raise NotCanonical("a map has a key that is not text")
            if ordered and list(at) != sorted(at, key=_encoded_order):
                raise NotCanonical("the keys of a map are not in the order of their encoded bytes")
            ahead.extend(at.values())
        elif type(at) not in _PLAIN:
            raise NotCanonical(f"a {type(at).__name__} is not part of the format")


def digest(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def text(value: Any, path: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Return ``value`` if it is exactly a str of valid Unicode within the limit; raise InvalidValue with the path
    otherwise."""
    if type(value) is not str:
        raise InvalidValue(
            path, f"expected text, found {type(value).__name__}", hint="convert it to str before recording it"
        )
    if not value.isascii():
        try:
            size = len(value.encode("utf-8"))
        except UnicodeEncodeError:
            raise InvalidValue(path, "text holds a lone surrogate, which has no UTF-8 form") from None
    else:
        size = len(value)
    if size > bytes_max:
        raise InvalidValue(path, f"text of {size} bytes, the maximum is {bytes_max}")
    return value


def normalise(value: Any, path: str = "", *, depth: int = 0, entries_max: int = CONTAINER_ENTRIES_MAX) -> Any:
    """Return a fresh copy of a JSON value in canonical form, sharing nothing with the caller's.

    Kept exactly: None, bool, int in -2^63..2^64-1, finite float, str, list, dict with str keys. -0.0 becomes 0.0 and
    map keys are put in the order of their encoded bytes; both are equal values in JSON. Everything else (subclasses,
    tuples, sets, bytes, Decimal, NaN, dates, lone surrogates, cycles, more than 64 levels or 1024 entries a container)
    raises InvalidValue with the path to it; a value that no event could hold raises LimitExceeded.
    """
    return _normalise(value, path, depth, entries_max, [JSON_ENTRIES_MAX, EVENT_BYTES_MAX])


def _normalise(value: Any, path: str, depth: int, entries_max: int, room: list[int]) -> Any:
    """Do :func:`normalise`; ``room`` is what is left of the whole value's entries and text."""
    kind = type(value)
    if kind is str:
        room[1] -= len(value)
        if room[1] < 0:
            raise LimitExceeded("EVENT_BYTES_MAX", EVENT_BYTES_MAX - room[1], EVENT_BYTES_MAX)
        return text(value, path)
    if value is None or kind is bool:
        return value
    if kind is int:
        if not I64_MIN <= value <= U64_MAX:
            raise InvalidValue(path, "integer outside -2^63 .. 2^64-1", hint="record it as a decimal string")
        return value
    if kind is float:
        if not isfinite(value):
            raise InvalidValue(path, f"{value} is not a JSON number")
        return value + 0.0
    if kind is not list and kind is not dict:
        raise InvalidValue(
            path,
            f"{kind.__module__}.{kind.__qualname__} cannot be kept exactly",
            hint="JSON values only: None, bool, int, float, str, list, dict; exactly these types, no subclasses",
        )
    if depth >= NESTING_DEPTH_MAX:
        raise InvalidValue(path, f"nested deeper than {NESTING_DEPTH_MAX} levels, or a cycle")
    if len(value) > entries_max:
        raise InvalidValue(path, f"{len(value)} entries in one container, the maximum is {entries_max}")
    room[0] -= len(value)
    if room[0] < 0:
        raise LimitExceeded("JSON_ENTRIES_MAX", JSON_ENTRIES_MAX - room[0], JSON_ENTRIES_MAX)
    if kind is list:
        return [_normalise(item, f"{path}[{index}]", depth + 1, entries_max, room) for index, item in enumerate(value)]
    pairs = []
    for key, item in value.items():
        try:
            name = text(key, "")
        except InvalidValue as error:
            shown = f"{key!r:.40}" if type(key) is str else type(key).__name__
            raise InvalidValue(f"{path}.<key {shown}>", error.problem, hint=error.hint) from None
        room[1] -= len(name)
        pairs.append((name, _normalise(item, f"{path}.{name}" if path else name or '""', depth + 1, entries_max, room)))
    pairs.sort(key=lambda pair: _encoded_order(pair[0]))
    return dict(pairs)

"""The bytes of one row of a SQLite file: where its cell lies, and its columns. It must never read past what it is
given, nor build a value that SQLite would not have stored."""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

from engine.core.limits import COMMIT_BYTES_MAX

__all__ = [
    "INDEX_INNER",
    "INDEX_LEAF",
    "TABLE_INNER",
    "TABLE_LEAF",
    "Record",
    "cell_of",
    "last_blob",
    "local_bytes",
    "values",
]

INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = 0x02, 0x05, 0x0A, 0x0D
_COLUMNS_MAX: Final = 16
_PAYLOAD_MAX: Final = COMMIT_BYTES_MAX + 65_536
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)

Record: TypeAlias = list[Any]


def cell_of(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return (bytes of the row, where they begin) of the cell at an offset of a page of this kind. Raises ValueError,
    IndexError."""
    if at < 8:
        raise ValueError("no such place")
    if kind == INDEX_INNER:
        at += 4
    size = data[at]
    if size < 0x80:
        at += 1
    else:
        size, at = _varint(data, at)
    if kind == TABLE_LEAF:  # the number of the row, in up to nine bytes
        at = next(end for end in range(at, at + 9) if data[end] < 0x80 or end == at + 8) + 1
    if not 1 <= size <= _PAYLOAD_MAX:
        raise ValueError("no such size")
    return size, at


def local_bytes(size: int, kind: int, usable: int) -> int:
    """Return how many bytes of a row stand in its own page."""
    most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    local = least + (size - least) % (usable - 4)
    return local if local <= most else least


def values(payload: bytes, size: int) -> Record:
    """Return the columns of a row of ``size`` bytes; of a text or blob that goes on behind ``payload`` what is in it.
    Raises ValueError, IndexError for what SQLite would not have written."""
    at, kinds = _kinds(payload)
    found: Record = []
    for kind in kinds:
        end = at + ((kind - 12) >> 1 if kind >= 12 else _INTEGER_BYTES[kind])
        if end > size or (kind < 12 and end > len(payload)):
            raise ValueError("the row ends early")
        if kind >= 12:
            found.append(payload[at:end].decode("utf-8", "replace") if kind & 1 else payload[at:end])
        elif kind == 0:
            found.append(None)
        elif kind < 7:
            found.append(int.from_bytes(payload[at:end], "big", signed=True))
        else:
            found.append(struct.unpack(">d", payload[at:end])[0] if kind == 7 else kind - 8)
        at = end
    return found


def last_blob(payload: bytes, columns: int) -> bytes | None:
    """Return the last column of a whole row of so many columns, None when there are others or it is no blob. Raises
    IndexError for what SQLite would not have written."""
    at, kinds = _kinds(payload)
    if len(kinds) != columns or kinds[-1] < 12 or kinds[-1] & 1:
        return None
    begin = at + sum((kind - 12) >> 1 if kind >= 12 else _INTEGER_BYTES[kind] for kind in kinds[:-1])
    end = begin + (kinds[-1] - 12 >> 1)
    return payload[begin:end] if end <= len(payload) else None


def _kinds(payload: bytes) -> tuple[int, list[int]]:
    """Return where the values of a row begin, and the kinds of its columns."""
    head, at = payload[0], 1
    if head >= 0x80:
        head, at = _varint(payload, 0)
    kinds = []
    while at < head:
        kind = payload[at]
        if kind < 0x80:
            at += 1
        else:
            kind, at = _varint(payload, at)
        kinds.append(kind)
        if len(kinds) > _COLUMNS_MAX:
            raise ValueError("too many columns")
    return at, kinds


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(8):
        byte = data[at + count]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    return value << 8 | data[at + 8], at + 9

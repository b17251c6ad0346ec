"""Difference: where two states of one model differ, named by the field. It must never say that two states differ and
leave it at that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from cbor2 import CBORDecoder

from engine.core.codec import NotCanonical, decode_canonical, encode
from engine.core.model import Model
from engine.core.state import ModelState
from engine.core.table import Key, Table, column_names

__all__ = [
    "ABSENT",
    "Difference",
    "difference",
    "difference_of_bytes",
    "difference_of_dumps",
    "difference_of_forms",
    "shown",
    "touched",
]

_SHOWN_CHARS_MAX: Final = 80


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
"""What one side holds where only the other has something."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two states differ first: the ``path`` of a field as people write it, what each holds there, and the record:
    its ``table`` (with its projection in front) and ``key``. ``records`` counts all records that differ."""

    path: str
    left: Any
    right: Any
    table: str
    key: Key | None
    records: int = 1

    def __str__(self) -> str:
        more = f" (and {self.records - 1} more records differ)" if self.records > 1 else ""
        return f"{self.path}: {shown(self.left)} against {shown(self.right)}{more}"


# -- two states -------------------------------------------------------------------------------------------------------


def difference(left: ModelState, right: ModelState) -> Difference | None:
    """Return where two states differ first, None when their bytes are equal. Compares everything."""
    if left.seq != right.seq:
        return Difference("position", left.seq, right.seq, "", None)
    found: list[tuple[str, Key | None, Any, Any]] = []
    for name in sorted({*left.tables, *right.tables}):
        found += _of_tables(name, _rows(left, name), _rows(right, name))
    return _named(left, right, found)


def _of_tables(name: str, left: dict[Key, Any], right: dict[Key, Any]) -> Iterator[tuple[str, Key | None, Any, Any]]:
    parted = False
    for key in [*left, *(key for key in right if key not in left)]:
        one, other = left.get(key, ABSENT), right.get(key, ABSENT)
        if not _alike(one, other):
            parted = True
            yield name, key, one, other
    if not parted and list(left) != list(right):
        place = next(index for index, keys in enumerate(zip(left, right, strict=True)) if keys[0] != keys[1])
        yield name, None, list(left)[place], list(right)[place]


def _rows(state: ModelState, name: str) -> dict[Key, Any]:
    """Return the dumps of a table in its order; that of a table by key says nothing, and is left out by sorting."""
    table = state.tables.get(name)
    return {} if table is None else {key: row.dump() for key, row in table.ordered()}


def _alike(left: Any, right: Any) -> bool:
    """Return whether two dumps have the same bytes: 1, 1.0 and True are three values."""
    if left is ABSENT or right is ABSENT:
        return left is right
    try:
        return encode(left) == encode(right)
    except Exception:  # a dump that cannot be encoded is a fault of its own; here it is only unlike
        return False


def touched(left: ModelState, right: ModelState) -> Difference | None:
    """Return where two states differ among the records that either has touched since the marks were cleared."""
    found: list[tuple[str, Key | None, Any, Any]] = []
    for name in dict.fromkeys((*left.tables, *right.tables)):
        mine, theirs = left.tables.get(name), right.tables.get(name)
        keys = dict.fromkeys((*(mine.changed if mine else ()), *(theirs.changed if theirs else ())))
        for key in keys:
            one, other = _dump(mine, key), _dump(theirs, key)
            if not _alike(one, other):
                found.append((name, key, one, other))
    return _named(left, right, found)


def _dump(table: Table[Any] | None, key: Key) -> Any:
    row = None if table is None else table.rows.get(key)
    return ABSENT if row is None else row.dump()


def difference_of_bytes(model: Model, left: bytes, right: bytes) -> Difference | None:
    """Return where two states differ first, from their bytes alone: what another process sent. None when they are
    equal."""
    mine, theirs = _tables_in(left), _tables_in(right)
    if mine[""] != theirs[""]:
        return Difference("position", mine[""], theirs[""], "", None)
    named = model.initial()
    for name in sorted({*mine, *theirs} - {""}):
        for table, key, one, other in _of_tables(name, mine.get(name, {}), theirs.get(name, {})):
            if key is None:
                return Difference(f"{table} (order)", one, other, table, None)
            path, one, other = _in_dump(named, named, table, key, one, other)
            return Difference(path, one, other, table, key)
    return None


def _tables_in(stored: bytes) -> dict[str, Any]:
    """Return ``{table: {key: dump}}`` of a state's bytes, and its position under ""."""
    stream = BytesIO(stored)
    decoder = CBORDecoder(stream)
    tables: dict[str, Any] = {"": decoder.decode()[2]}
    while stream.tell() < len(stored):
        name, count = decoder.decode()
        entries = [decoder.decode() for _ in range(count)]
        tables[name] = {tuple(key) if type(key) is list else key: dump for key, dump in entries}
    return tables


# -- the name of a field ----------------------------------------------------------------------------------------------


def _named(left: ModelState, right: ModelState, found: list[tuple[str, Key | None, Any, Any]]) -> Difference | None:
    """Return the first of the records that differ, with the path of its first field that does."""
    if not found:
        return None
    table, key, one, other = found[0]
    if key is None:
        return Difference(f"{table} (order)", one, other, table, None, len(found))
    public = _in_public(left, right, table.partition(".")[0], key)
    path, one, other = public or _in_dump(left, right, table, key, one, other)
    return Difference(path, one, other, table, key, len(found))


def _in_public(left: ModelState, right: ModelState, projection: str, key: Key) -> tuple[str, Any, Any] | None:
    """Return the first difference of two public records, None where the projection has no public form or it shows
    none."""
    try:
        kind, mine = _document(left, projection)
        _, theirs = _document(right, projection)
    except Exception:  # one of the states is wrong: its public form may be beyond reach
        return None
    ids = dict.fromkeys((*([key] if key in mine or key in theirs else ()), *mine, *theirs))
    for name in ids:
        one, other = mine.get(name, ABSENT), theirs.get(name, ABSENT)
        if not _alike(one, other):
            return _descend(f"{kind}{_step(name)}", one, other)
    return None


_KINDS: Final = {"tasks": "tasks", "contexts": "contexts", "graph": "graphs", "swarm": "swarm"}


def _document(state: ModelState, projection: str) -> tuple[str, Mapping[Any, Any]]:
    """Return the public records of a projection by id, and what they are called."""
    own = getattr(state.model.by_name.get(projection), "document", None)
    if own is not None:
        return projection, own(state.parts[projection])
    kind = _KINDS[projection]
    from engine.documents import document  # late: it loads every projection
    from engine.view import StateView

    return kind, document(StateView.of("", state))[kind]


def _in_dump(left: ModelState, right: ModelState, table: str, key: Key, one: Any, other: Any) -> tuple[str, Any, Any]:
    """Return the first difference of two dumps, columns by name as far as their record gives them names."""
    path = f"{table}{_step(key)}"
    if one is ABSENT or other is ABSENT or type(one) is not list or type(other) is not list:
        return path, one, other
    columns = _columns((left.tables.get(table) or right.tables[table]), len(one))
    for index, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if not _alike(mine, theirs):
            step = f".{columns[index]}" if index < len(columns) else f"[{index}]"
            return _descend(path + step, mine, theirs)
    return f"{path} (length)", len(one), len(other)


def _columns(table: Table[Any], width: int) -> tuple[str, ...]:
    """Return names of a dump's columns: what the record says in ``fields``, else its constructor's parameters when they
    are as many."""
    return column_names(getattr(table.load, "__self__", None), width)


def _descend(path: str, left: Any, right: Any) -> tuple[str, Any, Any]:
    """Return the first place inside two values at which they differ; bytes that are values are looked into."""
    if type(left) is bytes and type(right) is bytes:
        try:
            return _descend(path, decode_canonical(left), decode_canonical(right))
        except NotCanonical:
            return path, left, right
    if type(left) is dict and type(right) is dict:
        for name in dict.fromkeys((*left, *right)):
            one, other = left.get(name, ABSENT), right.get(name, ABSENT)
            if not _alike(one, other):
                return _descend(path + _step(name), one, other)
        return f"{path} (order of keys)", list(left), list(right)
    if type(left) is list and type(right) is list:
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else ABSENT
            other = right[index] if index < len(right) else ABSENT
            if not _alike(one, other):
                return _descend(f"{path}[{index}]", one, other)
    return path, left, right


def difference_of_forms(left: Any, right: Any) -> str:
    """Return where two plain values differ first, in words."""
    path, one, other = _descend("", left, right)
    return f"{path.removeprefix('.')}: {shown(one)} against {shown(other)}"


def difference_of_dumps(table: str, key: Key, state: ModelState, left: Any, right: Any) -> str:
    """Return where two dumps of a record differ first, in words."""
    path, one, other = _in_dump(state, state, table, key, left, right)
    return f"{path}: {shown(one)} against {shown(other)}"


def _step(key: Any) -> str:
    """Return a key as a step of a path: ``.fetch``, ``[3]``, ``[a, 0]``, ``["a.b"]``."""
    if type(key) is int:
        return f"[{key}]"
    if type(key) is tuple:
        return "[" + ", ".join(str(part) for part in key) + "]"
    return f".{key}" if key and not set(key) & set('."[] ') else f'["{key}"]'


def shown(value: Any) -> str:
    """Return a value as a message shows it: cut when it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"

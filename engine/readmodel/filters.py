"""Questions without SQL: rows by the values of columns and by paths into JSON, and messages by words. A value is
compared with its type: true, 1 and 1.0 are three values, and null is not the same as nothing there.

Savers of other projects put the keys of such filters into their SQL, and were taken over through them (L43 of the
field reports); others forgot that metadata is nested (L46). Here a name is looked up in the schema; what a caller says
is a parameter, always.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlite_utils.db import quote_identifier

from engine.core.codec import normalise, text
from engine.core.errors import InvalidValue, NotFound
from engine.core.json_patch import same
from engine.readmodel.schema import BY_NAME
from engine.readmodel.shape import Column, Kind, SqlTable, SqlView
from engine.readmodel.values import as_json, cell

__all__ = ["HOLDS", "Statement", "Where", "columns_of", "find_rows", "find_words", "holds"]

Where: TypeAlias = Mapping[str | tuple[str | int, ...], Any]
"""``{column: value}``, and for a JSON column ``{(column, step, ...): value}``: a text leads into an object, a number
into a list."""

Statement: TypeAlias = tuple[str, list[Any]]
"""SQL and its parameters."""

HOLDS: Final = "refold_holds"
"""The name of :func:`holds` in the statements of :func:`find_rows`."""

_TAKES: Final[Mapping[Kind, tuple[type, ...]]] = {
    "text": (str,),
    "whole": (int,),
    "real": (float, int),
    "bool": (bool,),
}


def find_rows(table: str, where: Where, limit: int | None) -> Statement:
    """Return the statement for the rows of a table or view that match all of ``where``, in order of the key (of a
    view: of all columns). Raises NotFound for a table, InvalidValue for a column, a path or a value that cannot be."""
    shape = _shape(table)
    conditions, parameters = ["1"], []
    for key, value in where.items():
        condition, more = _condition(shape, key, value)
        conditions.append(condition)
        parameters += more
    names = [column.name for column in shape.columns]
    columns, order = (", ".join(map(quote_identifier, part)) for part in (names, getattr(shape, "key", names)))
    statement = f"SELECT {columns} FROM {quote_identifier(shape.name)} WHERE {' AND '.join(conditions)}"
    return f"{statement} ORDER BY {order} LIMIT ?", [*parameters, _limit(limit)]


def columns_of(table: str) -> tuple[Column, ...]:
    """Return the columns of a table or view. Raises NotFound."""
    return _shape(table).columns


def _shape(table: str) -> SqlTable | SqlView:
    shape = BY_NAME.get(table) if isinstance(table, str) else None
    if shape is None:
        raise NotFound(f"the read model has no table {table!r:.80}", hint=f"it has {', '.join(BY_NAME)}")
    return shape


def _condition(shape: SqlTable | SqlView, key: Any, value: Any) -> Statement:
    """Return one condition and its parameters."""
    name, *steps = key if isinstance(key, tuple) and key else (key,)
    column = next((known for known in shape.columns if known.name == name), None)
    if column is None:
        names = ", ".join(known.name for known in shape.columns)
        raise InvalidValue("where", f"{shape.name} has no column {name!r:.80}", hint=f"its columns: {names}")
    quoted = quote_identifier(column.name)
    if steps and column.kind != "json":
        raise InvalidValue("where", f"column {column.name} of {shape.name} is no JSON: no path leads into it")
    if value is None and not steps:
        return f"{quoted} IS NULL", []
    if column.kind == "json":
        return f"{HOLDS}({quoted}, ?, ?)", [as_json(_path(column, steps)), as_json(normalise(value, column.name))]
    if type(value) not in _TAKES[column.kind]:
        raise InvalidValue(column.name, f"expected {column.kind}, found {type(value).__name__}")
    return f"{quoted} IS ?", [_parameter(column.name, value)]


def _path(column: Column, steps: Sequence[Any]) -> list[str | int]:
    for step in steps:
        if type(step) is not str and (type(step) is not int or step < 0):
            raise InvalidValue(column.name, f"{step!r:.40} is no step of a path", hint="a text or a number from 0")
    return [text(step, column.name) if type(step) is str else step for step in steps]


def _parameter(name: str, value: Any) -> Any:
    """Return a value as SQLite takes it. Raises InvalidValue for one that it cannot take."""
    if type(value) is str:
        return text(value, name)
    if type(value) is int and value < -(2**63):
        raise InvalidValue(name, "there is no such number here")
    return cell(value)


def _limit(limit: int | None) -> int:
    if limit is None:
        return -1
    if type(limit) is not int or not 0 <= limit < 2**63:
        raise InvalidValue("limit", f"{limit!r:.40} is no number of rows")
    return limit


def holds(document: str | None, path: str, wanted: str) -> bool:
    """Return whether the JSON ``document`` holds the value ``wanted`` at the end of ``path``; all three are texts."""
    if document is None:
        return False
    found = json.loads(document)
    for step in json.loads(path):
        inside = (type(found) is dict and type(step) is str and step in found) or (
            type(found) is list and type(step) is int and step < len(found)
        )
        if not inside:
            return False
        found = found[step]
    return same(found, json.loads(wanted))


_WORDS: Final = """
SELECT m.run, m.context, m.place, m.seq, m.role, m.ts_ms, m.folded_seq,
       snippet(messages_fts, -1, '', '', '...', 16) AS found
FROM messages_fts JOIN messages m ON m.id = messages_fts.rowid
WHERE messages_fts MATCH ? AND (? IS NULL OR m.run = ?)
ORDER BY messages_fts.rank, m.run, m.context, m.place LIMIT ?"""


def find_words(words: str, run: str | None, limit: int | None) -> Statement:
    """Return the statement for the messages that hold every one of these words. Raises InvalidValue without a word."""
    terms = text(words, "words").replace("\0", " ").split()
    if not terms:
        raise InvalidValue("words", "there is no word in it")
    quoted = " ".join('"' + term.replace('"', '""') + '"' for term in terms)  # a word is never an operator of FTS5
    in_run = None if run is None else text(run, "run")
    return _WORDS, [quoted, in_run, in_run, _limit(limit)]

"""Writing rows. Every value must go in as a parameter; the only names in a statement are those of
the shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import count
from typing import Any, Protocol

from sqlite_utils import Database
from sqlite_utils.db import quote_identifier

from engine.core.envelope import Event
from engine.readmodel.shape import SqlTable
from engine.readmodel.values import cells

__all__ = ["Collector", "Rows", "delete_rows"]


class Rows:
    """The rows of one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, table: SqlTable, rows: Iterable[Sequence[Any]]) -> None:
        """Insert new rows, their values in the order of the table's columns; without the row number, which is given
        here, for a table that is searched."""
        if not table.search:
            self._run_all(_insert_into(table), rows)
            return
        (first,) = self._database.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {_quoted([table.name])}").fetchone()
        numbered = [[number, *row] for number, row in zip(count(first), rows, strict=False)]
        self._run_all(_insert_into(table), numbered)
        # Not by triggers: what a trigger does to a virtual table, SQLite lets only trusted schemas do.
        places = [table.names.index(column) for column in ("id", *table.search)]
        index = f"INSERT INTO {_index_of(table)} ({_quoted(['rowid', *table.search])}) VALUES ({_marks(len(places))})"
        self._run_all(index, ([row[place] for place in places] for row in numbered))

    def upsert(self, table: SqlTable, rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows, or put them in the place of those with the same key."""
        self._run_all(_upsert_into(table), rows)

    def run(self, statement: str, parameters: Sequence[Any]) -> None:
        """Run a statement that stands in the code, with parameters."""
        self._run_all(statement, [parameters])

    def _run_all(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self._database.conn.executemany(statement, map(cells, rows))


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(quote_identifier, names))


def _marks(number: int) -> str:
    return ", ".join("?" * number)


def _index_of(table: SqlTable) -> str:
    return quote_identifier(f"{table.name}_fts")


@cache
def _insert_into(table: SqlTable) -> str:
    return f"INSERT INTO {_quoted([table.name])} ({_quoted(table.names)}) VALUES ({_marks(len(table.names))})"


@cache
def _upsert_into(table: SqlTable) -> str:
    rest = (quote_identifier(name) for name in table.names if name not in table.key)
    changes = ", ".join(f"{name} = excluded.{name}" for name in rest)
    return f"{_insert_into(table)} ON CONFLICT ({_quoted(table.key)}) DO UPDATE SET {changes}"


def delete_rows(database: Database, table: SqlTable, run: str) -> None:
    """Delete every row of a run, from the full-text index too."""
    if table.search:
        index, searched = _index_of(table), _quoted(table.search)
        database.execute(
            f"INSERT INTO {index} ({index}, rowid, {searched}) "
            f"SELECT 'delete', id, {searched} FROM {quote_identifier(table.name)} WHERE run = ?",
            [run],
        )
    database.table(table.name).delete_where("run = ?", [run])


class Collector(Protocol):
    """Follows one projection event by event, and writes the rows that it touched.

    Rows that only show the state are written as it is when they are written; what an event alone knows (a transition,
    a message that a later event folds) is taken in when it happens. So the rows do not depend on how many events come
    between two writes.
    """

    def before(self) -> None:
        """An event of the projection is about to be folded."""
        ...

    def after(self, event: Event) -> None:
        """The event has been folded."""
        ...

    def write(self, rows: Rows) -> None:
        """Write what was touched, and forget it."""
        ...

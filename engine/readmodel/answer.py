"""Running SQL that a caller wrote. It must never change anything: the connection is read-only, and SQLite is told to
refuse whatever does more than read, other files included."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, NoReturn, TypeAlias

from engine.core.errors import InvalidValue, ReadOnly
from engine.readmodel.place import Place
from engine.readmodel.questions import statement_of
from engine.readmodel.schema import BY_NAME
from engine.readmodel.values import cell

__all__ = ["Answer", "Parameters", "ask"]

Parameters: TypeAlias = Mapping[str, Any] | Sequence[Any] | None
"""Values for ``:name`` or for ``?``."""

_READING: Final = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))
_PRAGMAS: Final = frozenset(
    (
        "compile_options", "data_version", "database_list", "foreign_key_list", "function_list", "index_info",
        "index_list", "index_xinfo", "table_info", "table_list", "table_xinfo",
    )
)  # fmt: skip
"""Those that only tell; full-text search itself asks for ``data_version``."""
_FUNCTIONS_REFUSED: Final = frozenset(("load_extension", "fts3_tokenizer"))
_REFUSED: Final = frozenset((sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY))
_CALLERS: Final = frozenset(
    (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_TOOBIG)
)
"""What SQLite says when the statement is at fault, not the file."""
_STEPS: Final = 100_000


def _only_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Decide what a statement may do, as SQLite asks while it compiles one."""
    allowed = (
        action in _READING
        or (action == sqlite3.SQLITE_FUNCTION and second not in _FUNCTIONS_REFUSED)
        or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
        # So SQLite declares a virtual table to itself; a statement that tries is refused by SQLite, always.
        or (action == sqlite3.SQLITE_UPDATE and first == "sqlite_master")
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _let_python_look() -> int:
    """Let Python handle signals during a long query; an interrupt ends it."""
    return 0


class Answer:
    """The rows of a query: ``columns`` names them, iterating gives them as tuples, once, as they are read.

    From a file they are as of one moment, whatever is written meanwhile. Close it, or read it to its end.
    """

    def __init__(self, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]], opened: ExitStack) -> None:
        self.columns = columns
        self._rows = rows
        self._opened = opened

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        with self._opened:
            yield from self._rows

    def close(self) -> None:
        """Give the connection back; rows that were not read are lost."""
        self._opened.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask(place: Place, sql: str, parameters: Parameters = None) -> Answer:
    """Run one statement that gives rows. Raises InvalidValue for SQL that SQLite refuses, naming the tables there are,
    ReadOnly for what does more than read, BackendUnavailable, NotAStore."""
    values: Any = {} if parameters is None else parameters
    if isinstance(values, Mapping):
        values = {name: cell(value) for name, value in values.items()}
    else:
        values = [cell(value) for value in values]
    with ExitStack() as opened:
        connection = opened.enter_context(place.reading())
        connection.set_authorizer(_only_reads)
        opened.callback(connection.set_authorizer, None)
        connection.set_progress_handler(_let_python_look, _STEPS)
        opened.callback(connection.set_progress_handler, None, 0)
        try:
            cursor = connection.execute(statement_of(sql), values)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            _refuse(place, error)
        if cursor.description is None:
            raise InvalidValue("query", "it gives no rows", hint="give one SELECT")
        columns = tuple(column[0] for column in cursor.description)
        rows = _fetched(place, cursor)
        if place.path is None:  # its one connection is needed again
            return Answer(columns, iter(list(rows)), ExitStack())
        return Answer(columns, rows, opened.pop_all())


def _fetched(place: Place, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    try:
        yield from iter(cursor.fetchone, None)  # not from the cursor: that would close it for whoever stops half-way
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        _refuse(place, error)
    finally:
        with suppress(sqlite3.ProgrammingError):  # its connection was closed first: who stops half-way ends the block
            cursor.close()


def _refuse(place: Place, error: Exception) -> NoReturn:
    """Raise the error of refold for one that a query met."""
    number = getattr(error, "sqlite_errorcode", None)
    primary = None if number is None else number & 0xFF
    if primary == sqlite3.SQLITE_INTERRUPT:
        raise KeyboardInterrupt from error
    if primary in _REFUSED or str(error).startswith("not authorized"):  # said under other numbers too
        hint = "the read model is only read; to change a run, give it commands"
        raise ReadOnly(f"the query does more than read: {error}", hint=hint) from error
    if isinstance(error, sqlite3.Error) and primary is not None and primary not in _CALLERS:
        raise place.translation_of(error) from error
    hint = f"there are {', '.join(BY_NAME)}; 'refold sql --schema' describes them"
    if "binding" in str(error):
        hint = "give every parameter of the query a value; on the command line: --param name=value"
    raise InvalidValue("query", str(error), hint=hint) from error

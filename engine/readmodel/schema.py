"""The whole schema: which tables and views there are, how they are made and dropped, and the number that says which
ones a file holds. A file with another number must never be read as if it had this one."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from sqlite_utils import Database
from sqlite_utils.db import quote_identifier

from engine.core.model import Model
from engine.readmodel.contexts import CONTEXTS, MESSAGES
from engine.readmodel.events import EVENT_TASKS, EVENTS, RUNS
from engine.readmodel.graphs import ATTEMPTS, GRAPHS, NODES
from engine.readmodel.shape import SQL_TYPES, SqlTable, SqlView
from engine.readmodel.swarms import ESCALATIONS, METADATA, SWARMS, WORKERS
from engine.readmodel.tasks import TASK_TRANSITIONS, TASKS
from engine.readmodel.views import VIEWS

__all__ = ["BY_NAME", "TABLES", "changed_by_others", "create_schema", "drop_everything", "version_of"]

TABLES: Final = (
    RUNS,
    EVENTS,
    EVENT_TASKS,
    TASKS,
    TASK_TRANSITIONS,
    CONTEXTS,
    MESSAGES,
    GRAPHS,
    NODES,
    ATTEMPTS,
    SWARMS,
    METADATA,
    WORKERS,
    ESCALATIONS,
)
"""In the order of making: a table comes after those that it refers to."""

BY_NAME: Final[dict[str, SqlTable | SqlView]] = {shape.name: shape for shape in (*TABLES, *VIEWS)}

_ROWS_VERSION: Final = 1
"""Goes up when the same events give other rows in the same columns."""


def version_of(model: Model) -> int:
    """Return the number of the schema: another one for other columns, views or rows, and for other projections."""
    tables = [
        (table.name, [(c.name, c.kind, c.null) for c in table.columns], table.key, table.foreign, table.indexes)
        for table in TABLES
    ]
    views = [(view.name, view.sql) for view in VIEWS]
    searched = [table.search for table in TABLES]
    said = repr((_ROWS_VERSION, tables, views, searched)).encode() + model.fingerprint
    return int.from_bytes(sha256(said).digest()[:4], "big") & 0x7FFF_FFFF or 1


def create_schema(database: Database) -> None:
    """Make every table, index and view. The file must hold none of them."""
    for table in TABLES:
        _create_table(database, table)
    for view in VIEWS:
        database.create_view(view.name, view.sql.strip())


def _create_table(database: Database, table: SqlTable) -> None:
    made = database.create_table(
        table.name,
        {column.name: SQL_TYPES[column.kind] for column in table.columns},
        pk="id" if table.search else table.key,
        not_null=[column.name for column in table.columns if not column.null],
        foreign_keys=[
            (foreign.columns, foreign.table, _target(table, foreign.table, len(foreign.columns)))
            for foreign in table.foreign
        ],
    )
    if table.search:
        made.create_index(table.key, unique=True)
        made.enable_fts(table.search)
    for index in table.indexes:
        columns = ", ".join(map(quote_identifier, index.columns))
        name = quote_identifier(f"idx_{table.name}_{'_'.join(index.columns)}")
        where = " AND ".join(f"{quote_identifier(column)} IS NOT NULL" for column in index.columns)
        rest = f" WHERE {where}" if index.sparse else ""
        database.execute(f"CREATE INDEX {name} ON {quote_identifier(table.name)} ({columns}){rest}")


def _target(table: SqlTable, name: str, width: int) -> tuple[str, ...]:
    """Return the key that a foreign key points to."""
    other = table if table.name == name else next(known for known in TABLES if known.name == name)
    assert len(other.key) == width, f"{table.name} refers to {name} by another number of columns"
    return other.key


def changed_by_others(database: Database) -> str | None:
    """Return what in a file of this version is not as it was made: a table or view that is missing, or is something
    else, or computes; a trigger. None when there is nothing."""
    found = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE type<>'index'").fetchall()
    by_name = {str(name).lower(): (kind, str(sql)) for kind, name, _, sql in found}
    for kind, name, table, _ in found:
        if kind == "trigger" and str(table).lower() in BY_NAME:
            return f"the trigger {name}"
    for table in TABLES:
        kind, sql = by_name.get(table.name, ("", ""))
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({quote_identifier(table.name)})").fetchall()]
        if kind != "table" or " AS" in sql.upper() or columns != table.names:
            return f"the table {table.name}"
    for view in VIEWS:
        kind, sql = by_name.get(view.name, ("", ""))
        if kind != "view" or not sql.endswith(f" AS {view.sql.strip()}"):
            return f"the view {view.name}"
    return None


def drop_everything(database: Database) -> None:
    """Drop whatever a file of ours holds, of any version. Foreign keys must be off."""
    for kind in ("view", "trigger"):
        for name in _names(database, kind):
            database.execute(f"DROP {kind.upper()} {quote_identifier(name)}")
    virtual = [table.name for table in database.tables if table.virtual_table_using]
    for name in virtual:  # takes the tables along that it is made of
        database.execute(f"DROP TABLE {quote_identifier(name)}")
    for name in _names(database, "table"):
        database.execute(f"DROP TABLE {quote_identifier(name)}")


def _names(database: Database, kind: str) -> list[str]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%'", [kind])
    return [name for (name,) in found.fetchall()]

"""The recorders of a SQLite store: eventsourcing's, with heads in the commit's own transaction and row numbers that
are never
used again. They must never change a row that is there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from eventsourcing.persistence import IntegrityError, StoredEvent
from eventsourcing.sqlite import SQLiteAggregateRecorder, SQLiteApplicationRecorder

from engine.store.backend import Head, Origin
from engine.store.sqlite_connections import Datastore

__all__ = ["SqliteCheckpoints", "SqliteCommits"]

CHECKPOINTS: Final = "stored_checkpoints"
TOMBSTONE: Final = "refold.tombstone/1"
HIDDEN: Final = 0x6869_6464_656E
"""What ``hidden`` holds for a deleted run ("hidden" in ASCII): far enough from 0 that no damaged bit turns one into the
other."""


class SqliteCommits(SQLiteApplicationRecorder):
    """One row per commit, and the head of each run in the same transaction."""

    datastore: Datastore

    def __init__(self, datastore: Datastore) -> None:
        super().__init__(datastore)
        self._first_head = "INSERT INTO run_heads (run_id, position, link) VALUES (?,?,?)"
        self._next_head = (
            "UPDATE run_heads SET position=?, link=? WHERE run_id=? AND position=? AND link=? AND hidden=0"
        )
        self.insert_events_statement = (
            f"INSERT INTO {self.events_table_name} (originator_id, originator_version, topic, state) VALUES (?,?,?,?)"
        )
        # A run whose head record is gone is still a run: found by its commits, from one run's to the next in the index.
        self._all_heads = (
            "WITH RECURSIVE named(id) AS "
            f"(SELECT min(originator_id) FROM {self.events_table_name} UNION ALL "
            f"SELECT (SELECT min(originator_id) FROM {self.events_table_name} WHERE originator_id>named.id) "
            "FROM named WHERE named.id IS NOT NULL) "
            f"SELECT {_HEAD} FROM run_heads UNION ALL SELECT id, 0, x'', NULL, NULL, NULL, 0 FROM named "
            "WHERE id<>'' AND NOT EXISTS (SELECT 1 FROM run_heads WHERE run_id=id) ORDER BY 1"
        )
        self._select = f"SELECT originator_version, topic, state FROM {self.events_table_name} WHERE originator_id=? "

    def construct_create_table_statements(self) -> list[str]:
        return [
            f"CREATE TABLE IF NOT EXISTS {self.events_table_name} ("
            "rowid INTEGER PRIMARY KEY, "
            "originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, "
            "topic TEXT NOT NULL, state BLOB NOT NULL, "
            "UNIQUE (originator_id, originator_version))",
            "CREATE TABLE IF NOT EXISTS run_heads ("
            "run_id TEXT PRIMARY KEY, position INTEGER NOT NULL, link BLOB NOT NULL, "
            "origin_run TEXT, origin_position INTEGER, origin_link BLOB, "
            "hidden INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
            # SQLite gives the number of a deleted last row to the next one, which would hide it from readers that go
            # by number. AUTOINCREMENT prevents that at a tenth of every commit; a tombstone costs only the delete.
            f"CREATE TRIGGER IF NOT EXISTS keep_last_number AFTER DELETE ON {self.events_table_name} "
            f"WHEN old.rowid > (SELECT coalesce(max(rowid), 0) FROM {self.events_table_name}) BEGIN "
            f"INSERT INTO {self.events_table_name} VALUES (old.rowid, '', old.rowid, '{TOMBSTONE}', x''); END",
        ]

    def record(self, run_id: str, first: int, topic: str, state: bytes, head: Head, after: bytes | None) -> None:
        move: tuple[str, Sequence[Any]] = (self._first_head, (run_id, head.position, head.link))
        if after is not None:
            move = (self._next_head, (head.position, head.link, run_id, first - 1, after))
        self._write((self.insert_events_statement, (run_id, first, topic, state)), move)

    def rows(
        self,
        run_id: str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[tuple[int, str, bytes]]:
        statement = self._select
        params: list[Any] = [run_id]
        if gt is not None:
            statement += "AND originator_version>? "
            params.append(gt)
        if lte is not None:
            statement += "AND originator_version<=? "
            params.append(lte)
        statement += f"ORDER BY originator_version {'DESC' if desc else 'ASC'}"
        if limit is not None:
            statement += " LIMIT ?"
            params.append(limit)
        with self.datastore.transaction(commit=False) as c:
            c.execute(statement, params)
            rows: list[tuple[int, str, bytes]] = c.fetchall()
        for row in rows:
            if type(row[0]) is not int or type(row[1]) is not str or type(row[2]) is not bytes:
                return [_as_written(*row) for row in rows]
        return rows

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        rows = self.rows(str(originator_id), gt=gt, lte=lte, desc=desc, limit=limit)
        return [StoredEvent(str(originator_id), version, topic, state) for version, topic, state in rows]

    def create(self, head: Head, holding: tuple[int, bytes] | None) -> None:
        origin = head.origin
        assert origin is not None
        statement = (
            f"INSERT INTO run_heads ({_HEAD}) SELECT ?,?,?,?,?,?,0 "
            "WHERE EXISTS (SELECT 1 FROM run_heads WHERE run_id=?)"
        )
        values: list[Any] = [head.run_id, head.position, head.link, origin.run_id, origin.position, origin.link]
        values.append(origin.run_id)
        if holding is not None:
            statement += (
                f" AND EXISTS (SELECT 1 FROM {self.events_table_name} "
                "WHERE originator_id=? AND originator_version=? AND substr(state, 1, ?)=?)"
            )
            values += [origin.run_id, holding[0], len(holding[1]), holding[1]]
        self._write((statement, values))

    def erase(self, run_id: str, *, needed: int | None) -> None:
        others = "NOT EXISTS (SELECT 1 FROM run_heads AS fork WHERE fork.origin_run=? AND fork.origin_position>?)"
        move = f"UPDATE run_heads SET hidden={HIDDEN}" if needed is not None else "DELETE FROM run_heads"
        self._write(
            (
                f"DELETE FROM {self.events_table_name} WHERE originator_id=? AND originator_version>?",
                (run_id, needed or 0),
            ),
            (
                f"DELETE FROM {CHECKPOINTS} WHERE originator_id=? AND originator_version>?",
                (run_id, -1 if needed is None else needed),
            ),
            (f"{move} WHERE run_id=? AND {others}", (run_id, run_id, -1 if needed is None else needed)),
        )

    def _write(self, *statements: tuple[str, Sequence[Any]]) -> None:
        """Run statements of which the last must change one row."""
        try:
            self.datastore.write(statements, changing=1)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(error) from error

    def head(self, run_id: str) -> Head | None:
        with self.datastore.transaction(commit=False) as c:
            c.execute(f"SELECT {_HEAD} FROM run_heads WHERE run_id=?", (run_id,))
            row = c.fetchone()
            return None if row is None else _head(row)

    def heads(self) -> Sequence[Head]:
        with self.datastore.transaction(commit=False) as c:
            c.execute(self._all_heads)
            return [_head(row) for row in c.fetchall()]


_HEAD: Final = "run_id, position, link, origin_run, origin_position, origin_link, hidden"


def _as_written(first: Any, topic: Any, stored: Any) -> tuple[int, str, bytes]:
    """Return a row in the types we write. A value of another type is damage, and so is what becomes of it here: no
    link fits it."""
    kept = stored if type(stored) is bytes else f"{type(stored).__name__}: {stored}".encode()
    return first if type(first) is int else 0, topic if type(topic) is str else repr(topic), kept


def _head(row: Sequence[Any]) -> Head:
    """Return a head in the types we write. A value of another type is damage, and so is what becomes of it here: no
    run is called so, no position is there, and no link fits it."""
    run_id, position, link, origin_run, origin_position, origin_link, hidden = row
    origin = None
    if (origin_run, origin_position, origin_link) != (None, None, None):
        origin = Origin(_name(origin_run), _position(origin_position, -1), _link(origin_link))
        if (type(origin_run), type(origin_position), type(origin_link)) != (str, int, bytes):
            link = None
    if hidden not in (0, HIDDEN):
        link = None
    return Head(_name(run_id), _position(position, 0), _link(link), origin, hidden == HIDDEN)


def _name(stored: Any) -> str:
    return stored if type(stored) is str else repr(stored)


def _position(stored: Any, damaged: int) -> int:
    return stored if type(stored) is int else damaged


def _link(stored: Any) -> bytes:
    return stored if type(stored) is bytes else b""


class SqliteCheckpoints(SQLiteAggregateRecorder):
    """Checkpoints beside the journal; losing this table loses time only."""

    datastore: Datastore

    def __init__(self, datastore: Datastore) -> None:
        super().__init__(datastore, events_table_name=CHECKPOINTS)

    def construct_create_table_statements(self) -> list[str]:
        return [
            f"CREATE TABLE IF NOT EXISTS {self.events_table_name} ("
            "originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, "
            "topic TEXT NOT NULL, state BLOB NOT NULL, "
            "PRIMARY KEY (originator_id, originator_version))"
        ]

    def put(self, run_id: str, position: int, topic: str, state: bytes, replacing: Sequence[int]) -> None:
        delete = f"DELETE FROM {self.events_table_name} WHERE originator_id=? AND originator_version=?"
        insert = (
            f"INSERT INTO {self.events_table_name} SELECT ?,?,?,? "
            "WHERE EXISTS (SELECT 1 FROM run_heads WHERE run_id=? AND hidden=0)"
        )
        try:
            self.datastore.write(
                (
                    *((delete, (run_id, doomed)) for doomed in {*replacing, position}),
                    (insert, (run_id, position, topic, state, run_id)),
                ),
                changing=1,
            )
        except sqlite3.IntegrityError as error:
            raise IntegrityError(error) from error

    def read(self, run_id: str, position: int) -> tuple[str, bytes] | None:
        with self.datastore.transaction(commit=False) as c:
            c.execute(
                f"SELECT topic, state FROM {self.events_table_name} WHERE originator_id=? AND originator_version=?",
                (run_id, position),
            )
            row: tuple[str, bytes] | None = c.fetchone()
            return row

    def positions(self, run_id: str, *, lte: int | None = None) -> Sequence[int]:
        with self.datastore.transaction(commit=False) as c:
            c.execute(
                f"SELECT originator_version FROM {self.events_table_name} "
                "WHERE originator_id=? AND originator_version<=? ORDER BY originator_version DESC",
                (run_id, 2**63 - 1 if lte is None else lte),
            )
            return [_position(position, 0) for (position,) in c.fetchall()]

    def delete(self, run_id: str, *, gte: int = 0, lte: int | None = None) -> int:
        with self.datastore.transaction(commit=True) as c:
            c.execute(
                f"DELETE FROM {self.events_table_name} WHERE originator_id=? AND originator_version BETWEEN ? AND ?",
                (run_id, gte, 2**63 - 1 if lte is None else lte),
            )
            count: int = c.sqlite_cursor.rowcount
            return count

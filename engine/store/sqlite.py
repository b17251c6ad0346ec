"""The SQLite backend: eventsourcing's SQLite recorders with what they lack supplied. It must never acknowledge what is
not on disk.

Supplied here: ``synchronous=FULL`` stated on every connection, ``BEGIN IMMEDIATE`` for every write, a busy timeout,
one held writer connection,
row numbers that are never used again, heads in the commit's own transaction, and the marks that tell a
refold store from any
other file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from eventsourcing.persistence import ConnectionPoolClosedError, IntegrityError, StoredEvent
from eventsourcing.sqlite import (
    SQLiteAggregateRecorder,
    SQLiteApplicationRecorder,
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from engine.core.errors import BackendUnavailable, NotAStore, NotFound, ReadOnly, SchemaError
from engine.store.backend import Head, Origin
from engine.store.errors import translated

__all__ = ["BUSY_TIMEOUT_S", "SqliteBackend"]

APPLICATION_ID: Final = 0x7266_6C64  # "rfld" in the SQLite header: file(1) and we ourselves know the store by it
STORE_FORMAT: Final = 1
BUSY_TIMEOUT_S: Final = 30.0
TOMBSTONE: Final = "refold.tombstone/1"
_MAGIC: Final = b"SQLite format 3\0"


class _Pool(SQLiteConnectionPool):
    """Connections with our settings; the parent opens with SQLite's defaults."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path = path
        self._read_only = read_only
        super().__init__(db_name=str(path), pool_size=8, max_overflow=64, pool_timeout=BUSY_TIMEOUT_S)

    def _create_connection(self) -> SQLiteConnection:
        return SQLiteConnection(sqlite_conn=self.connect(), max_age=self.max_age)

    def connect(self) -> sqlite3.Connection:
        """Return a new connection that is none of the pool's."""
        mode = "ro" if self._read_only else "rw"
        if self._read_only and self._cannot_change():
            mode += "&immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self._path))}?mode={mode}",
            uri=True,
            check_same_thread=False,
            isolation_level=None,  # transactions are begun explicitly
            timeout=BUSY_TIMEOUT_S,
        )
        connection.text_factory = _text
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA trusted_schema=OFF")
            if not self._read_only:
                connection.execute("PRAGMA wal_autocheckpoint=1000")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _cannot_change(self) -> bool:
        """Return whether no writer can be where the file lies: SQLite needs no files beside it then, and could make
        none."""
        log = self._path.with_name(self._path.name + "-wal")
        return not os.access(self._path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)


def _text(stored: bytes) -> str:
    """Return stored text; damage to it is for the reader of the row to name, not for the database driver to die of."""
    return stored.decode("utf-8", "replace")


class _Datastore(SQLiteDatastore):
    """Pool for readers, and one writer connection that is kept: taking it out of a pool for every commit costs a tenth
    of the commit."""

    pool: _Pool

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.pool = _Pool(path, read_only=read_only)
        self._path = path
        self._read_only = read_only
        self.single_row_tracking = True
        self.originator_id_type = "text"
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor
        self._pid = os.getpid()

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[SQLiteCursor]:
        if commit:
            with self._write_lock:
                try:
                    cursor = self._begin()
                    yield SQLiteCursor(cursor)
                    cursor.execute("COMMIT")
                except BaseException:
                    self._abandon()
                    raise
            return
        self._same_process()
        connection = self.pool.get_connection(is_writer=False)
        try:
            reading = connection.cursor()
            try:
                yield reading
            finally:
                reading.sqlite_cursor.close()
        finally:
            self.pool.put_connection(connection)

    def write(self, statements: Sequence[tuple[str, Sequence[Any]]], *, changing: int | None = None) -> None:
        """Run statements as one durable transaction: ``transaction(commit=True)`` without what that costs per command.

        With ``changing`` the last one must change so many rows, or nothing is written and IntegrityError is raised.
        """
        with self._write_lock:
            try:  # from the first step on: an interrupt must not leave a transaction open, and others locked out
                cursor = self._begin()
                for statement, parameters in statements:
                    cursor.execute(statement, parameters)
                if changing is not None and cursor.rowcount != changing:
                    raise sqlite3.IntegrityError("the run's head is not where this writer left it")
                cursor.execute("COMMIT")
            except BaseException:
                self._abandon()
                raise

    def _begin(self) -> sqlite3.Cursor:
        self._same_process()
        if self._read_only:
            raise ReadOnly(f"store {self._path} was opened for reading", hint="open it without read_only to write")
        if self.pool.closed:
            raise ConnectionPoolClosedError
        if self._writer is None:
            self._writer = self.pool.connect()
            self._cursor = self._writer.cursor()
        elif self._writer.in_transaction:  # an interrupt struck while one was being rolled back
            self._writer.rollback()
        self._cursor.execute("BEGIN IMMEDIATE")
        return self._cursor

    def _same_process(self) -> None:
        if os.getpid() != self._pid:
            raise BackendUnavailable(
                "the store was opened before this process was forked",
                hint="open it again in the child; SQLite connections must not cross a fork",
            )

    def _abandon(self) -> None:
        """Roll back; drop a writer that cannot even do that."""
        writer = self._writer
        if writer is not None:
            try:
                writer.rollback()
            except sqlite3.Error:
                self._writer = None
                writer.close()

    def close(self) -> None:
        if not hasattr(self, "_pid"):  # __init__ failed; the parent calls close() from __del__
            return
        with self._write_lock:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
        self.pool.close()


class _Commits(SQLiteApplicationRecorder):
    """One row per commit, and the head of each run in the same transaction."""

    datastore: _Datastore

    def __init__(self, datastore: _Datastore) -> None:
        super().__init__(datastore)
        self._first_head = (
            "INSERT INTO run_heads (run_id, position, link) VALUES (?,?,?) "
            "ON CONFLICT (run_id) DO UPDATE SET position=excluded.position, link=excluded.link "
            "WHERE run_heads.position=0 AND run_heads.hidden=0"
        )
        self._next_head = "UPDATE run_heads SET position=?, link=? WHERE run_id=? AND position=? AND hidden=0"
        self.insert_events_statement = (
            f"INSERT INTO {self.events_table_name} (originator_id, originator_version, topic, state) VALUES (?,?,?,?)"
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

    def record(self, run_id: str, first: int, topic: str, state: bytes, head: Head) -> None:
        if first == 1:
            move: tuple[str, Sequence[Any]] = (self._first_head, (run_id, head.position, head.link))
        else:
            move = (self._next_head, (head.position, head.link, run_id, first - 1))
        try:
            self.datastore.write(((self.insert_events_statement, (run_id, first, topic, state)), move), changing=1)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(error) from error

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

    def create(self, head: Head) -> None:
        origin = head.origin
        assert origin is not None
        values = (head.run_id, head.position, head.link, origin.run_id, origin.position, origin.link)
        try:
            self.datastore.write(((f"INSERT INTO run_heads ({_HEAD}) VALUES (?,?,?,?,?,?,0)", values),))
        except sqlite3.IntegrityError as error:
            raise IntegrityError(error) from error

    def erase(self, run_id: str, *, keep_until: int, hide: bool) -> None:
        head = "UPDATE run_heads SET hidden=1 WHERE run_id=?" if hide else "DELETE FROM run_heads WHERE run_id=?"
        self.datastore.write(
            (
                (
                    f"DELETE FROM {self.events_table_name} WHERE originator_id=? AND originator_version>?",
                    (run_id, keep_until),
                ),
                (head, (run_id,)),
            )
        )

    def head(self, run_id: str) -> Head | None:
        with self.datastore.transaction(commit=False) as c:
            c.execute(f"SELECT {_HEAD} FROM run_heads WHERE run_id=?", (run_id,))
            row = c.fetchone()
            return None if row is None else _head(row)

    def heads(self) -> Sequence[Head]:
        with self.datastore.transaction(commit=False) as c:
            c.execute(f"SELECT {_HEAD} FROM run_heads ORDER BY run_id")
            return [_head(row) for row in c.fetchall()]


_HEAD: Final = "run_id, position, link, origin_run, origin_position, origin_link, hidden"


def _as_written(first: Any, topic: Any, stored: Any) -> tuple[int, str, bytes]:
    """Return a row in the types we write. A value of another type is damage, and so is what becomes of it here: no
    link fits it."""
    kept = stored if type(stored) is bytes else f"{type(stored).__name__}: {stored}".encode()
    return first if type(first) is int else 0, topic if type(topic) is str else repr(topic), kept


def _head(row: Sequence[Any]) -> Head:
    run_id, position, link, origin_run, origin_position, origin_link, hidden = row
    position = position if type(position) is int else 0
    link = link if type(link) is bytes else b""  # damage: no link fits it
    origin = None if origin_run is None else Origin(origin_run, origin_position, origin_link)
    return Head(run_id, position, link, origin, bool(hidden))


class _Checkpoints(SQLiteAggregateRecorder):
    """Checkpoints beside the journal; losing this table loses time only."""

    datastore: _Datastore

    def __init__(self, datastore: _Datastore) -> None:
        super().__init__(datastore, events_table_name="stored_checkpoints")

    def construct_create_table_statements(self) -> list[str]:
        return [
            f"CREATE TABLE IF NOT EXISTS {self.events_table_name} ("
            "originator_id TEXT NOT NULL, originator_version INTEGER NOT NULL, "
            "topic TEXT NOT NULL, state BLOB NOT NULL, "
            "PRIMARY KEY (originator_id, originator_version))"
        ]

    def put(self, run_id: str, position: int, topic: str, state: bytes, replacing: Sequence[int]) -> None:
        delete = f"DELETE FROM {self.events_table_name} WHERE originator_id=? AND originator_version=?"
        self.datastore.write(
            (
                *((delete, (run_id, doomed)) for doomed in {*replacing, position}),
                (self.insert_events_statement, (run_id, position, topic, state)),
            )
        )

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
            return [position for (position,) in c.fetchall()]

    def delete(self, run_id: str, *, gte: int = 0) -> int:
        with self.datastore.transaction(commit=True) as c:
            c.execute(
                f"DELETE FROM {self.events_table_name} WHERE originator_id=? AND originator_version>=?", (run_id, gte)
            )
            count: int = c.sqlite_cursor.rowcount
            return count


class SqliteBackend:
    """An open store file. Raises NotFound (no file, and ``create`` is off), NotAStore, SchemaError (newer),
    BackendUnavailable."""

    def __init__(self, path: Path, *, create: bool = True, read_only: bool = False) -> None:
        self.url = str(path)
        path = self.path = path.absolute()  # the process may move to another folder later; ":memory:" is a file too
        _look_at(path, create=create and not read_only)
        with translated(self.url):
            self._datastore = _Datastore(path, read_only=read_only)
            try:
                self.commits = _Commits(self._datastore)
                self.checkpoints = _Checkpoints(self._datastore)
                self._prepare(read_only=read_only)
            except BaseException:
                self._datastore.close()
                raise

    def _prepare(self, *, read_only: bool) -> None:
        """Check the marks of the file; make the tables of a new one. Safe when many processes do it at once."""
        with self._datastore.transaction(commit=False) as c:
            c.execute("BEGIN")  # one look at the whole file: another process may be making its tables just now
            try:
                if self._is_ours(c):
                    return
            finally:
                c.execute("COMMIT")
        if read_only:
            raise NotAStore(f"{self.url} is empty", hint="open it for writing once, or name a refold store")
        self._set_wal()
        with self._datastore.transaction(commit=True) as c:
            if self._is_ours(c):  # another process was first
                return
            for recorder in (self.commits, self.checkpoints):
                recorder._create_table(c)
            c.execute(f"PRAGMA application_id={APPLICATION_ID}")
            c.execute(f"PRAGMA user_version={STORE_FORMAT}")

    def _is_ours(self, c: SQLiteCursor) -> bool:
        """Return whether the file is a refold store; False when it is empty. Raises NotAStore and SchemaError."""
        c.execute("PRAGMA application_id")
        (application,) = c.fetchone()
        c.execute("PRAGMA user_version")
        (version,) = c.fetchone()
        c.execute("SELECT count(*) FROM sqlite_master")
        (tables,) = c.fetchone()
        if application == APPLICATION_ID:
            if version > STORE_FORMAT:
                raise SchemaError(
                    f"store {self.url} has format {version}, this refold reads up to {STORE_FORMAT}",
                    hint="upgrade refold to the version that wrote the store",
                )
            return True
        if application or tables:
            raise NotAStore(
                f"{self.url} is a SQLite database of another program",
                hint="name a refold store, or a path that does not exist yet",
            )
        return False

    def _set_wal(self) -> None:
        """Switch a new file to write-ahead logging. SQLite does not wait for other openers here, so we do."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                with self._datastore.transaction(commit=False) as c:
                    c.execute("PRAGMA journal_mode=WAL")
                    (mode,) = c.fetchone()
                if mode == "wal":
                    return
                raise BackendUnavailable(
                    f"store {self.url} cannot use write-ahead logging (journal mode {mode})",
                    hint="put the store on a local file system",
                )
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Release the connections. Further calls raise BackendUnavailable."""
        self._datastore.close()


def _look_at(path: Path, *, create: bool) -> None:
    """Refuse early, with the reason, what SQLite would refuse late or not at all; make an empty file for a new
    store."""
    if path.is_dir():
        raise NotAStore(f"{path} is a folder", hint="name a file, for example refold.db in that folder")
    if path.exists() and not path.is_file():
        raise NotAStore(f"{path} is not a file", hint="name a refold store, or a path that does not exist yet")
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        if not create:
            raise NotFound(
                f"there is no store at {path}",
                hint="'refold demo' makes one; --store or REFOLD_STORE names another",
            ) from None
        if not path.parent.is_dir():
            raise BackendUnavailable(
                f"the folder {path.parent} does not exist", hint="make it, or name another path"
            ) from None
        try:
            path.touch()
        except OSError as error:
            raise BackendUnavailable(
                f"store {path} cannot be made: {error.strerror}", hint="check the folder's permissions"
            ) from error
        return
    except OSError as error:
        raise BackendUnavailable(
            f"store {path} cannot be read: {error.strerror}", hint="check the file's permissions"
        ) from error
    # A power cut while the file was made leaves a journal, and until SQLite has rolled it back the file is anything.
    if start and start != _MAGIC and not Path(f"{path}-journal").exists():
        raise NotAStore(
            f"{path} is not a SQLite database", hint="name a refold store, or a path that does not exist yet"
        )

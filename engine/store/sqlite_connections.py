"""Connections to a SQLite store: how they are set up, and the one writer among them. It must never leave a transaction
open.

Supplied here: ``synchronous=FULL`` stated on every connection, ``BEGIN IMMEDIATE`` for every write, a busy timeout,
and a
writer that is held.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from eventsourcing.persistence import ConnectionPoolClosedError
from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool, SQLiteCursor, SQLiteDatastore

from engine.core.errors import BackendUnavailable, ReadOnly

__all__ = ["BUSY_TIMEOUT_S", "Datastore"]

BUSY_TIMEOUT_S: Final = 30.0


class Pool(SQLiteConnectionPool):
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


class Datastore(SQLiteDatastore):
    """Pool for readers, and one writer connection that is kept: taking it out of a pool for every commit costs a tenth
    of the commit."""

    pool: Pool

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.pool = Pool(path, read_only=read_only)
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

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
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from eventsourcing.persistence import ConnectionPoolClosedError
from eventsourcing.sqlite import SQLiteCursor, SQLiteDatastore

from engine.core.errors import BackendUnavailable, ReadOnly
from engine.store.sqlite_files import Connection, file_beside, opened, rests_at_forks
from engine.store.sqlite_log import has_sound_header

__all__ = ["BUSY_TIMEOUT_S", "Datastore", "Pool"]

BUSY_TIMEOUT_S: Final = 30.0
"""How long a writer waits for the one write lock of the store, before it raises BackendUnavailable and has written
nothing. Only a process that is stopped in the middle of a commit, and neither goes on nor dies, holds it for as long;
the death of a process gives its lock back at once. Readers do not wait for it. Whoever opens a store waits as long for
a process that is stopped while it is the first to open it, or the last to close it."""
_IDLE_MAX: Final = 8


class Pool:
    """Idle connections for readers, made when there is none. Taking and giving are one step each that nothing can
    interrupt, so that an interrupt may lose a connection, which then closes itself, but never leaves a lock behind.

    ``alone`` promises that this process has no other connection to the store, nor makes one meanwhile. Then those that
    only read do not even touch the index that SQLite keeps beside a log, and put no files where there are none.
    """

    def __init__(self, path: Path, *, read_only: bool, alone: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._alone = alone
        self._idle: deque[sqlite3.Connection] = deque()
        self.closed = False
        self.awake = threading.Event()
        """Whether connections may be made and kept; off during a fork."""
        self.awake.set()

    def take(self) -> sqlite3.Connection:
        """Return a connection that nobody else has. Raises ConnectionPoolClosedError."""
        if self.closed:
            raise ConnectionPoolClosedError
        self.awake.wait()
        try:
            return self._idle.pop()
        except IndexError:
            return self.connect()

    def give(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next reader, or close it."""
        if self.closed or len(self._idle) >= _IDLE_MAX or not self.awake.is_set():
            connection.close()
            return
        self._idle.append(connection)
        if self.closed or not self.awake.is_set():  # meanwhile, by another thread
            self.drain()

    def close(self) -> None:
        """Close the idle connections; those in use follow when they are given back."""
        self.closed = True
        self.drain()

    def drain(self) -> None:
        """Close the idle connections; new ones are made when they are needed."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:  # another thread closes too
                return

    def connect(self) -> sqlite3.Connection:
        """Return a new connection that is none of the pool's."""
        mode = "ro" if self._read_only else "rw"
        if self._read_only:
            mode += self._how_to_read()
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self._path))}?mode={mode}",
            uri=True,
            check_same_thread=False,
            isolation_level=None,  # transactions are begun explicitly
            timeout=BUSY_TIMEOUT_S,
            factory=Connection,
        )
        try:
            opened(connection, self._path)
            connection.text_factory = _text
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA trusted_schema=OFF")
            if not self._read_only:
                connection.execute("PRAGMA wal_autocheckpoint=1000")
        except BaseException:
            connection.close()
            raise
        return connection

    def _how_to_read(self) -> str:
        """Return what SQLite is to be told when no writer can be where the file lies, or none is: it needs no files
        beside it then, and might not even be able to make them. Where it has to undo something first, it must know."""
        log, index, journal = (file_beside(self._path, end) for end in ("-wal", "-shm", "-journal"))
        size = log.stat().st_size if log.exists() else None
        if journal.exists() and journal.stat().st_size:
            return ""
        if not size and not os.access(self._path.parent, os.W_OK):
            return "&immutable=1"
        if not self._alone:
            return ""
        if size is None or (size and not has_sound_header(log)):  # a log without one is none to SQLite
            return "&immutable=1"
        return "&readonly_shm=1" if index.exists() else ""


def _text(stored: bytes) -> str:
    """Return stored text; damage to it is for the reader of the row to name, not for the database driver to die of."""
    return stored.decode("utf-8", "replace")


class Datastore(SQLiteDatastore):
    """Pool for readers, and one writer connection that is kept: taking it out of a pool for every commit costs a tenth
    of the commit."""

    def __init__(self, path: Path, *, read_only: bool, alone: bool = False) -> None:
        self.pool: Pool = Pool(path, read_only=read_only, alone=alone)  # type: ignore[assignment]
        self._path = path
        self._read_only = read_only
        self.single_row_tracking = True
        self.originator_id_type = "text"
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor
        self._pid = os.getpid()
        self._rests = False  # during a fork: this holds the write lock
        rests_at_forks(self)

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[SQLiteCursor]:
        if commit:
            with self._write_lock:
                try:
                    cursor = self._begin()
                    yield SQLiteCursor(cursor)
                    cursor.execute("COMMIT")
                except BaseException as error:
                    self._abandon(error)
                    raise
            return
        self._same_process()
        connection = self.pool.take()
        try:
            reading = connection.cursor()
            try:
                yield SQLiteCursor(reading)
            finally:
                reading.close()
        finally:
            self.pool.give(connection)

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
            except BaseException as error:
                self._abandon(error)
                raise

    def _begin(self) -> sqlite3.Cursor:
        self._same_process()
        if self._read_only:
            raise ReadOnly(f"store {self._path} was opened for reading", hint="open it without read_only to write")
        if self.pool.closed:
            raise ConnectionPoolClosedError
        if self._writer is None:
            writer = self.pool.connect()
            self._cursor = writer.cursor()
            self._writer = writer  # last: a writer has its cursor
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

    def _abandon(self, error: BaseException) -> None:
        """Roll back; drop a writer that cannot even do that, and all connections once SQLite holds the file for
        read-only.

        It does so when it could not open the file for writing at some moment, all connections of a process share that,
        and it never asks again. After any other error they are kept: on a full disk new ones could not be made.
        """
        writer = self._writer
        if writer is None:
            return
        drop = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
        try:
            writer.rollback()
        except sqlite3.Error:
            drop = True
        if drop:
            self._writer = None
            self._cursor.close()  # while a statement lives, closing the connection closes nothing
            writer.close()
            self.pool.drain()

    def rest(self, seconds: float) -> None:
        """Close the connections, before a fork; a write or a read that another thread is at is waited for."""
        self._rests = self._write_lock.acquire(timeout=seconds)
        self.pool.awake.clear()
        if self._rests and self._writer is not None:
            writer, self._writer = self._writer, None
            self._cursor.close()
            writer.close()
        self.pool.drain()

    def wake(self, *, in_child: bool) -> None:
        """Go on after a fork. In the child every use is refused; the locks are as new, so that it is and does not
        hang."""
        if in_child:
            self._write_lock = threading.Lock()
            self._writer = None  # where there still is one, it is the parent's
        elif self._rests:
            self._write_lock.release()
        self._rests = False
        self.pool.awake.set()

    def close(self) -> None:
        if not hasattr(self, "_pid"):  # __init__ failed; the parent calls close() from __del__
            return
        try:
            with self._write_lock:
                writer, self._writer = self._writer, None
                if writer is not None:
                    writer.close()
        finally:
            self.pool.close()

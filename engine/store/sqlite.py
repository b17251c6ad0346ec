"""The SQLite backend: a store in one file, and the marks that tell it from any other file. It must never take another
program's database for its own.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from eventsourcing.sqlite import SQLiteCursor

from engine.core.errors import BackendUnavailable, NotAStore, NotFound, SchemaError
from engine.store.errors import changed_by_others, translated
from engine.store.sqlite_connections import BUSY_TIMEOUT_S, Datastore, Pool
from engine.store.sqlite_files import file_beside, looking_at, make_empty
from engine.store.sqlite_log import is_cut_short
from engine.store.sqlite_recorders import SqliteCheckpoints, SqliteCommits

__all__ = ["SqliteBackend"]

APPLICATION_ID: Final = 0x7266_6C64  # "rfld" in the SQLite header: file(1) and we ourselves know the store by it
STORE_FORMAT: Final = 1
_MAGIC: Final = b"SQLite format 3\0"


class SqliteBackend:
    """An open store file. Raises NotFound (no file, and ``create`` is off), NotAStore, SchemaError (newer),
    BackendUnavailable.

    ``to_look`` opens a store whose log is damaged as well, at what SQLite sees of it; only to be read. ``alone`` is
    explained at :class:`engine.store.sqlite_connections.Pool`.
    """

    def __init__(
        self, path: Path, *, create: bool = True, read_only: bool = False, to_look: bool = False, alone: bool = False
    ) -> None:
        assert read_only or not to_look, "whoever only looks does not write"
        self.url = str(path)
        path = self.path = path.absolute()  # the process may move to another folder later; ":memory:" is a file too
        _look_at(path, create=create and not read_only)
        with translated(self.url):
            if not to_look:
                self._check_log()
            self._datastore = Datastore(path, read_only=read_only, alone=alone)
            try:
                self.commits = SqliteCommits(self._datastore)
                self.checkpoints = SqliteCheckpoints(self._datastore)
                self._prepare(create=create and not read_only)
            except BaseException:
                self._datastore.close()
                raise

    def _prepare(self, *, create: bool) -> None:
        """Check the marks of the file; make the tables of a new one. Safe when many processes do it at once."""
        with self._datastore.transaction(commit=False) as c:
            c.execute("BEGIN")  # one look at the whole file: another process may be making its tables just now
            try:
                if self._is_ours(c):
                    return
            finally:
                if c.sqlite_cursor.connection.in_transaction:  # some errors have ended it already
                    c.execute("COMMIT")
        if not create:
            raise NotAStore(f"{self.url} is empty", hint="open it for writing once, or name a refold store")
        self._set_wal()
        with self._datastore.transaction(commit=True) as c:
            if self._is_ours(c):  # another process was first
                return
            for recorder in (self.commits, self.checkpoints):
                recorder._create_table(c)
            c.execute(f"PRAGMA application_id={APPLICATION_ID}")
            c.execute(f"PRAGMA user_version={STORE_FORMAT}")

    def _check_log(self) -> None:
        """Refuse a store whose log is damaged before its end: SQLite would go on without the commits behind, and
        overwrite them.

        Looked at through a connection that only reads. One that writes would, on being closed, put the good part of the
        log into the store and delete the log.
        """
        log = file_beside(self.path, "-wal")
        if not (log.exists() and log.stat().st_size):
            return
        try:
            with closing(Pool(self.path, read_only=True).connect()) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # this makes SQLite look at the log
                (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
                damaged = is_cut_short(self.path, page_bytes)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
                return  # a power cut while the store was made: only a writer can undo that; nothing was acknowledged
            raise
        if damaged:
            raise NotAStore(
                f"the log of store {self.url} is damaged: acknowledged commits in it are out of reach",
                hint="'refold doctor --salvage NEW' saves them",
            )

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
            self._check_schema(c)
            return True
        if application or tables:
            raise NotAStore(
                f"{self.url} is a SQLite database of another program",
                hint="name a refold store, or a path that does not exist yet",
            )
        return False

    def _check_schema(self, c: SQLiteCursor) -> None:
        """Refuse a store in which our tables are something else, or have triggers that are not ours: a view computes
        when it is read, and may never end. What is missing is named when it is needed; checkpoints are not needed, so
        theirs may be any table that is stored as it is."""
        recorders = (self.commits, self.checkpoints)
        made = [statement for recorder in recorders for statement in recorder.construct_create_table_statements()]
        ours = {statement.replace("IF NOT EXISTS ", "", 1) for statement in made}
        c.execute(
            "SELECT type, name, sql FROM sqlite_master "
            "WHERE tbl_name COLLATE NOCASE IN ('stored_events', 'run_heads', 'stored_checkpoints') AND type<>'index'"
        )
        for kind, name, sql in c.fetchall():
            if sql not in ours and not (kind == "table" and name == "stored_checkpoints" and self._is_plain(c, name)):
                raise changed_by_others(self.url, f"the {kind} {name}")

    @staticmethod
    def _is_plain(c: SQLiteCursor, table: str) -> bool:
        """Return whether a table holds what it shows: it is not virtual, and none of its columns is computed."""
        c.execute("SELECT sql LIKE 'CREATE TABLE %' FROM sqlite_master WHERE type='table' AND name=?", (table,))
        (stored,) = c.fetchone()
        c.execute("SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden<>0", (table,))
        (computed,) = c.fetchone()
        return bool(stored) and not computed

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
        with translated(self.url):
            self._datastore.close()


def _look_at(path: Path, *, create: bool) -> None:
    """Refuse early, with the reason, what SQLite would refuse late or not at all; make an empty file for a new
    store."""
    if path.is_dir():
        raise NotAStore(f"{path} is a folder", hint="name a file, for example refold.db in that folder")
    if path.exists() and not path.is_file():
        raise NotAStore(f"{path} is not a file", hint="name a refold store, or a path that does not exist yet")
    try:
        with looking_at(path) as file:
            start = os.pread(file, len(_MAGIC), 0)
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
        _refuse_a_log_alone(path)
        try:
            make_empty(path)
        except OSError as error:
            raise BackendUnavailable(
                f"store {path} cannot be made: {error.strerror}", hint="check the folder's permissions"
            ) from error
        return
    except OSError as error:
        raise BackendUnavailable(
            f"store {path} cannot be read: {error.strerror}", hint="check the file's permissions"
        ) from error
    if not start:
        _refuse_a_log_alone(path)
    # A power cut while the file was made leaves a journal, and until SQLite has rolled it back the file is anything.
    if start and start != _MAGIC and not file_beside(path, "-journal").exists():
        raise NotAStore(
            f"{path} is not a SQLite database", hint="name a refold store, or a path that does not exist yet"
        )


def _refuse_a_log_alone(path: Path) -> None:
    """Refuse an empty file, or none, with a log beside it. SQLite writes the file before there is a log, so damage took
    it away; and it removes the log of an empty one."""
    log = file_beside(path, "-wal")
    if not (log.exists() and log.stat().st_size):
        return
    if path.exists() and path.stat().st_size:  # by now: another process is making the store
        return
    raise NotAStore(
        f"{path} is empty or gone, but its log is not, and may hold acknowledged commits",
        hint=f"put the file back, or save what is in the log ('refold doctor --salvage NEW', on an empty file); "
        f"without {log} a new store can be made",
    )

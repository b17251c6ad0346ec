"""Where the read model lies: a file beside the store, ``refold.read.db`` for ``refold.db``. It must never touch a file
that is not a read model.

It is a file of its own, not tables in the store's, for two reasons. A rebuild writes everything anew, and would hold
the one write lock of the store for as long, while runs wait to append. And a file that can be given to any tool, left
behind or deleted without a thought must not be the one that holds the journal.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlite_utils import Database

from engine.core.errors import BackendUnavailable, EngineError, NotAStore
from engine.readmodel.filters import HOLDS, holds
from engine.readmodel.schema import changed_by_others, create_schema, drop_everything
from engine.store.errors import translation_of

__all__ = ["Place", "beside"]

APPLICATION_ID: Final = 0x7266_726D  # "rfrm" in the SQLite header: a read model is known by it
BUSY_TIMEOUT_S: Final = 30.0
MEMORY: Final = "memory:"
_OF_OTHERS: Final = frozenset((sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH))
"""What SQLite says when a table or a row is not what we left: our own statements fit what we make."""
_DELETE: Final = "delete the file and give the command again: the journal holds everything that was in it"


def beside(store: Path) -> Path:
    """Return where the read model of a store lies unless another place is named."""
    return store.with_name(f"{store.stem}.read{store.suffix}")


class Place:
    """An open read model: one connection for writing, and others for reading. In memory when ``path`` is None.

    Raises NotAStore for a file of something else, which is left as it is, and BackendUnavailable. A file of another
    version of the schema is emptied.
    """

    def __init__(self, path: Path | None, version: int) -> None:
        self.path = None if path is None else path.absolute()
        self.where = MEMORY if path is None else str(path)
        self._version = version
        if self.path is not None and self.path.is_dir():
            raise NotAStore(f"{path} is a folder", hint="name a file for the read model")
        if self.path is not None and not self.path.parent.is_dir():
            raise BackendUnavailable(f"the folder {self.path.parent} does not exist", hint="make it, or name another")
        with self.translated():
            self._connection = self._connect("rwc")
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _connect(self, mode: str) -> sqlite3.Connection:
        target = ":memory:" if self.path is None else f"file:{quote(os.fsencode(self.path))}?mode={mode}"
        connection = sqlite3.connect(
            target, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
        )
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.create_function(HOLDS, 3, holds, deterministic=True)
        return connection

    # -- opening ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Check that the file is ours or new; make the schema when it holds none, or another one."""
        # A crash of the machine may take the latest transactions back, never half of one: position and rows stay true.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._check_ours()
        if self.path is not None:
            self._set_wal()
        self.database = Database(self._connection, execute_plugins=False)
        if self._pragma("user_version") != self._version:
            self.reset(only_other=True)
        elif (odd := changed_by_others(self.database)) is not None:
            raise self.damaged(odd)
        self._connection.execute("PRAGMA foreign_keys=ON")

    def _check_ours(self) -> None:
        application = self._pragma("application_id")
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION_ID and (application or tables):
            raise NotAStore(
                f"{self.where} is a SQLite database, but no read model",
                hint="name another file: a read model is only ever written to a file of its own",
            )

    def _pragma(self, name: str) -> int:
        (value,) = self._connection.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    def _set_wal(self) -> None:
        """Let others read while we write. SQLite does not wait for other openers here, so we do."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def reset(self, *, only_other: bool = False) -> None:
        """Empty the read model, in one transaction; with ``only_other`` only when it is of another version."""
        self._connection.execute("PRAGMA foreign_keys=OFF")
        with self.writing():
            self._check_ours()  # somebody else may have been first
            if not only_other or self._pragma("user_version") != self._version:
                drop_everything(self.database)
                create_schema(self.database)
                self._connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version={self._version}")
        self._connection.execute("PRAGMA foreign_keys=ON")

    # -- using --------------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[Database]:
        """Run a block as one transaction, begun with the write lock; foreign keys are checked at its end."""
        connection = self._connection
        with self.translated():
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("PRAGMA defer_foreign_keys=ON")
                yield self.database
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for reading: of its own, opened read-only; in memory, which only one connection sees, the
        one there is, told to refuse writes meanwhile."""
        if self.path is None:
            self._connection.execute("PRAGMA query_only=ON")
            try:
                yield self._connection
            finally:
                self._connection.execute("PRAGMA query_only=OFF")
            return
        with self.translated():
            connection = self._connect("ro")
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Run a block; what the database raises leaves it as an error of refold."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the second: a damaged name in a message of SQLite
            raise self.translation_of(error) from error

    def translation_of(self, error: sqlite3.Error | UnicodeDecodeError) -> EngineError:
        """Return the error of refold for one of the database."""
        found = translation_of(error, self.where)
        if "no such module: fts5" in str(error):
            return BackendUnavailable("this SQLite has no full-text search (FTS5)", hint="use a Python that has it")
        if isinstance(found, NotAStore) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_OTHERS:
            return self.damaged(str(error))
        found.message = found.message.replace("store", "the read model", 1)
        if isinstance(found, BackendUnavailable):
            found.hint += "; or name another place (--path FILE, --path memory:)"
        return found

    def damaged(self, reason: str) -> NotAStore:
        """Return the error for a file that does not hold what was written into it."""
        return NotAStore(f"the read model {self.where} is damaged, or changed by others", hint=_DELETE, reason=reason)

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

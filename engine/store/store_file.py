"""A store file as the doctor looks at it: as it lies, and leaving no trace if that can be. It must never write to a
file that it looks at."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from engine.core.errors import BackendUnavailable, EngineError, NotAStore, NotFound
from engine.store.backend import Backend
from engine.store.connect import path_of
from engine.store.errors import DATABASE_ERRORS, translation_of
from engine.store.sqlite import SqliteBackend
from engine.store.sqlite_connections import Pool
from engine.store.sqlite_files import file_beside, looking_at
from engine.store.sqlite_log import LOG_HEADER_BYTES, read_log
from engine.store.sqlite_pages import HEADER_BYTES, page_bytes_of

__all__ = ["commits_dropped", "file_of", "file_problems", "is_of_the_file", "looked_at", "opened_to_look"]

_PROBLEMS_MAX: Final = 20
_READINGS_MAX: Final = 5
_OF_THE_FILE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_ERROR)


def file_of(url: str | Path) -> Path:
    """Return the file of a store. Raises NotFound; NotAStore for what is no file; BackendUnavailable when it may not
    be read."""
    path = path_of(url) if str(url) and "\0" not in str(url) else None
    if path is None:
        raise NotAStore(f"store {url} is no file", hint="the doctor looks at store files")
    if path.is_dir():
        raise NotAStore(f"{path} is a folder", hint="name a file, for example refold.db in that folder")
    if not path.exists():
        raise NotFound(f"there is no store at {path}", hint="--store or REFOLD_STORE names another")
    if not path.is_file():
        raise NotAStore(f"{path} is not a file", hint="the doctor looks at store files")
    try:
        with looking_at(path):
            return path
    except OSError as error:
        raise BackendUnavailable(
            f"store {path} cannot be read: {error.strerror}", hint="check the file's permissions"
        ) from error


@contextmanager
def looked_at(path: Path) -> Iterator[Path]:
    """Give the path at which SQLite can look at a store: its own, unless there is a log and no place for the index that
    SQLite makes of it. Then it is that of a copy."""
    log, index = file_beside(path, "-wal"), file_beside(path, "-shm")
    if index.exists() or os.access(path.parent, os.W_OK) or not (log.exists() and log.stat().st_size):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="refold-doctor-") as folder:
        copy = Path(folder, path.name)
        try:
            for source, target in ((path, copy), (log, file_beside(copy, "-wal"))):
                shutil.copyfile(source, target)  # nobody has it open: without the index nobody could
        except OSError as error:
            problem = f"store {path} cannot be copied to where SQLite can look at it: {error.strerror}"
            raise BackendUnavailable(
                problem, hint="copy it and its -wal file to a folder that can be written"
            ) from error
        yield copy


def commits_dropped(path: Path) -> int:
    """Return how many commits in the log beside a store were flushed once and cannot be reached any more, at least.

    Reads all of the log; twice, when it seems to be damaged, since a writer may have been at it. Raises OSError.
    """
    log = file_beside(path, "-wal")
    if not log.is_file():
        return 0
    with looking_at(path) as file, log.open("rb") as opened:
        page_bytes = page_bytes_of(os.pread(file, HEADER_BYTES, 0))
        seen: tuple[bytes, tuple[tuple[int, int], ...]] | None = None
        for _ in range(_READINGS_MAX):
            found = read_log(opened.fileno(), page_bytes)
            if not found.commits_dropped:
                return 0
            last, seen = seen, (os.pread(opened.fileno(), LOG_HEADER_BYTES, 0), found.dropped[:1])
            if last == seen:
                return found.commits_dropped
        return 0


def file_problems(path: Path, *, alone: bool = False) -> list[str]:
    """Return what SQLite itself finds wrong with a file, nothing when it is sound. Changes nothing; see
    :class:`engine.store.sqlite_connections.Pool` for ``alone``. Raises BackendUnavailable."""
    if not path.stat().st_size:  # SQLite has nothing to say of an empty file, and removes the log beside one
        return []
    try:
        with closing(Pool(path, read_only=True, alone=alone).connect()) as connection:
            rows = connection.execute(f"PRAGMA integrity_check({_PROBLEMS_MAX})").fetchall()
    except DATABASE_ERRORS as error:
        if _number(error) not in (*_OF_THE_FILE, None):
            raise translation_of(error, str(path)) from error
        return [str(error)]
    return [line for (text,) in rows if text != "ok" for line in str(text).splitlines()]


def opened_to_look(path: Path, *, alone: bool = False) -> Backend:
    """Open a store to look at what SQLite sees of it, even where that is not all. Raises as ``connect`` does."""
    return SqliteBackend(path, create=False, read_only=True, to_look=True, alone=alone)


def is_of_the_file(error: EngineError) -> bool:
    """Return whether an error says something of the file: a disk that cannot give back what is there is damage too. Any
    other says that it cannot be looked at now."""
    return not isinstance(error, BackendUnavailable) or _number(error.__cause__) in _OF_THE_FILE


def _number(error: BaseException | None) -> int | None:
    """Return SQLite's primary number of an error, None when it is none of SQLite's."""
    while error is not None and not isinstance(error, sqlite3.Error):
        error = error.__cause__
    number = getattr(error, "sqlite_errorcode", None)
    return None if number is None else number & 0xFF

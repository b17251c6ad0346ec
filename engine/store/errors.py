"""Turns the errors of databases into those of refold, in one place. No sqlite3 or eventsourcing error may pass it
untranslated."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eventsourcing.domain import EventSourcingError

from engine.core.errors import BackendUnavailable, EngineError, NotAStore

__all__ = ["DATABASE_ERRORS", "changed_by_others", "translated", "translation_of"]

_DOCTOR: Final = "'refold doctor' says what is damaged and what can be saved"
_HINTS: tuple[tuple[int, type[EngineError], str, str], ...] = (
    (
        sqlite3.SQLITE_BUSY,
        BackendUnavailable,
        "is locked by another process",
        "try again; a writer held the lock too long",
    ),
    (  # SQLite's own patience, ten seconds: a writer is stopped in the middle of saying that it has committed
        sqlite3.SQLITE_PROTOCOL,
        BackendUnavailable,
        "is locked by another process",
        "try again; a writer held the lock too long",
    ),
    (sqlite3.SQLITE_LOCKED, BackendUnavailable, "is locked by this process", "try again"),
    (sqlite3.SQLITE_FULL, BackendUnavailable, "cannot grow: the disk is full", "free some space and try again"),
    (
        sqlite3.SQLITE_READONLY,
        BackendUnavailable,
        "is read-only",
        "make the file and its folder writable, or only read",
    ),
    (sqlite3.SQLITE_CANTOPEN, BackendUnavailable, "cannot be opened", "check that the folder exists and is accessible"),
    (
        sqlite3.SQLITE_PERM,
        BackendUnavailable,
        "may not be accessed",
        "check the permissions of the file and its folder",
    ),
    (sqlite3.SQLITE_IOERR, BackendUnavailable, "had an input/output error", "check the disk, then try again"),
    (sqlite3.SQLITE_NOMEM, BackendUnavailable, "ran out of memory", "free some memory and try again"),
    (sqlite3.SQLITE_INTERRUPT, BackendUnavailable, "was interrupted", "try again"),
    (
        sqlite3.SQLITE_CORRUPT,
        NotAStore,
        "is damaged",
        _DOCTOR,
    ),
    (
        sqlite3.SQLITE_NOTADB,
        NotAStore,
        "is not a SQLite database",
        "name a refold store, or a path that does not exist yet",
    ),
)


DATABASE_ERRORS: Final = (sqlite3.Error, EventSourcingError, UnicodeDecodeError)
"""What a database may raise. The last one is Python's answer to an error message with a damaged name in it."""


def translation_of(error: Exception, where: str) -> EngineError:
    """Return the refold error for a database error at ``where`` (the store's url)."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, sqlite3.Error):
        cause = cause.__cause__ or (cause.args[0] if cause.args and isinstance(cause.args[0], Exception) else None)
    number = getattr(cause, "sqlite_errorcode", None)
    if number == sqlite3.SQLITE_READONLY_ROLLBACK:
        what = "was being changed when its process or the power died, and that has to be undone first"
        return BackendUnavailable(f"store {where} {what}", hint="open it for writing once", reason=str(cause))
    if number is not None:
        for primary, kind, what, hint in _HINTS:
            if number & 0xFF == primary:
                return kind(f"store {where} {what}", hint=hint, reason=str(cause))
    text = str(cause or error)
    if isinstance(error, UnicodeDecodeError):
        return NotAStore(f"store {where} is damaged", hint=_DOCTOR, reason=text)
    if "Closed" in type(error).__name__ or (isinstance(cause, sqlite3.ProgrammingError) and "closed" in text):
        return BackendUnavailable(f"store {where} is closed", hint="open it again with open_store()", reason=text)
    return BackendUnavailable(
        f"store {where} failed: {text}", hint="try again; if it stays, check the file and the disk"
    )


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Run a block that touches the database; whatever the database raises leaves it as a refold error."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise _of_schema(error, where) or translation_of(error, where) from error


def _of_schema(error: Exception, where: str) -> EngineError | None:
    """Return the refold error when a table or a column is not there, or the file is of a form that this SQLite does not
    know: what we ask never changes, so the file has."""
    changed = str(error).startswith(("no such ", "unsupported file format"))
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR and changed:
        return changed_by_others(where, str(error))
    return None


def changed_by_others(where: str, reason: str) -> NotAStore:
    """Return the error for a store whose tables are not those that refold made."""
    return NotAStore(f"store {where} is damaged, or another program changed it", hint=_DOCTOR, reason=reason)

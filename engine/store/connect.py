"""Finds the backend that a store url names. It must never guess: an unknown scheme is refused, not taken for a file
name."""

from __future__ import annotations

from pathlib import Path

from engine.core.errors import BackendUnavailable
from engine.store.backend import Backend
from engine.store.memory import MemoryBackend
from engine.store.sqlite import SqliteBackend

__all__ = ["connect", "path_of"]


def connect(url: str | Path, *, create: bool = True, read_only: bool = False) -> Backend:
    """Open ``memory:``, a path, or ``sqlite:///path``. Raises NotAStore, NotFound, SchemaError, BackendUnavailable."""
    if not str(url) or "\0" in str(url):
        raise BackendUnavailable(
            "the store's path is empty or holds a null character", hint="name a file such as refold.db"
        )
    if url == "memory:":
        return MemoryBackend()
    path = path_of(url)
    if path is not None:
        return SqliteBackend(path, create=create, read_only=read_only)
    scheme = str(url).partition("://")[0]
    raise BackendUnavailable(
        f"no backend for {scheme}:// stores in this version", hint="use a path, sqlite:///path or memory:", url=url
    )


def path_of(url: str | Path) -> Path | None:
    """Return the file of a store, None when its url names none."""
    if isinstance(url, Path):
        return url
    scheme, separator, rest = url.partition("://")
    if not separator:
        return None if url == "memory:" else Path(url)
    # sqlite:///relative.db and sqlite:////absolute.db, as SQLAlchemy writes them
    return Path(rest.removeprefix("/")) if scheme == "sqlite" else None

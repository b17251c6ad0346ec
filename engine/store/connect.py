"""Finds the backend that a store url names. It must never guess: an unknown scheme is refused, not taken for a file
name."""

from __future__ import annotations

from pathlib import Path

from engine.core.errors import BackendUnavailable
from engine.store.backend import Backend
from engine.store.memory import MemoryBackend
from engine.store.sqlite import SqliteBackend

__all__ = ["connect"]


def connect(url: str | Path, *, create: bool = True, read_only: bool = False) -> Backend:
    """Open ``memory:``, a path, or ``sqlite:///path``. Raises NotAStore, NotFound, SchemaError, BackendUnavailable."""
    if not str(url) or "\0" in str(url):
        raise BackendUnavailable(
            "the store's path is empty or holds a null character", hint="name a file such as refold.db"
        )
    if isinstance(url, Path):
        return SqliteBackend(url, create=create, read_only=read_only)
    if url == "memory:":
        return MemoryBackend()
    scheme, separator, rest = url.partition("://")
    if not separator:
        return SqliteBackend(Path(url), create=create, read_only=read_only)
    if scheme == "sqlite":
        # sqlite:///relative.db and sqlite:////absolute.db, as SQLAlchemy writes them
        return SqliteBackend(Path(rest.removeprefix("/")), create=create, read_only=read_only)
    raise BackendUnavailable(
        f"no backend for {scheme}:// stores in this version", hint="use a path, sqlite:///path or memory:", url=url
    )

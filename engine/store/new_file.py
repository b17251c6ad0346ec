"""A new store file, made from commits that are known to be good. It must never be given a name that anyone knows before
it is closed.

Many rows are one transaction here: nobody waits for any one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from engine.core.envelope import COMMIT_TOPIC
from engine.core.errors import BackendUnavailable
from engine.store.errors import translated
from engine.store.journal import Journal
from engine.store.remains import Proved
from engine.store.sqlite import SqliteBackend

__all__ = ["NewFile"]

_ROWS_MAX: Final = 1_000
_BYTES_MAX: Final = 8 * 1024 * 1024


class NewFile:
    """A store file in the making. Raises BackendUnavailable when it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backend = SqliteBackend(path)
        self.journal = Journal(self._backend)

    def write(self, run_id: str, commits: Iterable[Proved]) -> None:
        """Write the commits of a run, or of a fork that is there: the bytes as they are."""
        insert = self._backend.commits.insert_events_statement
        for some in _portions(commits):
            last = some[-1].commit
            rows = [(run_id, found.commit.first, COMMIT_TOPIC, found.stored) for found in some]
            with translated(str(self._path)), self._backend.commits.datastore.transaction(commit=True) as c:
                c.sqlite_cursor.executemany(insert, rows)
                c.execute(
                    "INSERT INTO run_heads (run_id, position, link) VALUES (?,?,?) "
                    "ON CONFLICT (run_id) DO UPDATE SET position=excluded.position, link=excluded.link",
                    (run_id, last.last, last.link),
                )

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the file: all of it is in the one file then, and flushed."""
        self._backend.close()
        log = self._path.with_name(self._path.name + "-wal")
        if kind is None and log.exists():  # SQLite could not empty it, and says nothing of that
            raise BackendUnavailable(f"{self._path} cannot be written", hint="free some space and try again")


def _portions(commits: Iterable[Proved]) -> Iterator[list[Proved]]:
    portion: list[Proved] = []
    size = 0
    for found in commits:
        portion.append(found)
        size += len(found.stored)
        if len(portion) >= _ROWS_MAX or size >= _BYTES_MAX:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion

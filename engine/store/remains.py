"""What is left of a damaged store file: its rows as candidates, whatever SQLite thinks of the file. It must never pass
a row for a commit; that a candidate is one, its link proves, and only that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

from engine.core.codec import NotCanonical
from engine.core.envelope import COMMIT_TOPIC, LINK_BYTES, Commit, body_of, open_commit
from engine.core.errors import CorruptJournal, InvalidValue
from engine.core.fields import check_id
from engine.store.backend import Head, Origin
from engine.store.sqlite_pages import Cell, Pages, Record
from engine.store.sqlite_recorders import HIDDEN

__all__ = ["Candidate", "Proved", "Remains", "file_problems"]

_PROBLEMS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that says it is a commit of a run: where it lies, and the link that it states."""

    run_id: str
    first: int
    link: bytes
    cell: Cell


@dataclass(frozen=True, slots=True)
class Proved:
    """A candidate that is a commit: its stored bytes, and the commit itself."""

    candidate: Candidate
    stored: bytes
    commit: Commit


@dataclass(slots=True)
class _Found:
    heads: list[Head] = field(default_factory=list)
    rows: dict[int, list[Candidate]] = field(default_factory=dict)


class Remains:
    """The candidates of every run of a store file. Keeps places, not bytes: memory follows the number of commits."""

    def __init__(self, path: Path) -> None:
        self._pages = Pages(path)
        self.commits_dropped = 0 if self._pages.log is None else self._pages.log.commits_dropped
        """Commits in the log that were flushed once and that SQLite would drop without a word."""
        self._runs: dict[str, _Found] = {}
        for page in self._pages.sources():
            for cell, record in self._pages.cells(page):
                self._take(cell, record)

    def __enter__(self) -> Remains:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pages.__exit__(kind, error, at)

    def _take(self, cell: Cell, record: Record) -> None:
        if len(record) == 5:
            _, run_id, first, topic, stored = record
            if topic == COMMIT_TOPIC and type(stored) is bytes and type(first) is int and first > 0 and _is_id(run_id):
                candidate = Candidate(run_id, first, stored[:LINK_BYTES], cell)
                self._of(run_id).rows.setdefault(first, []).append(candidate)
        elif len(record) == 7:
            head = _head(record)
            if head is not None and head not in self._of(head.run_id).heads:
                self._of(head.run_id).heads.append(head)

    def _of(self, run_id: str) -> _Found:
        return self._runs.setdefault(run_id, _Found())

    def runs(self) -> list[str]:
        """Return the ids of all runs of which anything is left, in order."""
        return sorted(self._runs)

    def heads(self, run_id: str) -> list[Head]:
        """Return the head records of a run: the newest first; none when it is lost."""
        return sorted(self._of(run_id).heads, key=lambda head: -head.position)

    def positions(self, run_id: str) -> list[int]:
        """Return the first positions of a run's candidates, in order."""
        return sorted(self._of(run_id).rows)

    def at(self, run_id: str, first: int) -> list[Candidate]:
        """Return the candidates of a run at a position."""
        return self._of(run_id).rows.get(first, [])

    def candidates(self, run_id: str) -> list[Candidate]:
        """Return all candidates of a run."""
        return [candidate for rows in self._of(run_id).rows.values() for candidate in rows]

    def proved(self, run_id: str, first: int, previous: bytes) -> Proved | None:
        """Return the candidate at ``first`` whose link follows from ``previous``, opened; None when there is none."""
        return self._first_of(self.at(run_id, first), first, previous)

    def stray(self, run_id: str, first: int, previous: bytes) -> Proved | None:
        """As :meth:`proved`, among the rows whose run or position may be what is damaged: those of runs without a head
        record, and those of this run that stand elsewhere. The link covers neither, so it still tells."""
        strays = [row for other in self._runs if not self._of(other).heads for row in self.candidates(other)]
        return self._first_of([*strays, *self.candidates(run_id)], first, previous)

    def open(self, candidate: Candidate, first: int, previous: bytes) -> Proved | None:
        """Return a candidate opened as the commit at ``first``, None when its link does not follow from
        ``previous``."""
        for stored in self._stored([candidate]):
            try:
                return Proved(candidate, stored, open_commit(candidate.run_id, first, previous, stored))
            except CorruptJournal:
                return None
        return None

    def readable(self, candidates: Sequence[Candidate]) -> Iterator[bytes]:
        """Yield the stored bytes of those candidates whose body can at least be unpacked."""
        for stored in self._stored(candidates):
            try:
                body_of(stored)
            except NotCanonical:
                continue
            yield stored

    def _first_of(self, rows: Sequence[Candidate], first: int, previous: bytes) -> Proved | None:
        return next((found for row in rows if (found := self.open(row, first, previous)) is not None), None)

    def _stored(self, candidates: Sequence[Candidate]) -> Iterator[bytes]:
        for candidate in candidates:
            try:
                stored: Any = self._pages.record(candidate.cell)[4]
            except (ValueError, IndexError):
                continue
            if type(stored) is bytes and len(stored) > LINK_BYTES:
                yield stored


def _is_id(value: Any) -> bool:
    try:
        check_id(value)
    except InvalidValue:
        return False
    return True


def _head(record: Record) -> Head | None:
    """Return a head record, None for a row that is none."""
    run_id, position, link, origin_run, origin_position, origin_link, hidden = record
    if not (_is_id(run_id) and type(position) is int and position >= 0 and type(link) is bytes):
        return None
    origin = None
    if (origin_run, origin_position, origin_link) != (None, None, None):
        if not (_is_id(origin_run) and type(origin_position) is int and type(origin_link) is bytes):
            return None
        origin = Origin(origin_run, origin_position, origin_link)
    return Head(run_id, position, link, origin, hidden == HIDDEN)


def file_problems(path: Path) -> list[str]:
    """Return what SQLite itself finds wrong with a file, nothing when it is sound. Changes nothing."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            rows = connection.execute(f"PRAGMA integrity_check({_PROBLEMS_MAX})").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    return [line for (text,) in rows if text != "ok" for line in str(text).splitlines()]

"""What is left of a damaged store file: its rows as candidates, whatever SQLite thinks of the file. It must never pass
a row for a commit; that a candidate is one, its link proves, and only that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from engine.core.codec import NotCanonical
from engine.core.envelope import LINK_BYTES, Commit, body_of, open_commit
from engine.core.errors import CorruptJournal, InvalidValue
from engine.core.fields import check_id
from engine.store.backend import Head, Origin
from engine.store.sqlite_pages import Pages, Place
from engine.store.sqlite_recorders import HIDDEN
from engine.store.sqlite_rows import Record

__all__ = ["Place", "Proved", "Remains"]

_COLUMNS, _COLUMNS_OF_HEAD = 5, 7
_STEP_PAGES: Final = 256


@dataclass(frozen=True, slots=True)
class Proved:
    """A candidate that is a commit: where it lies, its stored bytes, and the commit itself."""

    place: Place
    stored: bytes
    commit: Commit


@dataclass(slots=True)
class _Found:
    """What is left of one run: its head records, and two columns of its rows, in order of position."""

    heads: dict[Head, None] = field(default_factory=dict)
    older: dict[Head, None] = field(default_factory=dict)
    firsts: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))

    def put_in_order(self) -> None:
        firsts = self.firsts
        if any(firsts[index] > firsts[index + 1] for index in range(len(firsts) - 1)):
            order = sorted(range(len(firsts)), key=firsts.__getitem__)
            self.firsts = array("q", map(firsts.__getitem__, order))
            self.places = array("q", map(self.places.__getitem__, order))


class Remains:
    """The candidates of every run of a store file. Keeps places, not bytes: some twenty bytes a commit.

    ``progress`` is called with (pages, of so many) on the way. Raises OSError when the file cannot be opened.
    """

    def __init__(self, path: Path, *, progress: Callable[[int, int], None] | None = None) -> None:
        self._pages = Pages(path)
        self._runs: dict[str, _Found] = {}
        self._astray = array("q")
        try:
            for count, page in enumerate(self._pages.sources()):
                if progress is not None and count % _STEP_PAGES == 0:
                    progress(count, max(count, self._pages.count))
                for place, record in self._pages.cells(page):
                    self._take(place, record, newest=page.newest)
        except BaseException:
            self._pages.close()
            raise
        for found in self._runs.values():
            found.put_in_order()

    def __enter__(self) -> Remains:
        return self

    def __exit__(self, *_: object) -> None:
        self._pages.close()

    def _take(self, place: Place, record: Record, *, newest: bool) -> None:
        if len(record) == _COLUMNS:
            _, run_id, first, _, stored = record
            if type(stored) is not bytes or len(stored) < LINK_BYTES:
                return
            if type(first) is int and first > 0 and (run_id in self._runs or _is_id(run_id)):
                found = self._of(run_id)
                found.firsts.append(first)
                found.places.append(place)
            else:
                self._astray.append(place)
        elif len(record) == _COLUMNS_OF_HEAD:
            head = _head(record)
            if head is not None:
                found = self._of(head.run_id)
                (found.heads if newest else found.older)[head] = None

    def _of(self, run_id: str) -> _Found:
        return self._runs.setdefault(run_id, _Found())

    # -- what there is ------------------------------------------------------------------------------------------------

    def runs(self) -> list[str]:
        """Return the ids of all runs of which anything is left, in order."""
        return sorted(self._runs)

    def heads(self, run_id: str) -> list[Head]:
        """Return the head records of a run: the one that says most first; none when all are lost."""
        found = self._runs[run_id]
        return sorted(found.heads or found.older, key=lambda head: (-head.position, not head.hidden))

    def may_be_deleted(self, run_id: str) -> bool:
        """Return whether the newest pages that are left hold no head record of the run."""
        return not self._runs[run_id].heads

    def rows(self, run_id: str, *, after: int = 0) -> Iterator[tuple[int, list[Place]]]:
        """Yield (first position, candidates there) of a run, in order, behind ``after``."""
        found = self._runs[run_id]
        at = bisect_left(found.firsts, after + 1)
        while at < len(found.firsts):
            first = found.firsts[at]
            end = bisect_left(found.firsts, first + 1, at)
            yield first, list(found.places[at:end])
            at = end

    def at(self, run_id: str, first: int) -> Iterator[Place]:
        """Yield the candidates of a run at a position."""
        found = self._runs[run_id]
        at = bisect_left(found.firsts, first)
        while at < len(found.firsts) and found.firsts[at] == first:
            yield found.places[at]
            at += 1

    def count(self, run_id: str) -> int:
        """Return how many candidates a run has."""
        return len(self._runs[run_id].places)

    def astray(self) -> Iterable[Place]:
        """Return the candidates that do not say of which run they are, or at which position."""
        return self._astray

    # -- opened -------------------------------------------------------------------------------------------------------

    def proved(self, run_id: str, first: int, previous: bytes) -> Proved | None:
        """Return the candidate at ``first`` whose link follows from ``previous``, opened; None when there is none."""
        return self._first_of(self.at(run_id, first), first, previous)

    def stray(self, run_id: str, first: int, previous: bytes) -> Proved | None:
        """As :meth:`proved`, among the rows whose run or position may be what is damaged: those that state none, those
        of runs without a head record, those of this run that stand elsewhere, and those at this position in others.
        The link covers neither, so it still tells."""
        headless = (other.places for other in self._runs.values() if not (other.heads or other.older))
        beside = (self.at(other, first) for other in self._runs if other != run_id)
        return self._first_of(chain(self._astray, *headless, self._runs[run_id].places, *beside), first, previous)

    def open(self, place: Place, first: int, previous: bytes) -> Proved | None:
        """Return a candidate opened as the commit at ``first``, None when its link does not follow from
        ``previous``."""
        for stored in self._stored(place):
            try:
                return Proved(place, stored, open_commit("", first, previous, stored))
            except CorruptJournal:
                continue
        return None

    def readable(self, place: Place) -> Iterator[bytes]:
        """Yield the stored bytes of a candidate if its body can at least be unpacked."""
        for stored in self._stored(place):
            try:
                body_of(stored)
            except NotCanonical:
                continue
            yield stored

    def link(self, place: Place) -> bytes:
        """Return the link that a candidate states, nothing when its bytes are no longer there."""
        return next((stored[:LINK_BYTES] for stored in self._stored(place)), b"")

    def _first_of(self, places: Iterable[Place], first: int, previous: bytes) -> Proved | None:
        return next((found for place in places if (found := self.open(place, first, previous)) is not None), None)

    def _stored(self, place: Place) -> Iterator[bytes]:
        for stored in self._pages.last_blobs(place, _COLUMNS):
            if len(stored) > LINK_BYTES:
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

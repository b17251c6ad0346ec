"""Where runs end, where their rows lie, and whether they are there at all. It must never take a run that is deleted
while it is read for a damaged one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from engine.core.errors import CorruptJournal, InvalidValue, NotAStore, NotFound
from engine.core.fields import check_id
from engine.store.backend import Backend, Head
from engine.store.errors import translated
from engine.store.lineage import Segment, lineage
from engine.store.row import RawCommit

__all__ = ["Heads"]

_PAGE_ROWS: Final = 128
_PAGE_BYTES: Final = 1 << 20  # a page shrinks when commits are large, so that reading stays in bounded memory


class Heads:
    """The ends and the rows of every run of a store, over the backend's recorder."""

    def __init__(self, backend: Backend) -> None:
        self._commits = backend.commits
        self._where = backend.url

    def head(self, run_id: str) -> Head | None:
        """Return the end of a run, or None when it has no events."""
        with translated(self._where):
            return self._commits.head(run_id)

    def heads(self) -> Sequence[Head]:
        """Return the ends of all runs, in order of run id. A run whose head record is lost is among them, at 0."""
        with translated(self._where):
            return [head for head in self._commits.heads() if not head.hidden]

    def existing_head(self, run_id: str) -> Head:
        """Return the end of a run. Raises NotFound, InvalidValue for what is no id, CorruptJournal for commits without
        an end, or with one before the first of them."""
        try:
            check_id(run_id)
        except InvalidValue as error:
            raise error.at("run id") from None
        head = self.head(run_id)
        if head is None and next(self.raw(run_id), None) is not None:
            raise CorruptJournal(run_id, 1, "a head record", "none, though there are commits")
        if head is None or head.hidden:
            raise NotFound(f"there is no run {run_id!r} in {self._where}", hint="'refold runs' lists them", run=run_id)
        lowest = 1 if head.origin is None else head.origin.position
        if head.position < lowest:  # or whoever reads up to there would find nothing, and nothing wrong
            raise CorruptJournal(run_id, lowest, "a head record of its last event", f"one at {head.position}")
        return head

    def raw(self, run_id: str, *, after: int = 0) -> Iterator[RawCommit]:
        """Yield stored rows with ``first > after``, unchecked, in order, in bounded memory.

        Raises CorruptJournal when the database itself cannot give them back, or not in order.
        """
        limit = 4
        while True:
            rows = self._rows(run_id, after + 1, gt=after, limit=limit)
            for first, topic, stored in rows:
                if first <= after:
                    raise CorruptJournal(run_id, after + 1, "rows in order of position", f"one at {first}")
                yield RawCommit(first, topic, stored)
                after = first
            if len(rows) < limit:
                return
            mean = sum(len(stored) for _, _, stored in rows) // len(rows) + 1
            limit = max(1, min(_PAGE_ROWS, _PAGE_BYTES // mean))

    def _rows(self, run_id: str, about: int, **span: Any) -> Sequence[tuple[int, str, bytes]]:
        """Return rows of the recorder; a database that is broken where they lie is damage at position ``about``."""
        try:
            with translated(self._where):
                return self._commits.rows(run_id, **span)
        except NotAStore as error:
            raise CorruptJournal(run_id, about, "a row that the database can read", error.message) from error

    def lineage(self, run_id: str) -> list[Segment]:
        """Return where the run's positions lie: its own stream, and for a fork those of its origins, oldest first."""
        heads: list[Head | None] = []

        def head_of(name: str) -> Head | None:
            heads.append(self.head(name))
            return heads[-1]

        try:
            return lineage(run_id, head_of)
        except CorruptJournal:
            self.check_there(run_id, heads[0])
            raise

    def check_there(self, run_id: str, known: Head | None) -> None:
        """Raise NotFound when a run was deleted since its head was read as ``known``: what is missing of it then is
        not damage. A run is read in many steps, and a delete takes what it is made of between any two of them."""
        if self._is_gone(run_id, known):
            raise NotFound(
                f"run {run_id!r} was deleted meanwhile", hint="'refold runs' lists those there are", run=run_id
            )

    def _is_gone(self, run_id: str, known: Head | None) -> bool:
        head = self.head(run_id)
        if head is None:
            return next(self.raw(run_id), None) is None  # else its record was lost
        if known is None:
            return head.hidden
        anew = head.position < known.position or head.origin != known.origin
        return anew or head.hidden != known.hidden

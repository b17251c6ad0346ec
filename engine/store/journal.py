"""The journal: appends commits and reads them back with the chain checked. It must never return a byte whose link does
not hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from eventsourcing.persistence import IntegrityError, PersistenceError

from engine.core.envelope import COMMIT_TOPIC, LINK_BYTES, Commit, Group, genesis, open_commit
from engine.core.errors import Conflict, CorruptJournal, NotFound, SchemaError
from engine.store.backend import Backend, Head
from engine.store.errors import translated, translation_of

__all__ = ["Journal", "RawCommit", "cut"]

_PAGE_ROWS: Final = 128
_PAGE_BYTES: Final = 1 << 20  # a page shrinks when commits are large, so that reading stays in bounded memory


@dataclass(frozen=True, slots=True)
class RawCommit:
    """A stored row as it is, unchecked: only verification and repair look at these."""

    first: int
    topic: str
    stored: bytes


class Journal:
    """The commits of every run of a store, over the backend's recorder."""

    def __init__(self, backend: Backend) -> None:
        self._commits = backend.commits
        self._where = backend.url

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, run_id: str, first: int, count: int, stored: bytes, link: bytes) -> None:
        """Make one commit durable at position ``first``. Raises Conflict when the position is taken,
        BackendUnavailable."""
        head = Head(run_id, first + count - 1, link)
        try:
            self._commits.record(run_id, first, COMMIT_TOPIC, stored, head)
        except IntegrityError:
            raise Conflict(
                f"position {first} of run {run_id!r} was taken by another writer",
                hint="refresh the run (run.refresh()) and give the command again; nothing was written",
                run=run_id,
                position=first,
            ) from None
        except (sqlite3.Error, PersistenceError) as error:
            raise translation_of(error, self._where) from error

    # -- reading ------------------------------------------------------------------------------------------------------

    def head(self, run_id: str) -> Head | None:
        """Return the end of a run, or None when it has no events."""
        with translated(self._where):
            return self._commits.head(run_id)

    def heads(self) -> Sequence[Head]:
        """Return the ends of all runs, in order of run id."""
        with translated(self._where):
            return self._commits.heads()

    def existing_head(self, run_id: str) -> Head:
        """Return the end of a run. Raises NotFound."""
        head = self.head(run_id)
        if head is None:
            raise NotFound(f"there is no run {run_id!r} in {self._where}", hint="'refold runs' lists them", run=run_id)
        return head

    def raw(self, run_id: str, *, after: int = 0) -> Iterator[RawCommit]:
        """Yield stored rows with ``first > after``, unchecked, in order, in bounded memory."""
        limit = 4
        while True:
            with translated(self._where):
                rows = self._commits.rows(run_id, gt=after, limit=limit)
            for first, topic, stored in rows:
                yield RawCommit(first, topic, stored)
            if len(rows) < limit:
                return
            after = rows[-1][0]
            mean = sum(len(stored) for _, _, stored in rows) // len(rows) + 1
            limit = max(1, min(_PAGE_ROWS, _PAGE_BYTES // mean))

    def commits(
        self, run_id: str, *, after: int = 0, link: bytes | None = None, until: int | None = None
    ) -> Iterator[Commit]:
        """Yield checked commits from position ``after + 1`` on, until the one that holds ``until``.

        ``after`` must be 0 or the last position of a commit, and ``link`` the link there. Raises CorruptJournal at the
        first row that
        does not continue the chain, also when the run ends before its recorded head.
        """
        head = self.head(run_id)  # read before the rows: a writer may add some meanwhile, never take one away
        previous = genesis(run_id) if link is None else link
        last = after
        for row in self.raw(run_id, after=after):
            if until is not None and last >= until:
                return
            if row.first != last + 1:
                raise CorruptJournal(
                    run_id, last + 1, f"a commit at position {last + 1}", f"the next one at {row.first}"
                )
            commit = open_row(run_id, row, previous)
            yield commit
            previous, last = commit.link, commit.last
        self._check_end(run_id, head, last, previous, until)

    @staticmethod
    def _check_end(run_id: str, head: Head | None, last: int, link: bytes, until: int | None) -> None:
        if until is not None and last >= until:
            return
        if head is not None and last < head.position:
            raise CorruptJournal(run_id, last + 1, f"commits up to position {head.position}", f"the last one at {last}")
        if last and (head is None or (last == head.position and link != head.link)):
            found = "none" if head is None else f"one with link {head.link.hex()[:16]}…"
            raise CorruptJournal(run_id, last, f"a head record with link {link.hex()[:16]}…", found)

    def link_at(self, run_id: str, position: int) -> bytes | None:
        """Return the stored link of the commit that ends at ``position``, or None when none does. Not checked against
        its bytes."""
        with translated(self._where):
            rows = self._commits.rows(run_id, lte=position, desc=True, limit=1)
            following = self._commits.rows(run_id, gt=position, limit=1)
        if not rows:
            return None
        ends_here = following[0][0] == position + 1 if following else self.ends_at(run_id, position)
        return rows[0][2][:LINK_BYTES] if ends_here else None

    def ends_at(self, run_id: str, position: int) -> bool:
        """Return whether the run's head is exactly ``position``."""
        head = self.head(run_id)
        return head is not None and head.position == position

    def containing(self, run_id: str, positions: Sequence[int]) -> Iterator[Commit]:
        """Yield, each once and checked by its own link, the commits that hold the given ascending positions."""
        done = 0
        for position in positions:
            if position <= done:
                continue
            with translated(self._where):
                rows = self._commits.rows(run_id, lte=position, desc=True, limit=2)
            if not rows:
                raise CorruptJournal(run_id, position, "a commit", "none")
            first, topic, stored = rows[0]
            previous = rows[1][2][:LINK_BYTES] if len(rows) == 2 else genesis(run_id)
            commit = open_row(run_id, RawCommit(first, topic, stored), previous)
            if commit.last < position:
                raise CorruptJournal(run_id, position, "a commit that holds it", f"one that ends at {commit.last}")
            done = commit.last
            yield commit


def open_row(run_id: str, row: RawCommit, previous: bytes) -> Commit:
    """Return the checked commit of a stored row. Raises SchemaError for a newer row format, CorruptJournal."""
    if row.topic != COMMIT_TOPIC:
        if row.topic.startswith("refold.commit/") and row.topic.rpartition("/")[2].isdigit():
            raise SchemaError(
                f"run {run_id!r} position {row.first}: row format {row.topic} is newer than {COMMIT_TOPIC}",
                hint="upgrade refold to the version that wrote the run",
                position=row.first,
            )
        raise CorruptJournal(run_id, row.first, f"topic {COMMIT_TOPIC}", f"topic {row.topic!r:.40}")
    if type(row.stored) is not bytes:
        raise CorruptJournal(run_id, row.first, "bytes", type(row.stored).__name__)
    return open_commit(run_id, row.first, previous, row.stored)


def cut(commit: Commit, until: int | None) -> Sequence[Group]:
    """Return the groups of a commit up to and including position ``until``; the commit itself is left alone."""
    if until is None or commit.last <= until:
        return commit.groups
    keep = until - commit.first + 1
    groups: list[Group] = []
    for group in commit.groups:
        if keep <= 0:
            break
        groups.append([*group[:-1], group[-1][:keep]])
        keep -= len(group[-1])
    return groups

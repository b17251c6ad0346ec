"""The journal: what is written to the commits of a store's runs, appends, forks and deletes. It must never acknowledge
what is not durable, nor take away what a fork needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventsourcing.persistence import IntegrityError

from engine.core.envelope import COMMIT_TOPIC, genesis
from engine.core.errors import Conflict, CorruptJournal, NotFound, SchemaError
from engine.store.backend import Head, Origin
from engine.store.errors import DATABASE_ERRORS, translated, translation_of
from engine.store.lineage import fork_genesis, truncated
from engine.store.reader import Reader
from engine.store.row import segment_of

__all__ = ["Journal", "needed_by"]


class Journal(Reader):
    """The commits of every run of a store, to be read and written."""

    def append(
        self, run_id: str, first: int, count: int, stored: bytes, link: bytes, *, after: bytes | None = None
    ) -> None:
        """Make one commit durable at position ``first``, where the run ends in the link ``after`` (default: in any).

        Raises Conflict when the position is taken, or the run is another one by now; BackendUnavailable.
        """
        if after is None:
            known = self.head(run_id)
            after = None if known is None else known.link
        elif first == 1 and after == genesis(run_id):
            after = None
        head = Head(run_id, first + count - 1, link)
        try:
            self._commits.record(run_id, first, COMMIT_TOPIC, stored, head, after)
        except IntegrityError:
            raise Conflict(
                f"position {first} of run {run_id!r} was taken by another writer",
                hint="refresh the run (run.refresh()) and give the command again; nothing was written",
                run=run_id,
                position=first,
            ) from None
        except DATABASE_ERRORS as error:
            raise translation_of(error, self._where) from error

    # -- forks --------------------------------------------------------------------------------------------------------

    def fork(self, run_id: str, new_id: str, position: int) -> Head:
        """Make ``new_id`` a run that shares the history of ``run_id`` up to ``position``; constant in time and bytes.

        Raises NotFound, Conflict when the new run exists, CorruptJournal when the commit at ``position`` is damaged.
        """
        known = self.existing_head(run_id)
        try:
            return self._fork(run_id, known, new_id, position)
        except CorruptJournal:
            self.check_there(run_id, known)
            raise

    def _fork(self, run_id: str, head: Head, new_id: str, position: int) -> Head:
        if not 0 <= position <= head.position:
            raise NotFound(
                f"run {run_id!r} has no position {position}; it ends at {head.position}",
                hint=f"choose 0..{head.position}",
                run=run_id,
                position=position,
            )
        # A position at or before the run's own origin belongs to the run it was forked from: name that one.
        segment = segment_of(self.lineage(run_id), position)
        link, holding = segment.start, None
        if position > segment.low:
            commit, previous = self._holding(run_id, segment, position)
            link, holding = truncated(commit, position, previous).link, (commit.first, commit.link)
        origin = Origin(segment.run_id, position, link)
        forked = Head(new_id, position, fork_genesis(new_id, origin), origin)
        try:
            self._commits.create(forked, holding)
        except IntegrityError:
            if self.head(new_id) is None:
                raise NotFound(f"run {run_id!r} was deleted meanwhile", hint="nothing was made", run=run_id) from None
            raise Conflict(f"run {new_id!r} exists", hint="choose another name for the fork", run=new_id) from None
        except DATABASE_ERRORS as error:
            raise translation_of(error, self._where) from error
        return forked

    def forks_of(self, run_id: str) -> list[Head]:
        """Return the runs, hidden ones included, whose origin is this run."""
        with translated(self._where):
            heads = self._commits.heads()
        return [head for head in heads if head.origin is not None and head.origin.run_id == run_id]

    def shed(self, run_id: str, needed: int | None) -> bool:
        """Take away a run's commits and checkpoints after ``needed`` and hide it, or with None all of it, in one
        transaction.

        Returns False, and takes nothing, when the run is gone or a fork was made meanwhile that needs more.
        """
        with translated(self._where):
            try:
                self._commits.erase(run_id, needed=needed)
            except IntegrityError:
                return False
        return True

    def surplus(self) -> list[tuple[str, int | None]]:
        """Return the deleted runs that hold more than forks need, each with what is needed of it (None: nothing).

        None at all where the record of some fork is damaged: what it needs is then not known for sure.
        """
        while True:
            with translated(self._where):
                heads = self._commits.heads()
            needed: dict[str, int] = {}
            for head in heads:
                if head.origin is not None:
                    name = head.origin.run_id
                    needed[name] = max(needed.get(name, 0), head.origin.position)
            hidden = (head.run_id for head in heads if head.hidden)
            found = [(name, needed.get(name)) for name in hidden if self._has_more(name, needed)]
            doubtful = next((head for head in heads if found and not self._origin_holds(head)), None)
            if doubtful is None:
                return found
            if not self._is_gone(doubtful.run_id, doubtful):
                return []

    def _has_more(self, run_id: str, needed: dict[str, int]) -> bool:
        return run_id not in needed or self._reaches(run_id, needed[run_id])

    def _reaches(self, run_id: str, position: int) -> bool:
        """Return whether a run has commits that begin after a position."""
        return bool(self._rows(run_id, position + 1, gt=position, limit=1))

    def _origin_holds(self, head: Head) -> bool:
        """Return whether a run left the history that its record names, or begins by itself if it names none."""
        try:
            if head.origin is None:
                first = self._rows(head.run_id, 1, gt=0, limit=1)
                return not first or first[0][0] == 1
            *_, segment, _own = self.lineage(head.run_id)
            link = segment.start
            if head.origin.position > segment.low:
                commit, previous = self._holding(head.run_id, segment, head.origin.position)
                link = truncated(commit, head.origin.position, previous).link
        except (CorruptJournal, NotFound, SchemaError, ValueError):  # the last: it is not there any more
            return False
        return link == head.origin.link


def needed_by(forks: Sequence[Head]) -> int | None:
    """Return the last position of their origin that these forks need, None without forks."""
    return max((head.origin.position for head in forks if head.origin is not None), default=None)

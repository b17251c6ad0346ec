"""Reads the commits of a run back, forwards, backwards and one by one, with the chain checked. It must never return a
byte whose link does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.core.envelope import LINK_BYTES, Commit, genesis
from engine.core.errors import CorruptJournal, SchemaError
from engine.store.backend import Head
from engine.store.heads import Heads
from engine.store.lineage import Segment, fork_genesis, truncated
from engine.store.row import RawCommit, check_end, check_joint, link_before, open_row, segment_of

__all__ = ["Reader"]

_PAGE_BACK: Final = 32


class Reader(Heads):
    """The commits of every run of a store, to be read."""

    def commits(
        self, run_id: str, *, after: int = 0, link: bytes | None = None, until: int | None = None
    ) -> Iterator[Commit]:
        """Yield checked commits from position ``after + 1`` on, until the one that holds ``until``; also across forks.

        ``after`` must be 0 or the last position of a commit, and ``link`` the link there. Raises CorruptJournal at the
        first row that does not continue the chain, also when the run does not end as its head record says; what was
        asked for up to there is checked against it too. Raises NotFound when there is no such run, or none any more.
        """
        head = self._head_to_read(run_id)  # before the rows: a writer may add some meanwhile, never take one away
        try:
            yield from self._onwards(run_id, head, after, link, until)
        except CorruptJournal:
            self.check_there(run_id, head)
            raise

    def _head_to_read(self, run_id: str) -> Head | None:
        """Return the end of a run that is to be read, None where only the record of it is lost."""
        head = self.head(run_id)
        if head is None or head.hidden:
            self.check_there(run_id, None)
        return head

    def _onwards(
        self, run_id: str, head: Head | None, after: int, link: bytes | None, until: int | None
    ) -> Iterator[Commit]:
        last, previous = after, link
        for segment in self.lineage(run_id):
            if segment.high is not None and last >= segment.high:
                continue
            if previous is None or last <= segment.low:
                previous, last = segment.start, segment.low
            for row in self.raw(segment.run_id, after=last):
                if until is not None and last >= until:
                    break
                if segment.high is not None and last >= segment.high:
                    break
                if row.first != last + 1:
                    expected = f"a commit at position {last + 1}"
                    raise CorruptJournal(run_id, last + 1, expected, f"the next one at {row.first}")
                commit = open_row(run_id, row, previous)
                if segment.high is not None:
                    commit = truncated(commit, segment.high, previous)
                yield commit
                previous, last = commit.link, commit.last
            if (
                until is not None
                and last >= until
                and (segment.high is not None or head is None or until < head.position)
            ):
                return
            if segment.high is not None:
                check_joint(run_id, segment, last, previous)
        assert previous is not None, "a lineage ends with the run's own open segment"
        self._check_last(run_id, head, last, previous)

    def commits_backwards(self, run_id: str, *, until: int | None = None) -> Iterator[Commit]:
        """Yield commits from the one that holds ``until`` (default: the last) back to the first, each checked by its
        link.

        Of a commit at the joint of a fork only the shared part is yielded. Raises CorruptJournal, NotFound.
        """
        head = self._head_to_read(run_id)
        try:
            yield from self._backwards(run_id, head, until)
        except CorruptJournal:
            self.check_there(run_id, head)
            raise

    def _backwards(self, run_id: str, head: Head | None, until: int | None) -> Iterator[Commit]:
        for segment in reversed(self.lineage(run_id)):
            ceiling = min((limit for limit in (segment.high, until) if limit is not None), default=None)
            if ceiling is not None and ceiling <= segment.low:
                continue
            wanted = ceiling
            expected: int | None = None  # the last position that the next, older, commit must have
            while True:
                rows = self._rows(segment.run_id, ceiling or 1, lte=ceiling, desc=True, limit=_PAGE_BACK + 1)
                if not rows and expected is None:
                    self._check_newest(run_id, head, segment, wanted, segment.low, segment.start)
                for number, (first, topic, stored) in enumerate(rows):
                    older = rows[number + 1] if number + 1 < len(rows) else None
                    if older is None and len(rows) > _PAGE_BACK:
                        break  # its link to the row before it is on the next page
                    previous = segment.start if older is None else older[2][:LINK_BYTES]
                    commit = open_row(run_id, RawCommit(first, topic, stored), previous)
                    if expected is not None and commit.last != expected:
                        raise CorruptJournal(
                            run_id,
                            commit.last + 1,
                            f"a commit that ends at {expected}",
                            f"one that ends at {commit.last}",
                        )
                    if segment.high is not None:
                        commit = truncated(commit, segment.high, previous)
                    if expected is None:
                        self._check_newest(run_id, head, segment, wanted, commit.last, commit.link)
                    expected = first - 1
                    yield commit
                if len(rows) <= _PAGE_BACK:
                    if expected is not None and expected != segment.low:
                        found = f"the first one at {expected + 1}"
                        raise CorruptJournal(run_id, segment.low + 1, f"a commit at {segment.low + 1}", found)
                    break
                ceiling = rows[_PAGE_BACK - 1][0] - 1

    def _check_newest(
        self, run_id: str, head: Head | None, segment: Segment, wanted: int | None, last: int, link: bytes
    ) -> None:
        """Check that the newest commit of a stretch, read backwards, goes as far as the stretch does, or as was
        wanted."""
        if segment.high is not None and wanted == segment.high:
            check_joint(run_id, segment, last, link)
        elif segment.high is None and (wanted is None or head is None or wanted >= head.position):
            self._check_last(run_id, head, last, link)
        elif wanted is not None and last < wanted:
            raise CorruptJournal(run_id, last + 1, f"commits up to position {wanted}", f"the last one at {last}")

    def _check_last(self, run_id: str, head: Head | None, last: int, link: bytes) -> None:
        """Check the last commit that was read against the head, which was read before the commits were."""
        if head is None or head.position < last:
            head = self.head(run_id)  # a commit and its head come together: one that is still behind was not left by us
            if head is not None and head.position > last:
                return  # and more have come since; whoever reads them checks them
        check_end(run_id, head, last, link)

    def containing(self, run_id: str, positions: Sequence[int]) -> Iterator[Commit]:
        """Yield, each once and checked by its own link, the commits that hold the given ascending positions; of one at
        the joint of a fork only the shared part."""
        head = self._head_to_read(run_id)
        try:
            yield from self._containing(run_id, positions)
        except CorruptJournal:
            self.check_there(run_id, head)
            raise

    def _containing(self, run_id: str, positions: Sequence[int]) -> Iterator[Commit]:
        segments = self.lineage(run_id)
        done = 0
        for position in positions:
            if position <= done:
                continue
            segment = segment_of(segments, position)
            commit, previous = self._holding(run_id, segment, position)
            if segment.high is not None:
                commit = truncated(commit, segment.high, previous)
            done = commit.last
            yield commit

    def _holding(self, run_id: str, segment: Segment, position: int) -> tuple[Commit, bytes]:
        """Return the checked commit of a segment that holds ``position``, and the link before it."""
        rows = self._rows(segment.run_id, position, lte=position, desc=True, limit=2)
        if not rows:
            raise CorruptJournal(run_id, position, "a commit", "none")
        first, topic, stored = rows[0]
        previous = link_before(rows, segment)
        try:
            commit = open_row(run_id, RawCommit(first, topic, stored), previous)
        except CorruptJournal as error:
            raise self._in_front(run_id, segment, first) or error from None
        if commit.last < position:
            raise CorruptJournal(run_id, position, "a commit that holds it", f"one that ends at {commit.last}")
        return commit, previous

    def _in_front(self, run_id: str, segment: Segment, first: int) -> CorruptJournal | None:
        """Return what is damaged right in front of a commit that does not fit what is there; None when nothing is: a
        link is as good as the row that it was read from."""
        found: CorruptJournal | None = None
        while True:
            rows = self._rows(segment.run_id, first - 1, lte=first - 1, desc=True, limit=2) if first > 1 else []
            if not rows:
                last = segment.low
            else:
                try:
                    last = open_row(run_id, RawCommit(*rows[0]), link_before(rows, segment)).last
                except CorruptJournal as error:
                    found, first = error, rows[0][0]
                    continue
                except SchemaError:  # its reader will say so
                    return found
            if last != first - 1:
                found = CorruptJournal(run_id, last + 1, f"a commit at {last + 1}", f"the next one at {first}")
            return found

    def link_at(self, run_id: str, position: int) -> bytes | None:
        """Return the stored link of the commit of this stream that ends at ``position``, or None when none does.

        Not checked against the commit's bytes: whoever compares it with a link of his own has then checked both.
        """
        head = self.head(run_id)
        if head is None:
            return None
        if head.origin is not None and position == head.origin.position:
            return fork_genesis(run_id, head.origin)
        rows = self._rows(run_id, position, lte=position, desc=True, limit=1)
        following = self._rows(run_id, position, gt=position, limit=1)
        if not rows:
            return None
        ends_here = following[0][0] == position + 1 if following else head.position == position
        return rows[0][2][:LINK_BYTES] if ends_here else None

    def damage_at_end(self, head: Head) -> CorruptJournal | None:
        """Return what contradicts a head record in the last commit of its run, or None; in constant time.

        All that a listing shows comes from head records, so this is what it is worth. The rest of the run is for
        verification.
        """
        try:
            self._check_head(head)
        except CorruptJournal as error:
            again = self.head(head.run_id)
            if again is None:  # deleted meanwhile; unless it is listed still, with a name that nobody can ask for
                deleted = head.link != b"" and all(other.run_id != head.run_id for other in self.heads())
                return None if deleted else error
            return None if again.hidden or again.position > head.position else error  # a writer goes on meanwhile
        except SchemaError:  # a newer refold wrote it: nothing is known against it
            return None
        return None

    def _check_head(self, head: Head) -> None:
        run_id, origin, position = head.run_id, head.origin, head.position
        start = genesis(run_id) if origin is None else fork_genesis(run_id, origin)
        low = 0 if origin is None else origin.position
        link = start
        if position > low or origin is None:
            commit, _ = self._holding(run_id, Segment(run_id, low, None, start, None), position)
            link = commit.link if commit.last == position else b""
        if link != head.link:
            raise CorruptJournal(run_id, position, "the link of its last commit in the head record", "another")

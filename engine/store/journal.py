"""The journal: appends commits and reads them back with the chain checked. It must never return a byte whose link does
not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventsourcing.persistence import IntegrityError

from engine.core.envelope import COMMIT_TOPIC, LINK_BYTES, Commit, genesis, open_commit
from engine.core.errors import Conflict, CorruptJournal, InvalidValue, NotAStore, NotFound, SchemaError
from engine.core.fields import check_id
from engine.store.backend import Backend, Head, Origin
from engine.store.errors import DATABASE_ERRORS, translated, translation_of
from engine.store.lineage import Segment, fork_genesis, lineage, truncated

__all__ = ["Journal", "RawCommit"]

_PAGE_ROWS: Final = 128
_PAGE_BACK: Final = 32
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

    # -- reading ------------------------------------------------------------------------------------------------------

    def head(self, run_id: str) -> Head | None:
        """Return the end of a run, or None when it has no events."""
        with translated(self._where):
            return self._commits.head(run_id)

    def heads(self) -> Sequence[Head]:
        """Return the ends of all runs, in order of run id. A run whose head record is lost is among them, at 0."""
        with translated(self._where):
            return [head for head in self._commits.heads() if not head.hidden]

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
                _check_joint(run_id, segment, last, previous)
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
            _check_joint(run_id, segment, last, link)
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
        _check_end(run_id, head, last, link)

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
            segment = _segment_of(segments, position)
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
        previous = _link_before(rows, segment)
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
                    last = open_row(run_id, RawCommit(*rows[0]), _link_before(rows, segment)).last
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
        segment = _segment_of(self.lineage(run_id), position)
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


def _link_before(rows: Sequence[tuple[int, str, bytes]], segment: Segment) -> bytes:
    """Return the link before the first of two rows, the other of which stands in front of it if it is there."""
    if len(rows) < 2:
        return segment.start
    stored = rows[1][2]
    return stored[:LINK_BYTES] if type(stored) is bytes else b""


def _segment_of(segments: Sequence[Segment], position: int) -> Segment:
    return next(segment for segment in segments if segment.high is None or position <= segment.high)


def _check_joint(run_id: str, segment: Segment, last: int, link: bytes) -> None:
    """Check that the shared history reaches the fork, and is the one that the fork left."""
    assert segment.high is not None and segment.joint is not None
    if last < segment.high:
        expected = f"commits of origin {segment.run_id!r} up to position {segment.high}"
        raise CorruptJournal(run_id, last + 1, expected, f"the last one at {last}")
    if link != segment.joint:
        expected = f"link {segment.joint.hex()[:16]}… where it left {segment.run_id!r}"
        raise CorruptJournal(run_id, segment.high, expected, f"link {link.hex()[:16]}…")


def _check_end(run_id: str, head: Head | None, last: int, link: bytes) -> None:
    """Check the last commit against the head record."""
    if head is not None and last < head.position:
        expected = f"commits up to position {head.position}"
        raise CorruptJournal(run_id, last + 1, expected, f"the last one at {last}")
    if last and (head is None or last > head.position or link != head.link):
        found = "none" if head is None else f"one at {head.position} with link {head.link.hex()[:16]}…"
        raise CorruptJournal(run_id, last, f"a head record at {last} with link {link.hex()[:16]}…", found)


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

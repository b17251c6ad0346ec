"""A stored row, and what makes it a commit of a run: its link to the row before it, and its place between the ends of
the stretch it lies in. It must never pass a byte whose link does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.envelope import COMMIT_TOPIC, LINK_BYTES, Commit, open_commit
from engine.core.errors import CorruptJournal, SchemaError
from engine.store.backend import Head
from engine.store.lineage import Segment

__all__ = ["RawCommit", "check_end", "check_joint", "link_before", "open_row", "segment_of"]


@dataclass(frozen=True, slots=True)
class RawCommit:
    """A stored row as it is, unchecked: only verification and repair look at these."""

    first: int
    topic: str
    stored: bytes


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


def link_before(rows: Sequence[tuple[int, str, bytes]], segment: Segment) -> bytes:
    """Return the link before the first of two rows, the other of which stands in front of it if it is there."""
    if len(rows) < 2:
        return segment.start
    stored = rows[1][2]
    return stored[:LINK_BYTES] if type(stored) is bytes else b""


def segment_of(segments: Sequence[Segment], position: int) -> Segment:
    return next(segment for segment in segments if segment.high is None or position <= segment.high)


def check_joint(run_id: str, segment: Segment, last: int, link: bytes) -> None:
    """Check that the shared history reaches the fork, and is the one that the fork left."""
    assert segment.high is not None and segment.joint is not None
    if last < segment.high:
        expected = f"commits of origin {segment.run_id!r} up to position {segment.high}"
        raise CorruptJournal(run_id, last + 1, expected, f"the last one at {last}")
    if link != segment.joint:
        expected = f"link {segment.joint.hex()[:16]}… where it left {segment.run_id!r}"
        raise CorruptJournal(run_id, segment.high, expected, f"link {link.hex()[:16]}…")


def check_end(run_id: str, head: Head | None, last: int, link: bytes) -> None:
    """Check the last commit against the head record."""
    if head is not None and last < head.position:
        expected = f"commits up to position {head.position}"
        raise CorruptJournal(run_id, last + 1, expected, f"the last one at {last}")
    if last and (head is None or last > head.position or link != head.link):
        found = "none" if head is None else f"one at {head.position} with link {head.link.hex()[:16]}…"
        raise CorruptJournal(run_id, last, f"a head record at {last} with link {link.hex()[:16]}…", found)

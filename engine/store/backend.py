"""The port between refold and a database: recorders for commits and checkpoints, and the heads. A new database is a
new file beside this one.

Needed for correctness: ``insert_events`` is atomic, durable when it returns, and refuses a taken (run, version) with
IntegrityError;
``select_events`` returns what was inserted, in order of version. Everything else (heads, deletes of checkpoints) is
bookkeeping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from eventsourcing.persistence import AggregateRecorder, ApplicationRecorder

__all__ = ["Backend", "CheckpointRecorder", "CommitRecorder", "Head", "Origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork left another run: its id, the position, and the link there."""

    run_id: str
    position: int
    link: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a run as of its last commit: position and link. Written in the commit's own transaction.

    ``hidden`` marks a deleted run whose events a fork still needs.
    """

    run_id: str
    position: int
    link: bytes
    origin: Origin | None = None
    hidden: bool = False


class CommitRecorder(Protocol):
    """An ``ApplicationRecorder`` of text ids that also keeps the heads, in the same transaction as the commit."""

    def record(self, run_id: str, first: int, topic: str, state: bytes, head: Head, after: bytes | None) -> None:
        """Insert one commit and move the head. Raises eventsourcing's IntegrityError when ``first`` is taken, or the
        head does not hold the link ``after``: None for a run that has no head yet."""
        ...

    def rows(
        self,
        run_id: str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[tuple[int, str, bytes]]:
        """Return (first seq, topic, state) of commits with ``gt < first <= lte``, in order of first seq."""
        ...

    def create(self, head: Head, holding: tuple[int, bytes] | None) -> None:
        """Insert the head of a fork, which has no commits of its own yet.

        ``holding`` is (first seq, link) of the origin's row that holds the fork's position, None at 0. Raises
        IntegrityError when the run exists, or the origin has no head or not this row, in one transaction: it may be
        deleted at the same moment.
        """
        ...

    def erase(self, run_id: str, *, needed: int | None) -> None:
        """Delete the commits and checkpoints after ``needed`` and hide the head, or with None delete all commits and
        checkpoints and the head; one transaction. Raises IntegrityError when there is no head, or some fork needs
        more."""
        ...

    def head(self, run_id: str) -> Head | None: ...

    def heads(self) -> Sequence[Head]: ...


class CheckpointRecorder(Protocol):
    """An ``AggregateRecorder`` of text ids that can also list positions and delete."""

    def put(self, run_id: str, position: int, topic: str, state: bytes, replacing: Sequence[int]) -> None:
        """Insert a checkpoint and delete those at the positions ``replacing``, in one transaction. Raises
        eventsourcing's IntegrityError when the run has no head, or a hidden one: it may be deleted at the same
        moment."""
        ...

    def read(self, run_id: str, position: int) -> tuple[str, bytes] | None: ...

    def positions(self, run_id: str, *, lte: int | None = None) -> Sequence[int]:
        """Return positions in descending order."""
        ...

    def delete(self, run_id: str, *, gte: int = 0, lte: int | None = None) -> int:
        """Delete checkpoints at positions from ``gte`` to ``lte`` (None: the last); return how many there were."""
        ...


class Backend(Protocol):
    """An open database."""

    @property
    def url(self) -> str: ...

    @property
    def commits(self) -> CommitRecorder: ...

    @property
    def checkpoints(self) -> CheckpointRecorder: ...

    def close(self) -> None: ...


# The classes of eventsourcing that a backend builds on; named here so that the other files need not import them.
RECORDERS = (ApplicationRecorder, AggregateRecorder)

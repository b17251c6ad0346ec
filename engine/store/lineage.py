"""Lineage: which stretch of which stream a run's positions lie in. A fork owns the events after its origin and shares
those before.

It must never copy an event: a fork is a head record with an origin, bound into its chain by :func:`fork_genesis`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from engine.core.codec import encode
from engine.core.envelope import EVENTS, Commit, Group, genesis
from engine.core.errors import CorruptJournal
from engine.store.backend import Head, Origin

__all__ = ["Segment", "cut", "fork_genesis", "lineage", "truncated"]


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions ``low < p <= high`` of a run, kept in the stream of ``run_id``; ``start`` is the chain's link before
    its first event.

    ``high`` is None for the run's own, open end. ``joint`` is what the next segment's origin says the link at ``high``
    is.
    """

    run_id: str
    low: int
    high: int | None
    start: bytes
    joint: bytes | None


def fork_genesis(run_id: str, origin: Origin) -> bytes:
    """Return the link before a fork's first own event; it binds the fork's id to origin, position and the link
    there."""
    return sha256(b"refold fork/1\0" + encode([run_id, origin.run_id, origin.position, origin.link])).digest()


def lineage(run_id: str, head_of: Callable[[str], Head | None]) -> list[Segment]:
    """Return the segments of a run, oldest first. Raises CorruptJournal when an origin is missing or the lineage is
    endless."""
    segments: list[Segment] = []
    seen: set[str] = set()
    name, high, joint = run_id, None, None
    while name not in seen:
        seen.add(name)
        head = head_of(name)
        if head is None and segments:
            raise CorruptJournal(run_id, high or 0, f"the origin run {name!r}", "no such run")
        origin = None if head is None else head.origin
        low = 0 if origin is None else origin.position
        start = genesis(name) if origin is None else fork_genesis(name, origin)
        segments.append(Segment(name, low, high, start, joint))
        if origin is None:
            return segments[::-1]
        name, high, joint = origin.run_id, origin.position, origin.link
    raise CorruptJournal(run_id, 0, "a lineage that begins somewhere", f"a circle through {name!r}")


def cut(commit: Commit, until: int | None) -> list[Group]:
    """Return the groups of a commit up to and including position ``until``; the commit itself is left alone."""
    if until is None or commit.last <= until:
        return list(commit.groups)
    keep = until - commit.first + 1
    groups: list[Group] = []
    for group in commit.groups:
        if keep <= 0:
            break
        groups.append([*group[:EVENTS], group[EVENTS][:keep]])
        keep -= len(group[EVENTS])
    return groups


def truncated(commit: Commit, until: int, previous: bytes) -> Commit:
    """Return the commit as if it had ended at ``until``, with the link it would then have had: a prefix of a run is a
    run."""
    if commit.last <= until:
        return commit
    groups = cut(commit, until)
    return Commit(commit.first, until - commit.first + 1, sha256(previous + encode(groups)).digest(), groups)

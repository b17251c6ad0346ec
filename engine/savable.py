"""What of a damaged store can be saved: every run as far as its chain holds, and what lies behind. It must never count
an event whose link does not follow as part of a run.

A run is followed from its beginning, row by row, each found by the link that it must have. The links cover neither the
run nor the position that a row states, so a row is found also where these are what is damaged. A fork begins where its
head record says; or should that be damaged, where its own first row says it does. When the history that it left is
damaged before that point, the fork is cut there: up to that position the two are one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.core.envelope import genesis
from engine.core.errors import BackendUnavailable
from engine.store import Head, Origin
from engine.store.lineage import fork_genesis, truncated
from engine.store.remains import Place, Proved, Remains

__all__ = ["Plan", "Savable", "Saved"]

_STEP_COMMITS = 1024

_LOST_HEAD = "its head record is lost; it may have been deleted"
_HIDDEN = "deleted; kept for its forks"


@dataclass(frozen=True, slots=True)
class Savable:
    """What can be saved of a run: its events up to ``position`` as a run, ``behind`` events after the damage, and how
    many more of those without proof (``unproved``). ``expected`` is the position that its head record states; for a
    deleted run the one that its forks need; None when nothing that is left says so."""

    run: str
    position: int
    expected: int | None
    behind: int
    unproved: int
    note: str = ""

    @property
    def whole(self) -> bool:
        """Whether nothing of the run is lost, as far as anything left of the store knows."""
        return self.expected is not None and self.position >= self.expected and not (self.behind or self.unproved)

    def to_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            "run": self.run,
            "whole": self.whole,
            "position": self.position,
            "expected": self.expected,
            "behind": self.behind,
            "unproved": self.unproved,
            "note": self.note,
        }


@dataclass(slots=True)
class Saved:
    """A run as far as its chain holds: where it begins, the link of the last row of its own and the last position, and
    its own commits: their first positions, and where they lie."""

    run: str
    origin: Origin | None
    hidden: bool
    expected: int | None
    link: bytes
    last: int
    firsts: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    note: str = ""


class Plan:
    """Goes through the runs of a store, those that others were forked from before those. Runs once.

    ``progress`` is called with (commits, of so many) on the way.
    """

    def __init__(self, remains: Remains, *, progress: Callable[[int, int], None] | None = None) -> None:
        self.remains = remains
        self._progress = progress
        self._count = 0
        self._of = sum(map(remains.count, remains.runs()))
        self._saved: dict[str, Saved] = {}
        self.strays: set[Place] = set()
        """Rows that were found where they do not belong: they are some run's, and no other's."""
        self._needed: dict[str, int] = defaultdict(int)
        """How far the forks of a run need it."""
        for run in remains.runs():
            for head in remains.heads(run):
                if head.origin is not None:
                    needed = max(self._needed[head.origin.run_id], head.origin.position)
                    self._needed[head.origin.run_id] = needed

    def runs(self) -> Iterator[Saved]:
        """Yield every run of which anything is left."""
        for run in self._order():
            if self.remains.heads(run) or not self._all_astray(run):
                made = self._saved[run] = self._chained(run)
                yield made

    def _order(self) -> Iterator[str]:
        """Yield every run after those that it was forked from; one whose head record is lost, whose rows may be strays
        of others, when no other is left of which that is known. Of these the one that begins first goes first: what it
        was forked from began before it."""
        remains = self.remains
        waits_for = {
            run: {head.origin.run_id for head in remains.heads(run) if head.origin is not None}
            for run in remains.runs()
            if remains.heads(run)
        }
        forks: dict[str, list[str]] = defaultdict(list)
        for run, origins in waits_for.items():
            for origin in origins:
                forks[origin].append(run)
        lost = deque(sorted((run for run in remains.runs() if run not in waits_for), key=self._begins))
        ready = deque(run for run, origins in waits_for.items() if not origins)
        while ready or lost or waits_for:
            if not ready:
                some = [run for run, origins in waits_for.items() if origins.isdisjoint(waits_for)] or list(waits_for)
                ready.append(lost.popleft() if lost else min(some, key=self._begins))
            run = ready.popleft()
            waits_for.pop(run, None)
            yield run
            for fork in forks[run]:
                if fork in waits_for:
                    waits_for[fork].discard(run)
                    if not waits_for[fork]:
                        ready.append(fork)

    def _begins(self, run: str) -> int:
        return next(self.remains.rows(run), (0, []))[0]

    def _all_astray(self, run: str) -> bool:
        """Return whether all rows under a name belong to other runs."""
        return self.strays.issuperset(place for _, places in self.remains.rows(run) for place in places)

    # -- one run ------------------------------------------------------------------------------------------------------

    def _chained(self, run: str) -> Saved:
        """Return a run as far as its chain holds from its beginning, by the best of its head records."""
        heads = self.remains.heads(run)
        head = heads[0] if heads else None
        best: Saved | None = None
        for origin in dict.fromkeys(head.origin for head in heads) or (None,):
            made = self._follow(run, origin, head) if origin is None or self._reaches(origin) else None
            if made is not None and (best is None or len(made.places) > len(best.places)):
                best = made
        if best is None or not best.places:
            best = self._guessed(run, head) or best
        if best is None:
            assert head is not None
            best = self._cut(run, head)
        if self.remains.may_be_deleted(run):
            best.note = _LOST_HEAD
        elif best.hidden:
            best.note = _HIDDEN
        return best

    def _follow(self, run: str, origin: Origin | None, head: Head | None) -> Saved:
        """Follow a chain from where it begins."""
        remains = self.remains
        made = Saved(
            run, origin, head is not None and head.hidden, self._expected(head), _start(run, origin), _low(origin)
        )
        while True:
            found = remains.proved(run, made.last + 1, made.link)
            if found is None and self._goes_on(made):
                found = remains.stray(run, made.last + 1, made.link)
                if found is not None:
                    self.strays.add(found.place)
            if found is None:
                return made
            made.firsts.append(found.commit.first)
            made.places.append(found.place)
            made.last, made.link = found.commit.last, found.commit.link
            self._count += 1
            if self._progress is not None and self._count % _STEP_COMMITS == 0:
                self._progress(self._count, max(self._count, self._of))

    def _goes_on(self, made: Saved) -> bool:
        """Return whether a run is known to have had more than its own rows give: then the next may be astray."""
        if made.expected is not None:
            return made.last < made.expected
        return next(self.remains.rows(made.run, after=made.last), None) is not None

    def _expected(self, head: Head | None) -> int | None:
        """Return how far a run should reach: to its head, or when it is deleted as far as its forks need it."""
        if head is None:
            return None
        return self._needed.get(head.run_id, 0) if head.hidden else head.position

    def _guessed(self, run: str, head: Head | None) -> Saved | None:
        """Return a fork from the point where it was made, whatever its head record says of that: its first row tells
        which it was, or for a fork without rows the link of the head."""
        first, _ = next(self.remains.rows(run), (0, []))
        at = first - 1 if first else 0 if head is None else head.position
        for other in list(self._saved.values()) if at > 0 else ():
            link = self._link_at(other, at)
            if link is None:
                continue
            origin = Origin(other.run, at, link)
            made = self._follow(run, origin, head)
            if made.places or (head is not None and head.link == made.link):
                return made
        return None

    def _cut(self, run: str, head: Head) -> Saved:
        """Return a fork whose origin is damaged before the fork: as one that was made there; nothing of it when the
        origin is lost."""
        origin = head.origin
        assert origin is not None
        made = Saved(run, None, head.hidden, self._expected(head), fork_genesis(run, origin), 0)
        other = self._saved.get(origin.run_id)
        if other is not None and 0 < other.last < origin.position:
            link = self._link_at(other, other.last)
            assert link is not None
            made.origin, made.last = Origin(other.run, other.last, link), other.last
            made.note = f"cut: its origin {other.run!r} is damaged before the fork at {origin.position}"
        return made

    def _reaches(self, origin: Origin) -> bool:
        """Return whether the history that a fork left is saved up to the fork, and is the one it left."""
        other = self._saved.get(origin.run_id)
        return other is not None and self._link_at(other, origin.position) == origin.link

    def _link_at(self, other: Saved, position: int) -> bytes | None:
        """Return the link of a saved run at one of its own positions, as a fork there states it; None elsewhere."""
        if position == _low(other.origin):
            return _start(other.run, other.origin)
        if not _low(other.origin) < position <= other.last:
            return None
        index = bisect_right(other.firsts, position) - 1
        previous = self.remains.link(other.places[index - 1]) if index else _start(other.run, other.origin)
        found = self._open(other, other.places[index], other.firsts[index], previous)
        return truncated(found.commit, position, previous).link

    def commits(self, made: Saved) -> Iterator[Proved]:
        """Yield the commits of a saved run again, checked again. Raises BackendUnavailable when one is not there any
        more."""
        previous = _start(made.run, made.origin)
        for first, place in zip(made.firsts, made.places, strict=True):
            found = self._open(made, place, first, previous)
            yield found
            previous = found.commit.link

    def _open(self, made: Saved, place: Place, first: int, previous: bytes) -> Proved:
        found = self.remains.open(place, first, previous)
        if found is None:
            raise BackendUnavailable(f"the store changed while it was read, at run {made.run!r}", hint="try again")
        return found


def _low(origin: Origin | None) -> int:
    return 0 if origin is None else origin.position


def _start(run: str, origin: Origin | None) -> bytes:
    """Return the link before the first event of a run's own."""
    return genesis(run) if origin is None else fork_genesis(run, origin)

"""Moments: from a time of the clock to a position of a run. Order never depends on the clock, so a time only looks up
a position. It must never read a whole run for that.

Clocks mostly go on, so the place is found by halving. Where one was put back the recorded times cross a moment more
than once; whatever lies within :data:`WINDOW_EVENTS` after the place is therefore looked at, and the last crossing
there is the answer.
"""

from __future__ import annotations

from typing import Final

from engine.core.envelope import AT_MS, EVENTS, Commit
from engine.core.fields import TIME_MS
from engine.store import Journal, Segment, cut

__all__ = ["WINDOW_EVENTS", "position_at"]

WINDOW_EVENTS: Final = 10_000
"""Events by which a clock may have been put back without an earlier crossing being taken for the last one."""


def position_at(journal: Journal, run_id: str, at_ms: int) -> int:
    """Return the position of the last event recorded at or before ``at_ms`` (Unix milliseconds), 0 when there is none.

    Where the clock was put back, events count by their place in the run: no event within :data:`WINDOW_EVENTS` after
    the answer is as early. Folds nothing; reads that window, and as many commits as the run's length can be halved.
    Raises NotFound, InvalidValue, CorruptJournal.
    """
    moment: int = TIME_MS.check(at_ms)
    end = journal.existing_head(run_id).position
    segments = journal.lineage(run_id)
    low, high = 0, end + 1  # the one is early enough, the other is too late
    while low + 1 < high:
        commit, stretch = _holding(journal, run_id, segments, (low + high) // 2)
        last = _last_until(commit, stretch, moment)
        if last is None:
            high = commit.first
        else:
            low = last
            if last < min(commit.last, stretch.high or commit.last):
                break
    return _last_in_window(journal, run_id, segments, moment, low)


def _holding(journal: Journal, run_id: str, segments: list[Segment], position: int) -> tuple[Commit, Segment]:
    """Return the commit that holds a position, and the stretch of the run that both lie in."""
    [commit] = journal.containing(run_id, [position])
    return commit, _stretch(segments, position)


def _stretch(segments: list[Segment], position: int) -> Segment:
    return next(segment for segment in segments if segment.high is None or position <= segment.high)


def _last_until(commit: Commit, stretch: Segment, moment: int) -> int | None:
    """Return the last position of a commit, as far as it lies in the stretch, that was recorded in time."""
    found, seq = None, commit.first - 1
    for group in cut(commit, stretch.high):
        seq += len(group[EVENTS])
        if group[AT_MS] <= moment:
            found = seq
    return found


def _last_in_window(journal: Journal, run_id: str, segments: list[Segment], moment: int, found: int) -> int:
    """Return the last position in time, from ``found`` on, of those that lie in each other's windows."""
    before, link = 0, None
    if found:
        commit, stretch = _holding(journal, run_id, segments, found)
        before = commit.first - 1
        link = stretch.start if before == stretch.low else journal.link_at(stretch.run_id, before)
    for commit in journal.commits(run_id, after=before, link=link):
        if commit.first > found + WINDOW_EVENTS:
            break
        found = max(found, _last_until(commit, _stretch(segments, commit.first), moment) or 0)
    return found

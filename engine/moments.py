"""Moments: from a time of the clock to a position of a run. Order never depends on the clock, so a time only looks up
a position."""

from __future__ import annotations

from engine.core.envelope import AT_MS, EVENTS
from engine.core.fields import TIME_MS
from engine.store import Journal

__all__ = ["position_at"]


def position_at(journal: Journal, run_id: str, at_ms: int) -> int:
    """Return the position of the last event recorded at or before ``at_ms`` (Unix milliseconds), 0 when there is none.

    Where the clock went back, events count by their place in the run: the answer is the last position whose recorded
    time is not
    later. Reads the run once, without folding it. Raises NotFound, InvalidValue, CorruptJournal.
    """
    moment: int = TIME_MS.check(at_ms)
    journal.existing_head(run_id)
    found = 0
    for commit in journal.commits(run_id):
        seq = commit.first - 1
        for group in commit.groups:
            seq += len(group[EVENTS])
            if group[AT_MS] <= moment:
                found = seq
    return found

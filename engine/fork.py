"""Fork and delete: a new run from a point of another's history, and what becomes of a history that forks still need.

A fork must never copy events; it shares them, and names where it left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.errors import BackendUnavailable, InvalidValue
from engine.core.fields import check_id
from engine.store import Head, Journal
from engine.store.journal import needed_by

__all__ = ["Deleted", "Forked", "delete_run", "fork_run"]


@dataclass(frozen=True, slots=True)
class Forked:
    """A fork that was made: its id, the run that holds the events before it, and the position where it left."""

    run: str
    origin: str
    position: int

    def to_json(self) -> dict[str, Any]:
        """Return the fork for ``--json``."""
        return {"run": self.run, "origin": self.origin, "position": self.position}


@dataclass(frozen=True, slots=True)
class Deleted:
    """A run that was deleted; events up to ``kept_until`` stay, out of sight, for the forks named in ``needed_by``.
    ``released`` names runs deleted before that were kept for forks, and are now gone as well."""

    run: str
    kept_until: int
    needed_by: tuple[str, ...]
    released: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the deletion for ``--json``."""
        return {
            "run": self.run,
            "kept_until": self.kept_until,
            "needed_by": list(self.needed_by),
            "released": list(self.released),
        }


def fork_run(journal: Journal, run_id: str, new_id: str, at: int) -> Forked:
    """Make ``new_id`` a run that shares the history of ``run_id`` up to position ``at``; constant in time and bytes.

    Raises NotFound (no such run or position), Conflict (the new run exists), InvalidValue, CorruptJournal.
    """
    try:
        check_id(new_id)
    except InvalidValue as error:
        rule = "an id is text of 1 to 256 bytes, not blank, without control characters"
        raise InvalidValue("run id", error.problem, hint=rule) from None
    head = journal.fork(run_id, new_id, at)
    assert head.origin is not None
    return Forked(new_id, head.origin.run_id, at)


def delete_run(journal: Journal, run_id: str) -> Deleted:
    """Delete a run and its checkpoints; keep out of sight what its forks need. Raises NotFound.

    A run kept for its forks keeps its name: a new run of that name would be refused. With the last of its forks it
    goes too. Each run is one transaction; what a crash in between leaves, the next delete takes away.
    """
    tried: list[Head] | None = None
    while True:  # a fork may be made meanwhile
        journal.existing_head(run_id)
        forks = journal.forks_of(run_id)
        if forks == tried:
            raise BackendUnavailable(f"run {run_id!r} cannot be deleted now", hint="try again", run=run_id)
        tried, needed = forks, needed_by(forks)
        if journal.shed(run_id, needed):
            names = tuple(head.run_id for head in forks)
            return Deleted(run_id, needed or 0, names, _release(journal))


def _release(journal: Journal) -> tuple[str, ...]:
    """Take away what deleted runs hold that no fork needs any more; return those of which nothing is left."""
    released: list[str] = []
    while surplus := journal.surplus():  # a run that goes may be the last fork of another
        gone = [(run_id, needed) for run_id, needed in surplus if journal.shed(run_id, needed)]
        if not gone:  # a fork was made meanwhile that needs them; the next delete looks again
            break
        released += [run_id for run_id, needed in gone if needed is None]
    return tuple(released)

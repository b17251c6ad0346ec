"""Bringing the read model up to date: each run from where its rows are to where the journal is. It must never write a
row apart from the position that the row is true for.

One transaction takes a chunk of commits: it asks whether the run is still where this process left it, folds, writes the
rows that the events touched, and moves position and link. So every event counts exactly once, whoever else is at work
and wherever a crash strikes. What a run costs follows what is new: its state is restored at the known position from the
nearest checkpoint and folded on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlite_utils import Database

from engine.core.errors import CorruptJournal, EngineError, NotFound, SchemaError
from engine.core.model import Model
from engine.readmodel.chunk import Chunk
from engine.readmodel.events import RUNS
from engine.readmodel.place import Place
from engine.readmodel.rows import Rows, delete_rows
from engine.readmodel.schema import TABLES
from engine.restore import Restored, restore
from engine.store import Checkpoints, Head, Journal

__all__ = ["CHUNK_EVENTS", "At", "Fault", "Progress", "Updated", "Updater"]

Progress: TypeAlias = Callable[[int, int], None]
"""Called after every chunk of a run with (its position, its end)."""

CHUNK_EVENTS: Final = 5_000
"""Events after which a transaction is ended, at the next end of a commit."""
_WARM_RUNS: Final = 4


@dataclass(frozen=True, slots=True)
class Fault:
    """A run that could not be followed to its end: where its rows are, and why they are not further."""

    run: str
    position: int
    error: EngineError


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did: events taken in, runs moved, runs started over because their past is another one, runs
    removed because they are gone, and runs that cannot be read to their end."""

    events: int = 0
    moved: tuple[str, ...] = ()
    started_over: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class At:
    """Where a run's rows are."""

    position: int
    link: str
    fault: str | None


def _at(position: object, link: object, fault: object) -> At:
    """Return where the rows of a run are, by its row. Values of other types are not ours: no past fits what they
    become here, so the run's rows are made anew."""
    if type(position) is int and type(link) is str and (fault is None or type(fault) is str):
        return At(position, link, fault)
    return At(0, "changed by others", None)


def _end_of(head: Head) -> At:
    """Return where the rows of a run are when they are at its end."""
    return At(head.position, head.link.hex(), None)


class _Moved(Exception):
    """The run is to be looked at anew: another process has moved it, or a chunk is to be tried commit by commit."""


class Updater:
    """Moves the runs of a store forward in a read model."""

    def __init__(
        self,
        journal: Journal,
        checkpoints: Checkpoints,
        model: Model,
        place: Place,
        *,
        chunk_events: int = CHUNK_EVENTS,
    ) -> None:
        self.journal, self.checkpoints, self.model, self.place = journal, checkpoints, model, place
        self.chunk_events = chunk_events
        self.warm: OrderedDict[str, tuple[At, Restored]] = OrderedDict()
        """The states of the runs that moved last, with where their rows were then: whoever follows live runs need not
        restore them every time. Only used when the rows are still there."""

    def update(self, progress: Progress | None = None) -> Updated:
        """Bring every run to the journal's end; return what was done. A damaged run stops where the damage is, keeps
        no other from moving on, and is named in ``faults`` and in its row. Raises BackendUnavailable, NotAStore."""
        # Rows first, then heads: a run that begins, or moves on, between the two is neither gone nor behind its rows.
        with self.place.translated():
            rows = self.place.database.execute("SELECT run, position, link, fault FROM runs ORDER BY run").fetchall()
        known = {run: _at(*rest) for run, *rest in rows}
        heads = {head.run_id: head for head in self.journal.heads()}
        removed = tuple(run for run in known if run not in heads)
        for run in removed:
            self.forget(run)
        behind = (head for head in heads.values() if known.get(head.run_id) != _end_of(head))
        steps = [_Run(self, head, progress) for head in behind]
        moved = tuple(step.run_id for step in steps if step.bring_forward())
        return Updated(
            sum(step.events for step in steps),
            moved,
            tuple(step.run_id for step in steps if step.started_over),
            removed,
            tuple(step.fault for step in steps if step.fault is not None),
        )

    def forget(self, run: str) -> None:
        """Remove every row of a run."""
        with self.place.writing() as database:
            for table in reversed(TABLES):
                delete_rows(database, table, run)

    def keep_warm(self, run: str, at: At, restored: Restored) -> None:
        """Keep the state that the rows of a run were made of."""
        self.warm[run] = (at, restored)
        while len(self.warm) > _WARM_RUNS:
            self.warm.popitem(last=False)

    def at(self, run: str) -> At | None:
        """Return where the rows of a run are, or None when there are none."""
        with self.place.translated():
            found = self.place.database.execute(
                "SELECT position, link, fault FROM runs WHERE run = ?", [run]
            ).fetchone()
        return None if found is None else _at(*found)


class _Run:
    """One run on its way forward."""

    def __init__(self, updater: Updater, head: Head, progress: Progress | None) -> None:
        self._updater = updater
        self._head = head
        self.run_id = head.run_id
        self._progress = progress
        self._chunk_events = updater.chunk_events
        self.events = 0
        self.started_over = False
        self.fault: Fault | None = None

    def bring_forward(self) -> bool:
        """Move the run to its end; return whether its row had to change."""
        while True:
            at = self._updater.at(self.run_id)
            if at is not None and at.position > self._head.position:  # another process saw the run when it was longer
                self._head = self._updater.journal.head(self.run_id) or self._head
            if at == _end_of(self._head):
                return False
            try:
                self._forward(at)
            except _Moved:
                continue
            except (CorruptJournal, SchemaError, NotFound) as error:
                if not self._is_gone():  # else it was deleted while we read it: the next update removes its rows
                    self._note(error)
            return True

    def _is_gone(self) -> bool:
        head = self._updater.journal.head(self.run_id)
        return head is None or head.hidden or head.position < self._head.position

    def _note(self, error: EngineError) -> None:
        """Say in the run's row why it goes no further."""
        with self._updater.place.writing() as database:
            at = self._updater.at(self.run_id) or At(0, "", None)
            self._place_at(database, At(at.position, at.link, error.message))
        self.fault = Fault(self.run_id, at.position, error)

    def _forward(self, at: At | None) -> None:
        updater = self._updater
        restored = self._restored(at)
        if restored is None:  # its past is not the one that the rows were made of
            updater.forget(self.run_id)
            self.started_over = True
            at, restored = None, self._restored(None)
            assert restored is not None
        own = updater.journal.lineage(self.run_id)[-1]
        commits = updater.journal.commits(self.run_id, after=restored.state.seq, link=restored.link)
        chunk = Chunk(self.run_id, updater.model, restored.state)
        ended = False
        while not ended:
            before, fault = chunk.position, None
            with updater.place.writing() as database:
                if updater.at(self.run_id) != at:
                    raise _Moved
                rows = Rows(database)
                try:
                    while not ended and chunk.position - before < self._chunk_events:
                        commit = next(commits, None)
                        if commit is None:
                            ended = True
                        else:
                            chunk.take(commit, rows)
                            # Where a fork begins, the chain goes on from the fork's own start.
                            restored.link = own.start if commit.last == own.low else commit.link
                    chunk.write(rows)
                except (CorruptJournal, SchemaError) as error:
                    if chunk.broken and self._chunk_events > 1:
                        self._chunk_events = 1  # so that what comes before it is kept
                        raise _Moved from error
                    if chunk.broken or self._is_gone():
                        raise
                    fault, ended = Fault(self.run_id, chunk.position, error), True
                chunk.write(rows)
                at = At(chunk.position, restored.link.hex(), None if fault is None else fault.error.message)
                self._place_at(database, at)
            self.events += chunk.position - before
            self.fault = fault
            if self._progress is not None:
                self._progress(chunk.position, self._head.position)
        assert at is not None
        updater.keep_warm(self.run_id, at, restored)

    def _restored(self, at: At | None) -> Restored | None:
        """Return the state that the rows show, or None when the journal has another past there."""
        updater, position = self._updater, 0 if at is None else at.position
        kept = updater.warm.pop(self.run_id, None)  # taken out: it is no good any more if what follows fails
        if at is not None and position > self._head.position:
            return None
        if kept is not None and kept[0] == at and updater.journal.link_at(self.run_id, position) == kept[1].link:
            return kept[1]
        restored = restore(updater.journal, updater.checkpoints, updater.model, self.run_id, until=position)
        if at is not None and at.link and restored.link.hex() != at.link:
            return None
        return restored

    def _place_at(self, database: Database, at: At) -> None:
        """Write the run's row."""
        origin = self._head.origin
        left = (None, None) if origin is None else (origin.run_id, origin.position)
        Rows(database).upsert(RUNS, [(self.run_id, at.position, at.link, *left, at.fault)])

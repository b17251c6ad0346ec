"""A stretch of a run being folded, and the rows that its events touch. It has no fold of its own: events go through
:meth:`engine.core.state.ModelState.apply`, one by one, so that each projection's collector can look before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.core.believed import IMPOSSIBLE, impossible
from engine.core.catalog import Wire
from engine.core.envelope import EVENTS, Commit, Event, Group, events_of
from engine.core.model import Model
from engine.core.state import ModelState
from engine.readmodel.contexts import ContextCollector
from engine.readmodel.events import EventCollector
from engine.readmodel.graphs import GraphCollector
from engine.readmodel.rows import Collector, Rows
from engine.readmodel.swarms import SwarmCollector
from engine.readmodel.tasks import TaskCollector
from projections.contexts.state import ContextsState
from projections.graph import GraphState
from projections.swarm import SwarmState
from projections.tasks import TaskTable

__all__ = ["Chunk"]

_WRITE_EVENTS: Final = 5_000  # rows wait for so many events, and so many characters, before they are written
_WRITE_CHARACTERS: Final = 4 * 1024 * 1024

_COLLECTORS: Final[Mapping[type, Callable[[str, Any], Collector]]] = {
    TaskTable: TaskCollector,
    ContextsState: ContextCollector,
    GraphState: GraphCollector,
    SwarmState: SwarmCollector,
}
"""By the class of the state: a projection of somebody else's may have any name, and has events only."""


class Chunk:
    """The events of a run being folded, and the rows that they touched."""

    def __init__(self, run_id: str, model: Model, state: ModelState) -> None:
        self._run, self._model, self._state = run_id, model, state
        self._happened = EventCollector(run_id)
        self._by_projection: dict[str, Collector] = {
            name: _COLLECTORS[type(part)](run_id, part)
            for name, part in state.parts.items()
            if type(part) in _COLLECTORS
        }
        self._waiting = 0
        self._forget_touched()  # the restore has touched some
        self.position = state.seq
        self.broken = False
        """Whether a fold failed half-way: state and rows are then nothing to write."""

    def take(self, commit: Commit, rows: Rows) -> None:
        """Fold a commit event by event. Raises CorruptJournal for events that no decision can have given."""
        events = events_of(commit, self._model.catalog)
        self.broken = True
        try:
            for group in commit.groups:
                for wire in group[EVENTS]:
                    self._fold(next(events), group, wire)
                    if self._waiting >= _WRITE_EVENTS or self._happened.characters >= _WRITE_CHARACTERS:
                        self.write(rows)
        except IMPOSSIBLE as error:
            raise impossible(self._run, commit.first, error) from error
        self.broken = False
        self.position = commit.last

    def _fold(self, event: Event, group: Group, wire: Wire) -> None:
        self._happened.add(event)
        owner = self._model.owner.get(self._model.catalog.type_of(wire).tag)
        collector = None if owner is None else self._by_projection.get(owner.name)
        step = [[*group[:EVENTS], [wire]]]
        if collector is None:
            self._state.apply(step)
        else:
            collector.before()
            self._state.apply(step)
            collector.after(event)
        self._waiting += 1

    def write(self, rows: Rows) -> None:
        """Write what is waiting. Raises CorruptJournal for a state of which no rows can be made."""
        try:
            self._happened.write(rows)
            for collector in self._by_projection.values():
                collector.write(rows)
        except IMPOSSIBLE as error:
            self.broken = True
            raise impossible(self._run, self.position, error) from error
        self._forget_touched()
        self._waiting = 0

    def _forget_touched(self) -> None:
        """Empty the notes of touched records, those of the ledger and of projections without tables here too."""
        for table in self._state.tables.values():
            table.changed.clear()

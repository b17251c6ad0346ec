"""Runs with their projections: ``run.tasks`` and its siblings on a live run, and the same queries on a view of the
past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Unpack

from engine.core.envelope import Event
from engine.diff import Diff, diff
from engine.documents import document
from engine.fork import fork_run
from engine.history import HistoryFilter, Wanted, history
from engine.moments import position_at
from engine.restore import restore
from engine.run import Run
from engine.view import StateView
from engine.why import Why, why_task
from projections.contexts import ContextCommands, ContextQueries
from projections.graph import GraphCommands, GraphQueries
from projections.swarm import SwarmCommands, SwarmQueries
from projections.tasks import TaskCommands, TaskQueries

__all__ = ["LiveRun", "RunView"]


class RunView(StateView):
    """The whole state of a run as of a position, read-only: queries of every projection, ``digest`` and ``report``."""

    @cached_property
    def tasks(self) -> TaskQueries:
        """The task table as of this position."""
        return TaskQueries(self.ask_projection("tasks"))

    @cached_property
    def contexts(self) -> ContextQueries:
        """The conversations as of this position."""
        return ContextQueries(self.ask_projection("contexts"))

    @cached_property
    def graphs(self) -> GraphQueries:
        """The task graphs as of this position."""
        return GraphQueries(self.ask_projection("graph"))

    @cached_property
    def swarm(self) -> SwarmQueries:
        """The swarm as of this position."""
        return SwarmQueries(self.ask_projection("swarm"))


class LiveRun(Run):
    """A live run: commands and queries of every projection, batches, checkpoints, time travel, forks."""

    @cached_property
    def tasks(self) -> TaskCommands:
        """The task table."""
        return TaskCommands(self.ask_projection("tasks"), self.submit)

    @cached_property
    def contexts(self) -> ContextCommands:
        """The conversations."""
        return ContextCommands(self.ask_projection("contexts"), self.submit)

    @cached_property
    def graphs(self) -> GraphCommands:
        """The task graphs."""
        return GraphCommands(self.ask_projection("graph"), self.submit)

    @cached_property
    def swarm(self) -> SwarmCommands:
        """The swarm."""
        return SwarmCommands(self.ask_projection("swarm"), self.submit)

    def at(self, position: int | None = None, *, time_ms: int | None = None) -> RunView:
        """Return the whole state as of ``position`` (0: before the first event), or of ``time_ms``, read-only.

        A time means the last event recorded at or before it; see :func:`engine.moments.position_at`. Raises NotFound,
        CorruptJournal.
        """
        assert (position is None) != (time_ms is None), "give a position or a time"
        if time_ms is not None:
            position = position_at(self._journal, self.id, time_ms)
        return RunView(self.id, restore(self._journal, self._checkpoints, self._model, self.id, until=position))

    def fork(self, new_id: str, *, at: int | None = None) -> LiveRun:
        """Return a new run that shares this one's history up to ``at`` (default: here); see
        :func:`engine.fork.fork_run`."""
        fork_run(self._journal, self.id, new_id, self.position if at is None else at)
        return LiveRun(
            self._journal,
            self._checkpoints,
            self._model,
            new_id,
            actor=self.actor,
            clock=self._clock,
            policy=self._policy,
        )

    def diff(self, before: int, after: int) -> Diff:
        """Return what changed between two positions, as rows and as a JSON Patch; see :mod:`engine.diff`."""
        return diff(document(self.at(before)), document(self.at(after)))

    def why(self, task_id: str) -> Why:
        """Return what led a task to its present state, in words; see :mod:`engine.why` for nodes, contexts and
        workers."""
        return why_task(self._journal, self._model, self, self.id, task_id, until=self.position)

    def history(
        self,
        *,
        types: Iterable[str] | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        **wanted: Unpack[Wanted],
    ) -> Iterator[Event]:
        """Yield the events of this run that match every filter; see :class:`engine.history.HistoryFilter`."""
        chosen = HistoryFilter(types=None if types is None else frozenset(types), **wanted)
        return history(self._journal, self._model, self.id, chosen, newest_first=newest_first, limit=limit)

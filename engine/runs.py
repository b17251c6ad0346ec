"""Live runs with their projections: ``run.tasks`` and its siblings, time travel, forks and audit. It must never decide
anything; :mod:`engine.run` does."""

from __future__ import annotations

from functools import cached_property

from engine.audit import Audited
from engine.diff import Diff
from engine.fork import fork_run
from engine.moments import position_at
from engine.restore import restore
from engine.run import Run
from engine.slider import Slider
from engine.view import RunView
from projections.contexts import ContextCommands
from projections.graph import GraphCommands
from projections.swarm import SwarmCommands
from projections.tasks import TaskCommands

__all__ = ["LiveRun", "RunView", "Slider"]


class LiveRun(Run, Audited):
    """A live run: commands and queries of every projection, batches, checkpoints, time travel, forks, audit."""

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
        restored = restore(self._journal, self._checkpoints, self._model, self.id, until=position)
        return RunView(self._journal, self._checkpoints, self._model, self.id, restored)

    def slider(self, position: int | None = None) -> Slider:
        """Return a view that moves, at ``position`` (default: here): a step forward folds one event; see
        :mod:`engine.slider`. Raises NotFound, CorruptJournal."""
        at = self.position if position is None else position
        return Slider(self._journal, self._checkpoints, self._model, self.id, at)

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

    def diff(self, before: int, after: int | None = None) -> Diff:
        """Return what changed between two positions (default of the second: here), as rows and as a JSON Patch; see
        :mod:`engine.diff`. Raises NotFound, CorruptJournal."""
        return self.at(before).diff_with(self.at(self.position if after is None else after))

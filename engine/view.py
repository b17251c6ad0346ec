"""Views: the whole state as of a position, read-only. A view must never offer a command; it has queries only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar

from engine.asking import asked
from engine.audit import Audited
from engine.core.model import Model
from engine.core.state import ModelState
from engine.restore import Restored, RestoreReport
from engine.store import Checkpoints, Journal
from projections.contexts import ContextQueries
from projections.graph import GraphQueries
from projections.swarm import SwarmQueries
from projections.tasks import TaskQueries

__all__ = ["RunView", "StateView"]

T = TypeVar("T")


class StateView:
    """The state of a run at one position: queries of every projection, ``digest`` and ``report``."""

    def __init__(self, run_id: str, restored: Restored) -> None:
        self.id = run_id
        self._at = restored

    @classmethod
    def of(cls, run_id: str, state: ModelState) -> Self:
        """Return the view of a state that did not come from a store."""
        return cls(run_id, Restored(state, b"", RestoreReport(run_id, state.seq, "genesis", 0, (), 0.0)))

    @property
    def _restored(self) -> Restored:
        return self._at

    @property
    def position(self) -> int:
        """The position that this view shows."""
        return self._restored.state.seq

    @property
    def report(self) -> RestoreReport:
        """How the view was restored."""
        return self._restored.report

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

    def ask(self, question: Callable[[ModelState], T]) -> T:
        """Return ``question(state)``. The answer must share nothing mutable with the state."""
        return asked(self.id, self._restored.state, question)

    def ask_projection(self, name: str) -> Callable[[Callable[[Any], Any]], Any]:
        """Return the ``ask`` of one projection, as its Queries class takes it. Asking raises NotFound when the model
        has none of that name."""
        return lambda question: self.ask(lambda state: question(state.part(name)))

    def digest(self) -> str:
        """Return the state digest, 64 hex digits."""
        return self.ask(ModelState.digest)

    def state_bytes(self) -> bytes:
        """Return the deterministic encoding of the state."""
        return self.ask(ModelState.bytes)


class RunView(StateView, Audited):
    """The state of a stored run as of a position, with what led there: its history, the changes, why and what differs.
    Made by ``run.at(n)`` and ``store.view(run, at=n)``; it knows nothing of later events."""

    def __init__(
        self, journal: Journal, checkpoints: Checkpoints, model: Model, run_id: str, restored: Restored
    ) -> None:
        super().__init__(run_id, restored)
        self._journal, self._checkpoints, self._model = journal, checkpoints, model

    def _known_until(self) -> int:
        return self.position

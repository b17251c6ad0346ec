"""Documents: the whole state as one JSON object in the public forms of its records. What diff compares and other
programs read."""

from __future__ import annotations

from typing import Any, Protocol

from projections.contexts import ContextQueries
from projections.graph import GraphQueries
from projections.swarm import SwarmQueries
from projections.tasks import TaskQueries

__all__ = ["Queried", "document"]


class Queried(Protocol):
    """A live run or a view of the past."""

    @property
    def tasks(self) -> TaskQueries: ...

    @property
    def contexts(self) -> ContextQueries: ...

    @property
    def graphs(self) -> GraphQueries: ...

    @property
    def swarm(self) -> SwarmQueries: ...


def document(state: Queried) -> dict[str, dict[str, Any]]:
    """Return ``{"tasks": {id: row}, "contexts": {id: record}, "graphs": {id: graph}, "swarm": {"swarm": context}}``.

    Rows and records are in the encodings of the original runtimes; the swarm is left out before it is started.
    """
    return {
        "tasks": {row["task_id"]: row for row in (row.to_json() for row in state.tasks.rows())},
        "contexts": {context: state.contexts.to_record(context) for context in state.contexts.ids()},
        "graphs": {graph: state.graphs.get(graph).to_json() for graph in state.graphs.ids()},
        "swarm": {"swarm": state.swarm.context().to_record()} if state.swarm.started() else {},
    }

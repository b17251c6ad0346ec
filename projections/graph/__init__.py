"""Task graphs: the DAG of a plan, and the life of every node in it (spec: the seed's TaskNode, and TaskGraph).

This package exports the projection and the values its callers handle; it must never import another projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.decider import Evolve, Moment
from projections.graph.admit import admit
from projections.graph.decider import decide
from projections.graph.events import EVENTS
from projections.graph.evolve import EVOLVE
from projections.graph.handle import GraphCommands, GraphQueries
from projections.graph.reactions import TaskEnd, follow_ended, follow_task, guard_dispatch, guard_import
from projections.graph.rules import Violation
from projections.graph.state import GraphState
from projections.graph.transitions import GRAPH, NODE
from projections.graph.values import (
    Attempt,
    Blockage,
    PredicateOutcome,
    Recovery,
    Running,
    TaskGraph,
    TaskNode,
    TaskResult,
    TimeoutPolicy,
    VerifyPredicate,
)

__all__ = [
    "GRAPH",
    "NODE",
    "PROJECTION",
    "Attempt",
    "Blockage",
    "GraphCommands",
    "GraphProjection",
    "GraphQueries",
    "GraphState",
    "PredicateOutcome",
    "Recovery",
    "Running",
    "TaskEnd",
    "TaskGraph",
    "TaskNode",
    "TaskResult",
    "TimeoutPolicy",
    "VerifyPredicate",
    "Violation",
    "follow_ended",
    "follow_task",
    "guard_dispatch",
    "guard_import",
]


class GraphProjection:
    """Task graphs as a projection of the run's events."""

    name: str = "graph"
    events: tuple[EventType, ...] = EVENTS
    upcasts: tuple[Upcast, ...] = ()
    evolve: Mapping[str, Evolve] = EVOLVE
    state_version: int = 1
    shares_values: bool = True  # JSON values inside records are replaced as a whole; the testing kit holds us to it

    def initial(self) -> GraphState:
        """Return the state without any graph."""
        return GraphState()

    def decide(self, state: GraphState, command: Any, moment: Moment) -> Sequence[Wire]:
        """Return the events that follow from a command, [] when it repeats what already is. Raises Refused."""
        return decide(state, command, moment)

    def admit(self, state: GraphState, wire: Wire, moment: Moment) -> Sequence[Wire]:
        """Return a fact that another runtime decided, with what follows from it. Raises Refused."""
        return admit(state, wire, moment)


PROJECTION = GraphProjection()

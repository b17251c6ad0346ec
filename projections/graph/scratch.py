"""The scratch layer: a decision plays its events out on copies of the few records that they touch. It must never reach
into the state to change it.

The layer has the shape that ``evolve`` works on, so the consequences that a decision computes and the state that the
fold then makes cannot differ: both are made by the same functions.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from engine.core.catalog import EventType, Wire
from engine.core.decider import Decision, Moment
from engine.core.errors import NotFound
from engine.core.table import Record, Table
from projections.graph.evolve import EVOLVE
from projections.graph.index import GraphIndex, LayeredDict, ScratchIndex
from projections.graph.state import (
    AttemptRow,
    GraphRow,
    GraphState,
    LeftOutRow,
    NodeRow,
    ProgressRow,
    ResultRow,
    TaskKey,
)

__all__ = ["Scratch"]

R = TypeVar("R", bound=Record)


class _Layer(Generic[R]):
    """A table over a table: ``edit`` hands out a copy, which ``get`` then returns too."""

    __slots__ = ("base", "over")

    def __init__(self, base: Table[R]) -> None:
        self.base = base
        self.over: dict[Any, R] = {}

    def get(self, key: Any) -> R | None:
        found = self.over.get(key)
        return self.base.get(key) if found is None else found

    def edit(self, key: Any) -> R:
        found = self.over.get(key)
        if found is None:
            found = self.over[key] = self.base.load(self.base.rows[key].dump())
        return found

    def add(self, key: Any, row: R) -> R:
        assert self.get(key) is None, f"{self.base.name} {key!r} exists"
        self.over[key] = row
        return row


class Scratch:
    """A decision in the making: the events so far, and the state as it would be after them."""

    def __init__(self, state: GraphState, moment: Moment, at_ms: int | None = None) -> None:
        self.state = state
        self.moment = moment
        self.at_ms = moment.at_ms if at_ms is None else at_ms
        self.decision = Decision()
        self.graphs: _Layer[GraphRow] = _Layer(state.graphs)
        self.nodes: _Layer[NodeRow] = _Layer(state.nodes)
        self.progress: _Layer[ProgressRow] = _Layer(state.progress)
        self.attempts: _Layer[AttemptRow] = _Layer(state.attempts)
        self.results: _Layer[ResultRow] = _Layer(state.results)
        self.left_out: _Layer[LeftOutRow] = _Layer(state.left_out)
        self.by_task: LayeredDict[str, TaskKey] = LayeredDict(state.by_task)
        self.indexes: dict[str, GraphIndex] = {}
        self.opened: dict[tuple[str, int], int] = {}
        """Node -> handle of the event that opened its gate, for the causes of what that readied."""

    @property
    def events(self) -> list[Wire]:
        return self.decision.events

    def index(self, graph: str) -> GraphIndex:
        """Return the scratch index of a graph."""
        index = self.indexes.get(graph)
        if index is None:
            index = self.indexes[graph] = ScratchIndex(self.state.indexes[graph])
        return index

    def new_index(self, graph: str) -> None:
        """Begin the index of a graph that this decision creates."""
        self.indexes[graph] = GraphIndex()

    def emit(self, event_type: EventType, *values: Any, cause: int = 0) -> int:
        """Append an event and play it out; return its handle, for events that it causes."""
        handle = self.decision.emit(event_type, *values, cause=cause)
        wire = self.decision.events[-1]
        EVOLVE[event_type.name](self, wire, self.moment.seq + handle - 1)
        return handle

    # -- reading, for the deciders ----------------------------------------------------------------------------------

    def graph(self, graph: str) -> GraphRow:
        """Return a graph's record for reading. Raises NotFound."""
        row = self.graphs.get(graph)
        if row is None:
            raise NotFound(
                f"there is no graph {graph!r}", hint="create it, or list the ids with graphs.ids()", graph=graph
            )
        return row

    def node(self, graph: str, number: int) -> NodeRow:
        """Return what a node is. Raises NotFound."""
        self.graph(graph)
        node = self.nodes.get((graph, number))
        if node is None:
            size = self.index(graph).size
            raise NotFound(
                f"graph {graph!r} has no node {number}", hint=f"its nodes are 0..{size - 1}", graph=graph, node=number
            )
        return node

    def at(self, graph: str, number: int) -> ProgressRow:
        """Return a node's progress for reading. Raises NotFound."""
        self.node(graph, number)
        row = self.progress.get((graph, number))
        assert row is not None
        return row

"""Questions to the graphs of a run, answered from the state. They must never change it, nor visit more nodes than the
answer speaks of."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from engine.core.errors import InvalidValue, NotFound
from projections.graph.fields import OVER, TERMINAL
from projections.graph.records import left_out, left_out_of, plain_attempt, plain_graph, plain_node
from projections.graph.state import GraphRow, GraphState, ProgressRow
from projections.graph.values import Attempt, Blockage, GraphOutcome, Running, TaskGraph, TaskNode

__all__ = ["awaiting", "blocked", "counts", "dispatchable", "get", "node", "outcome", "ready", "running", "why"]


def _graph(state: GraphState, graph: str) -> GraphRow:
    row = state.graphs.get(graph)
    if row is None:
        raise NotFound(f"there is no graph {graph!r}", hint="graphs.ids() lists them", graph=graph)
    return row


def _progress(state: GraphState, graph: str, number: int) -> ProgressRow:
    _graph(state, graph)
    row = state.progress.get((graph, number))
    if row is None:
        size = state.index(graph).size
        hint = f"its nodes are 0..{size - 1}" if size else "the run was cut before its first node came"
        raise NotFound(f"graph {graph!r} has no node {number}", hint=hint, graph=graph)
    return row


def get(state: GraphState, graph: str) -> TaskGraph:
    """Return a graph with all its nodes. Raises NotFound."""
    record = plain_graph(state, graph, _graph(state, graph))
    return TaskGraph.of(record, left_out_of(state, graph), lambda number: left_out(state, graph, number))


def node(state: GraphState, graph: str, number: int) -> TaskNode:
    """Return one node. Raises NotFound."""
    _progress(state, graph, number)
    return TaskNode.of(plain_node(state, graph, number), left_out(state, graph, number))


def outcome(state: GraphState, graph: str) -> GraphOutcome | None:
    """Return how the graph ended, from its counters, or None while it has not. Raises NotFound."""
    status = _graph(state, graph).status
    if status not in OVER:
        return None
    if status == "completed" and not state.index(graph).clean:
        return "completed_with_failures"
    return status  # type: ignore[return-value]  # OVER: completed, failed, canceled


def counts(state: GraphState, graph: str) -> dict[str, int]:
    """Return how many nodes have each status. Raises NotFound."""
    _graph(state, graph)
    return {status: len(nodes) for status, nodes in state.index(graph).members.items()}


def ready(state: GraphState, graph: str, limit: int | None = None) -> tuple[int, ...]:
    """Return the ready nodes by id, at most ``limit`` of them. Raises NotFound, and InvalidValue for a limit below
    1."""
    _graph(state, graph)
    return _first(state.index(graph).members["ready"], limit)


def _first(nodes: Iterable[int], limit: int | None) -> tuple[int, ...]:
    """Return the first of nodes that are in order; all of them without a limit."""
    if limit is not None and limit < 1:
        raise InvalidValue("limit", f"{limit} would never dispatch anything", hint="a limit is 1 or more, or None")
    return tuple(islice(nodes, limit))


def dispatchable(state: GraphState, graph: str, limit: int | None = None) -> tuple[int, ...]:
    """Return, by id, ready nodes that could all be dispatched now, one after the other: none of a graph that is not
    started, held or over, and at most one sequential node, if none runs."""
    row = _graph(state, graph)
    _first((), limit)
    if row.held or row.status not in ("running", "paused"):
        return ()
    index = state.index(graph)
    sequential_taken = bool(index.sequential)
    chosen: list[int] = []
    for number in index.members["ready"]:
        if limit is not None and len(chosen) == limit:
            break
        if state.nodes.rows[graph, number].execution_mode == "sequential":
            if sequential_taken:
                continue
            sequential_taken = True
        chosen.append(number)
    return tuple(chosen)


def running(state: GraphState, graph: str) -> tuple[Running, ...]:
    """Return the running nodes by id, each with its live attempt. Raises NotFound."""
    _graph(state, graph)
    live = []
    for number in sorted(state.index(graph).members["running"]):
        attempt = _progress(state, graph, number).attempts
        row = state.attempts.rows[graph, number, attempt]
        live.append(Running(number, Attempt.of(plain_attempt(attempt, row))))
    return tuple(live)


def awaiting(state: GraphState, graph: str) -> tuple[int, ...]:
    """Return the completed nodes whose predicate has no verdict yet, by id. Raises NotFound."""
    _graph(state, graph)
    return tuple(sorted(state.index(graph).awaiting))


# -- why not ----------------------------------------------------------------------------------------------------------


def blocked(state: GraphState, graph: str) -> tuple[Blockage, ...]:
    """Return every reason why a node that is not terminal does not run, by id. Raises NotFound."""
    _graph(state, graph)
    return tuple(reason for number in state.index(graph).open() for reason in why(state, graph, number))


def why(state: GraphState, graph: str, number: int) -> tuple[Blockage, ...]:
    """Return every reason why a node does not run; none when it is running, terminal, or could be dispatched now."""
    progress = _progress(state, graph, number)
    if progress.status == "running" or progress.status in TERMINAL:
        return ()
    reasons: list[Blockage] = []
    row, index = _graph(state, graph), state.index(graph)
    if row.status == "created":
        reasons.append(Blockage(number, None, "the graph is not started"))
    elif row.held:
        reasons.append(Blockage(number, None, "the graph is paused by a person"))
    if number in index.fallback and progress.status in ("dormant", "pending"):
        source = index.fallback[number]
        reasons.append(Blockage(number, source, f"fallback: node {source} has not failed for good"))
    entry = state.nodes.rows[graph, number]
    reasons += [
        Blockage(number, dependency, _state_of(state, graph, dependency))
        for dependency in entry.depends_on
        if dependency not in index.gates
    ]
    if progress.status == "ready" and entry.execution_mode == "sequential" and index.sequential:
        other = min(index.sequential)
        reasons.append(Blockage(number, other, f"sequential node {other} is running"))
    return tuple(reasons)


def _state_of(state: GraphState, graph: str, dependency: int) -> str:
    """Say why a dependency does not open its gate."""
    row = state.progress.get((graph, dependency))
    if row is None:
        return f"node {dependency} is still to come"
    if dependency in state.index(graph).awaiting:
        return f"node {dependency} is completed and awaits its predicate"
    if row.asking:
        return f"node {dependency} failed and waits for a person's answer"
    never = ", which never unblocks" if row.status in ("failed", "skipped", "canceled") else ""
    return f"node {dependency} is {row.status}{never}"

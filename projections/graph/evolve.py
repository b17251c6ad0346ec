"""The fold: what each event does to the records and to what is derived from them. It must never refuse, decide or read
a clock; restore, the live path and a decision that plays out its own consequences all call these functions.

Where an event takes its node stands in ``transitions``; a function here says what else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from engine.core.catalog import EventType, Wire
from engine.core.decider import Evolve
from projections.graph import events as ev
from projections.graph.index import GraphIndex
from projections.graph.state import (
    AttemptRow,
    GraphRow,
    LeftOutRow,
    NodeRow,
    ProgressRow,
    Records,
    ResultRow,
    place_gate,
)
from projections.graph.transitions import NODE_TARGET

__all__ = ["EVOLVE"]

EVOLVE: Final[dict[str, Evolve]] = {}
_Function: TypeAlias = Callable[[Any, Wire, int], None]


def _on(*event_types: EventType) -> Callable[[_Function], _Function]:
    def bind(function: _Function) -> _Function:
        EVOLVE.update((event_type.name, function) for event_type in event_types)
        return function

    return bind


def _move(state: Records, wire: Wire, target: str) -> tuple[ProgressRow, GraphIndex]:
    """Take the wire's node to a status, in its record and in the index."""
    graph, number = wire[2], wire[3]
    row = state.progress.edit((graph, number))
    index = state.index(graph)
    old = row.status
    row.status = target
    index.move(number, old, target)
    return row, index


def _end_attempt(state: Records, wire: Wire, number: int, outcome: str, at_ms: int | None, error: str | None) -> None:
    """Close an attempt; one that has ended before keeps its end and changes its verdict only."""
    key = (wire[2], wire[3], number)
    if state.attempts.get(key) is None:
        return  # imported without its attempts
    attempt = state.attempts.edit(key)
    attempt.outcome = outcome
    if at_ms is not None:
        attempt.ended_ms = at_ms
    if error is not None:
        attempt.error = error
    if attempt.task is not None and at_ms is not None:
        state.by_task.pop(attempt.task, None)


def _set_result(state: Records, wire: Wire, value: dict[str, Any] | None) -> None:
    key = (wire[2], wire[3])
    if state.results.get(key) is not None:
        state.results.edit(key).value = value
    elif value is not None:
        state.results.add(key, ResultRow(value))


def _rearm(state: Records, wire: Wire, row: ProgressRow, index: GraphIndex) -> None:
    """Clear what the last run left, for another one. The attempts stay."""
    row.assigned_agent = row.predicate_outcome = row.cause = None
    row.tainted_by = ()
    row.asking = False
    index.asking.discard(wire[3])
    index.awaiting.discard(wire[3])
    _set_result(state, wire, None)


# -- the graph's shape ------------------------------------------------------------------------------------------------


@_on(ev.GRAPH_CREATED)
def _created(state: Records, wire: Wire, seq: int) -> None:
    _, _, graph, goal, strategy, retries, max_tasks, reruns, missing, at_ms, extra = wire
    row = GraphRow(goal, "created", strategy, retries, max_tasks, reruns, at_ms, None, False, missing, extra)
    state.graphs.add(graph, row)
    state.new_index(graph)


@_on(ev.NODE_ADDED)
def _added(state: Records, wire: Wire, seq: int) -> None:
    graph, number = wire[2], wire[3]
    node = state.nodes.add((graph, number), NodeRow(*wire[4:]))
    state.progress.add((graph, number), ProgressRow.fresh())
    state.index(graph).add(number, node.depends_on, node.route_to)
    state.graphs.edit(graph).missing -= 1


@_on(ev.GRAPH_INJECTED)
def _injected(state: Records, wire: Wire, seq: int) -> None:
    state.graphs.edit(wire[2]).missing += wire[3]


@_on(ev.NODE_IMPORTED)
def _node_imported(state: Records, wire: Wire, seq: int) -> None:
    _, _, graph, number, status, result, agent, retries, reruns, outcome, routed, cause, tainted, attempts, asking = (
        wire
    )
    row, index = _move(state, wire, status)
    row.assigned_agent, row.retry_count, row.predicate_rerun_count = agent, retries, reruns
    row.predicate_outcome, row.routed_from, row.cause = outcome, routed, cause
    row.tainted_by, row.attempts, row.asking = tuple(tainted), len(attempts), asking
    index.reruns += reruns
    if status == "skipped" and cause == "unneeded":
        index.unneeded += 1
    if asking:
        index.asking.add(number)
    _set_result(state, wire, result)
    for attempt in attempts:
        _import_attempt(state, (graph, number, attempt["number"]), attempt)
    node = state.nodes.get((graph, number))
    assert node is not None
    if status == "running" and node.execution_mode == "sequential":
        index.sequential.add(number)
    place_gate(index, number, node, row)
    state.graphs.edit(graph).missing -= 1


_ATTEMPT_KEYS = frozenset({"number", "handle", "agent", "started_ms", "ended_ms", "outcome", "error"})


def _import_attempt(state: Records, key: tuple[str, int, int], record: dict[str, Any]) -> None:
    handle = record["handle"]
    task = handle["task"] if isinstance(handle, dict) else None
    live = record["outcome"] is None
    state.attempts.add(
        key,
        AttemptRow(
            None if task else handle,
            task,
            record["agent"],
            record["started_ms"],
            record["ended_ms"],
            record["outcome"],
            record["error"],
            False,
            {name: record[name] for name in record if name not in _ATTEMPT_KEYS},
        ),
    )
    if live and task is not None:
        state.by_task[task] = key


@_on(ev.GRAPH_IMPORTED)
def _graph_imported(state: Records, wire: Wire, seq: int) -> None:
    row = state.graphs.edit(wire[2])
    row.status, row.finished_at, row.held = wire[3:6]
    row.missing -= 1


@_on(ev.GRAPH_KEYS_LEFT_OUT)
def _keys_left_out(state: Records, wire: Wire, seq: int) -> None:
    graph, numbers, keys = wire[2], wire[3], tuple(wire[4])
    for key in [graph] if numbers is None else [(graph, number) for number in numbers]:
        state.left_out.add(key, LeftOutRow(keys))


def _show_outcome(state: Records, graph: str) -> None:
    """From now on the graph has an outcome of its own, not that of the runtime that it comes from."""
    row = state.left_out.get(graph)
    if row is not None and "outcome" in row.keys:
        state.left_out.edit(graph).keys = tuple(key for key in row.keys if key != "outcome")


# -- the graph's life -------------------------------------------------------------------------------------------------


@_on(ev.GRAPH_STARTED)
def _started(state: Records, wire: Wire, seq: int) -> None:
    state.graphs.edit(wire[2]).status = "running"


@_on(ev.GRAPH_PAUSED)
def _paused(state: Records, wire: Wire, seq: int) -> None:
    graph, reason, number = wire[2:5]
    row = state.graphs.edit(graph)
    row.status = "paused"
    if reason == "person":
        row.held = True
    else:
        state.progress.edit((graph, number)).asking = True
        state.index(graph).asking.add(number)


@_on(ev.GRAPH_RESUMED, ev.GRAPH_RETRIED)
def _running_again(state: Records, wire: Wire, seq: int) -> None:
    row = state.graphs.edit(wire[2])
    row.status, row.held, row.finished_at = "running", False, None
    _show_outcome(state, wire[2])


@_on(ev.GRAPH_COMPLETED)
def _graph_completed(state: Records, wire: Wire, seq: int) -> None:
    _finish(state, wire, "completed")


@_on(ev.GRAPH_FAILED)
def _graph_failed(state: Records, wire: Wire, seq: int) -> None:
    _finish(state, wire, "failed")


@_on(ev.GRAPH_CANCELED)
def _graph_canceled(state: Records, wire: Wire, seq: int) -> None:
    _finish(state, wire, "canceled")


def _finish(state: Records, wire: Wire, status: str) -> None:
    row = state.graphs.edit(wire[2])
    row.status, row.held, row.finished_at = status, False, wire[-1]
    _show_outcome(state, wire[2])


@_on(ev.GRAPH_RECOVERED)
def _graph_recovered(state: Records, wire: Wire, seq: int) -> None:
    """Nothing by itself: what becomes of the running nodes are events of their own."""


# -- a node's way to an attempt ---------------------------------------------------------------------------------------


@_on(ev.NODE_READIED, ev.NODE_PARKED, ev.NODE_WITHDRAWN)
def _moved(state: Records, wire: Wire, seq: int) -> None:
    _move(state, wire, _TARGET_OF_TAG[wire[0]])


@_on(ev.NODE_ROUTED)
def _routed(state: Records, wire: Wire, seq: int) -> None:
    row, _ = _move(state, wire, "ready")
    row.routed_from = wire[4]


@_on(ev.NODE_DISPATCHED)
def _dispatched(state: Records, wire: Wire, seq: int) -> None:
    _, _, graph, number, attempt, handle, task, agent, at_ms = wire
    row, index = _move(state, wire, "running")
    assert attempt == row.attempts + 1, f"attempt {attempt} follows attempt {row.attempts}"
    row.attempts, row.assigned_agent, row.tainted_by = attempt, agent, ()
    state.attempts.add((graph, number, attempt), AttemptRow(handle, task, agent, at_ms, None, None, None, False, {}))
    if task is not None:
        state.by_task[task] = (graph, number, attempt)
    node = state.nodes.get((graph, number))
    assert node is not None
    if node.execution_mode == "sequential":
        index.sequential.add(number)


@_on(ev.NODE_ATTEMPT_STARTED)
def _attempt_started(state: Records, wire: Wire, seq: int) -> None:
    attempt = state.attempts.edit((wire[2], wire[3], wire[4]))
    attempt.begun, attempt.started_ms = True, wire[5]


@_on(ev.NODE_DEFERRED)
def _deferred(state: Records, wire: Wire, seq: int) -> None:
    _back_to_ready(state, wire, "deferred", wire[6], wire[5])


@_on(ev.NODE_REQUEUED)
def _requeued(state: Records, wire: Wire, seq: int) -> None:
    _back_to_ready(state, wire, "unknown", wire[5], None)


def _back_to_ready(state: Records, wire: Wire, outcome: str, at_ms: int, error: str | None) -> None:
    row, index = _move(state, wire, "ready")
    row.assigned_agent = None
    index.sequential.discard(wire[3])
    _end_attempt(state, wire, wire[4], outcome, at_ms, error)


# -- how an attempt ends, and what follows ----------------------------------------------------------------------------


@_on(ev.NODE_COMPLETED)
def _completed(state: Records, wire: Wire, seq: int) -> None:
    _, _, graph, number, attempt, result, at_ms = wire
    row, index = _move(state, wire, "completed")
    index.sequential.discard(number)
    _end_attempt(state, wire, attempt, "completed", at_ms, None)
    _set_result(state, wire, result)
    _place(state, graph, number, row, index)


def _place(state: Records, graph: str, number: int, row: ProgressRow, index: GraphIndex) -> None:
    node = state.nodes.get((graph, number))
    assert node is not None
    place_gate(index, number, node, row)


@_on(ev.NODE_FAILED)
def _failed(state: Records, wire: Wire, seq: int) -> None:
    number, attempt, cause, error, at_ms = wire[3:]
    row, index = _move(state, wire, "failed")
    row.cause = cause
    index.sequential.discard(number)
    _end_attempt(state, wire, attempt, cause, at_ms, error)


@_on(ev.NODE_PREDICATE_RECORDED)
def _judged(state: Records, wire: Wire, seq: int) -> None:
    graph, number = wire[2], wire[3]
    row = state.progress.edit((graph, number))
    row.predicate_outcome = wire[5]
    _place(state, graph, number, row, state.index(graph))


@_on(ev.NODE_RERUN)
def _rerun(state: Records, wire: Wire, seq: int) -> None:
    row, index = _move(state, wire, "ready")
    reason = None if row.predicate_outcome is None else row.predicate_outcome["reason"]
    _end_attempt(state, wire, row.attempts, "predicate", None, reason)
    index.reruns += wire[4] - row.predicate_rerun_count
    row.predicate_rerun_count = wire[4]
    _rearm(state, wire, row, index)


@_on(ev.NODE_REJECTED)
def _rejected(state: Records, wire: Wire, seq: int) -> None:
    row, index = _move(state, wire, "failed")
    row.cause = "predicate"
    index.awaiting.discard(wire[3])
    _end_attempt(state, wire, wire[4], "predicate", None, wire[5])


@_on(ev.NODE_RETRIED)
def _retried(state: Records, wire: Wire, seq: int) -> None:
    row, index = _move(state, wire, "ready")
    row.retry_count = wire[4]
    _rearm(state, wire, row, index)


@_on(ev.NODE_RECOVERED)
def _recovered(state: Records, wire: Wire, seq: int) -> None:
    graph, number, result = wire[2:5]
    row, index = _move(state, wire, "completed")
    row.cause, row.predicate_outcome = "recovered", None
    _set_result(state, wire, result)
    _place(state, graph, number, row, index)


@_on(ev.NODE_SKIPPED)
def _skipped(state: Records, wire: Wire, seq: int) -> None:
    row, index = _move(state, wire, "skipped")
    row.cause, row.asking = wire[4], False
    index.asking.discard(wire[3])
    if wire[4] == "unneeded":
        index.unneeded += 1


@_on(ev.NODE_CANCELED)
def _canceled(state: Records, wire: Wire, seq: int) -> None:
    graph, number, cause, at_ms = wire[2:]
    row = state.progress.get((graph, number))
    assert row is not None
    ran = row.status == "running"
    row, index = _move(state, wire, "canceled")
    row.cause = cause
    if ran:
        index.sequential.discard(number)
        _end_attempt(state, wire, row.attempts, "canceled", at_ms, None)


@_on(ev.NODE_CORRECTED)
def _corrected(state: Records, wire: Wire, seq: int) -> None:
    graph, number, reason = wire[2:5]
    row, index = _move(state, wire, "failed")
    row.cause = "corrected"
    last = state.attempts.get((graph, number, row.attempts))
    if last is not None and last.outcome == "completed":  # else its output was injected, and the attempt did fail
        _end_attempt(state, wire, row.attempts, "corrected", None, reason)
    _place(state, graph, number, row, index)
    _show_outcome(state, graph)


@_on(ev.NODE_TAINTED)
def _tainted(state: Records, wire: Wire, seq: int) -> None:
    row = state.progress.edit((wire[2], wire[3]))
    row.tainted_by = (*row.tainted_by, wire[4])


@_on(ev.NODE_RESET)
def _reset(state: Records, wire: Wire, seq: int) -> None:
    graph, number = wire[2], wire[3]
    before = state.progress.get((graph, number))
    assert before is not None
    unneeded = before.status == "skipped" and before.cause == "unneeded"
    row, index = _move(state, wire, "pending")
    if unneeded:
        index.unneeded -= 1
    row.retry_count, row.routed_from = 0, None
    _rearm(state, wire, row, index)


_TARGET_OF_TAG: Final = {
    event_type.tag: NODE_TARGET[event_type.name] for event_type in (ev.NODE_READIED, ev.NODE_PARKED, ev.NODE_WITHDRAWN)
}

assert set(EVOLVE) == {event_type.name for event_type in ev.EVENTS}

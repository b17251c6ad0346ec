"""Recording what another runtime decided: the same life cycles, guards and consequences as for our own commands. It
must never admit a fact that our rules do not give from the state it meets.

A fact about an attempt, or what a person did, is a step like any other, and what follows from it joins it in the same
commit. A fact that is itself a consequence (a node readied, a graph completed) has then happened already: it adds
nothing when the state has come to where it says, or further by consequences alone, and is refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from engine.core.catalog import EventType, Wire
from engine.core.decider import Moment
from engine.core.errors import InvalidValue, Refused
from engine.core.limits import GRAPH_TASKS_MAX
from projections.graph import events as ev
from projections.graph import steps
from projections.graph.cascade import settle
from projections.graph.left_out import is_graph_key, is_path
from projections.graph.records import plain_graph, plain_node
from projections.graph.rules import Violation
from projections.graph.scratch import Scratch
from projections.graph.state import GraphState
from projections.graph.transitions import GRAPH, NODE_STEPS, NODE_TARGET
from projections.graph.validate import already_there, check_structure, read_graph, refuse

__all__ = ["admit"]

_AT: Final = {
    event_type.tag: 2 + event_type.names.index("at_ms") for event_type in ev.EVENTS if "at_ms" in event_type.names
}

_RECOVERY_AT: Final = ev.NODE_ADDED.names.index("recovery")


def admit(state: GraphState, wire: Wire, moment: Moment) -> list[Wire]:
    """Return a checked fact with what follows from it, [] when the state holds it already. Raises Refused, NotFound."""
    at = _AT.get(wire[0])
    plan = Scratch(state, moment, None if at is None else wire[at])
    event_type = _TYPES[wire[0]]
    _ADMIT.get(event_type.name, _consequence)(plan, event_type, wire[2:])
    return plan.events


# -- the graph's shape ------------------------------------------------------------------------------------------------


def _created(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, max_tasks, missing = fields[0], fields[4], fields[6]
    if plan.graphs.get(graph) is not None:
        raise Refused(f"graph {graph!r} exists already", hint="a graph is created once", graph=graph)
    if not 1 <= max_tasks <= GRAPH_TASKS_MAX:
        raise InvalidValue("graph.created.max_tasks", f"{max_tasks} is outside 1..{GRAPH_TASKS_MAX}")
    if missing < 1:
        raise InvalidValue("graph.created.missing", "a graph has at least one node")
    plan.emit(event_type, *fields)


def _injected(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, missing = fields[0], fields[1]
    steps.require_graph(plan, graph, event_type)
    if missing < 1:
        raise InvalidValue("graph.injected.missing", "an injection adds at least one node")
    plan.emit(event_type, *fields)


def _added(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, number = fields[0], fields[1]
    size = plan.index(graph).size if plan.graph(graph) else 0
    if not plan.graph(graph).missing:
        raise Refused(f"graph {graph!r} expects no node", hint="announce nodes with graph.created or graph.injected")
    found = []
    if number != size:
        found.append(Violation(number, "node", number, "node.id_is_position", f"the next node is {size}"))
    recovery = fields[_RECOVERY_AT]
    target = None if recovery is None else recovery["route_to"]
    if target is not None and target < size and plan.at(graph, target).status != "pending":
        found.append(already_there(number, target))
    refuse(f"graph {graph!r}", found)
    _complete_growth(plan, graph, plan.emit(event_type, *fields))


def _complete_growth(plan: Scratch, graph: str, cause: int) -> None:
    """Check a graph's whole structure when its last announced node has come."""
    row = plan.graph(graph)
    if row.missing:
        return
    found: list[Violation] = []
    nodes = [plain_node(plan, graph, number) for number in range(plan.index(graph).size)]
    check_structure(nodes, found, max_tasks=row.max_tasks)
    refuse(f"graph {graph!r}", found)
    settle(plan, graph, cause)


def _node_imported(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, number, status, attempts = fields[0], fields[1], fields[2], fields[11]
    row = plan.at(graph, number)
    if plan.graph(graph).missing < 2 or row.status != "pending" or row.attempts:
        raise Refused(f"graph {graph!r} expects no life of node {number}", hint="a life is imported once, at creation")
    if status == "running" and (not attempts or attempts[-1]["outcome"] is not None):
        raise InvalidValue("node.imported.attempts", "the last attempt of a running node is live")
    steps.require_free_tasks(plan, attempts)
    plan.emit(event_type, *fields)


def _keys_left_out(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, numbers, keys = fields
    row = plan.graph(graph)
    if row.missing != 1 or row.status != "created":
        raise Refused(
            f"graph {graph!r} does not expect to be told what its records lack",
            hint="graph.keys_left_out comes before graph.imported, after the nodes and lives",
        )
    known = is_graph_key if numbers is None else is_path
    unknown = [key for key in keys if not known(key)]
    if unknown:
        raise InvalidValue("graph.keys_left_out.keys", f"{unknown[0]!r:.60} is no optional key of such a record")
    for number in (None,) if numbers is None else numbers:
        key = graph if number is None else (graph, number)
        if number is not None:
            plan.at(graph, number)
        if plan.left_out.get(key) is not None:
            raise InvalidValue("graph.keys_left_out.nodes", f"{'the graph' if number is None else number} came before")
    plan.emit(event_type, *fields)


def _graph_imported(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph = fields[0]
    row = plan.graph(graph)
    if row.missing != 1 or row.status != "created":
        raise Refused(
            f"graph {graph!r} does not expect to be imported now",
            hint="graph.imported comes last, after the nodes and lives that graph.created announced",
        )
    cause = plan.emit(event_type, *fields)
    read_graph(plain_graph(plan, graph, plan.graph(graph)), max_tasks=row.max_tasks)
    settle(plan, graph, cause)


# -- attempts ---------------------------------------------------------------------------------------------------------


def _dispatched(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, number, attempt, handle, task, agent, _ = fields
    expected = plan.at(graph, number).attempts + 1
    if attempt != expected:
        raise Refused(
            f"the next attempt of node {number} in graph {graph!r} is {expected}, not {attempt}",
            hint="record every attempt, in the order in which they began",
        )
    steps.dispatch(plan, graph, number, handle, task, agent)


def _ended(plan: Scratch, fields: list[Any], outcome: str) -> bool:
    """Whether the attempt that a fact names (third field) has ended so already."""
    plan.at(fields[0], fields[1])
    row = plan.attempts.get((fields[0], fields[1], fields[2]))
    return row is not None and row.outcome == outcome


def _deferred(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    if not _ended(plan, fields, "deferred"):
        steps.defer(plan, *fields[:4])


def _requeued(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    if not _ended(plan, fields, "unknown"):
        steps.requeue(plan, *fields[:3])


def _completed(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    stored = plan.results.get((fields[0], fields[1]))
    if not _ended(plan, fields, "completed") or stored is None or stored.value != fields[3]:
        steps.complete(plan, *fields[:4])


def _failed(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    why = fields[3]
    if _ended(plan, fields, why):
        return
    if why == "crash":
        raise _unfounded(plan, event_type, fields)
    steps.fail(plan, *fields[:5])


def _rejected(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    if not _ended(plan, fields, "predicate"):
        raise _unfounded(plan, event_type, fields)


def _judged(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    graph, number, attempt, outcome, _ = fields
    if plan.at(graph, number).predicate_outcome == outcome and attempt == plan.at(graph, number).attempts:
        return
    if attempt != plan.at(graph, number).attempts:
        raise Refused(
            f"the verdict on node {number} of graph {graph!r} is not on its last attempt",
            hint="a verdict on an output that was replaced is dropped",
        )
    steps.judge(plan, graph, number, outcome)


# -- what a person, or a rule, did ------------------------------------------------------------------------------------


def _by_person(position: int, step: Callable[[Scratch, str, int], None]) -> Any:
    """Return an admission that takes what a person did as a step, and anything else as a consequence."""

    def take(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
        if fields[position] == "person" and (plan.at(fields[0], fields[1]).status, event_type.name) in NODE_STEPS:
            step(plan, fields[0], fields[1])
        else:
            _consequence(plan, event_type, fields)

    return take


def _paused(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    row = plan.graph(fields[0])
    if fields[1] == "person" and not row.held:
        steps.pause(plan, fields[0])
    elif fields[1] == "ask" and fields[2] in plan.index(fields[0]).asking:
        return
    else:
        _consequence(plan, event_type, fields)


def _graph_step(step: Callable[[Scratch, str], None], done: str) -> Any:
    """Return an admission of a step of a graph, which is a repetition when the graph is there already, or came to its
    end by it."""

    def take(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
        row = plan.graph(fields[0])
        if row.status != done and (row.status == "canceled" or row.finished_at != fields[-1]):
            step(plan, fields[0])

    return take


_FURTHER: Final[dict[str, tuple[str, ...]]] = {
    "node.reset": ("ready", "dormant"),
    "node.retried": ("pending",),
    "node.rerun": ("pending",),
}
"""Where a node may stand, beside the event's own target, once everything has followed that follows in one commit."""


def _consequence(plan: Scratch, event_type: EventType, fields: list[Any]) -> None:
    """Accept a fact that our rules have drawn already; refuse one that they do not draw from this state."""
    graph = fields[0]
    if event_type.name.startswith("node."):
        row = plan.at(graph, fields[1])
        stands = (NODE_TARGET.get(event_type.name, row.status), *_FURTHER.get(event_type.name, ()))
        holds = row.status in stands and _agrees(plan, event_type, fields)
    else:
        holds = plan.graph(graph).status in {step.target for step in GRAPH if step.event == event_type.name}
    if not holds:
        raise _unfounded(plan, event_type, fields)


def _unfounded(plan: Scratch, event_type: EventType, fields: list[Any]) -> Refused:
    """Return the refusal of a consequence without its ground."""
    graph = fields[0]
    if event_type.name.startswith("node."):
        what, status = f"node {fields[1]} of graph {graph!r}", plan.at(graph, fields[1]).status
    else:
        what, status = f"graph {graph!r}", plan.graph(graph).status
    return Refused(
        f"{event_type.name} does not follow for {what}, which is {status}",
        hint="this is a consequence: it is recorded together with the fact that it follows from",
        graph=graph,
    )


def _agrees(plan: Scratch, event_type: EventType, fields: list[Any]) -> bool:
    """Whether the state holds what the fact says beyond the status."""
    graph, number, *rest = fields
    row = plan.at(graph, number)
    name = event_type.name
    if name == "node.routed":
        return bool(row.routed_from == rest[0])
    if name == "node.rerun":
        return bool(row.predicate_rerun_count == rest[0])
    if name == "node.retried":
        return bool(row.retry_count == rest[0])
    if name == "node.tainted":
        return rest[0] in row.tainted_by
    if name in ("node.skipped", "node.canceled"):
        return bool(row.cause == rest[0])
    return True


_TYPES: Final = {event_type.tag: event_type for event_type in ev.EVENTS}
_ADMIT: Final[dict[str, Callable[[Scratch, EventType, list[Any]], None]]] = {
    "graph.created": _created,
    "graph.injected": _injected,
    "node.added": _added,
    "node.imported": _node_imported,
    "graph.keys_left_out": _keys_left_out,
    "graph.imported": _graph_imported,
    "graph.started": _graph_step(steps.start, "running"),
    "graph.paused": _paused,
    "graph.resumed": _graph_step(steps.resume, "running"),
    "graph.canceled": _graph_step(steps.cancel_graph, "canceled"),
    "graph.retried": lambda plan, event_type, f: steps.retry_graph(plan, f[0]),
    "graph.recovered": lambda plan, event_type, f: steps.recover(plan, f[0], f[1]),
    "node.dispatched": _dispatched,
    "node.attempt_started": lambda plan, event_type, f: steps.attempt_started(plan, f[0], f[1], f[2]),
    "node.deferred": _deferred,
    "node.requeued": _requeued,
    "node.completed": _completed,
    "node.failed": _failed,
    "node.rejected": _rejected,
    "node.predicate_recorded": _judged,
    "node.retried": _by_person(3, steps.retry),
    "node.skipped": _by_person(2, steps.skip),
    "node.canceled": _by_person(2, steps.cancel),
    "node.corrected": lambda plan, event_type, f: steps.correct(plan, f[0], f[1], f[2]),
}

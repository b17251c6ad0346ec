"""The rules that a task graph must keep at creation, at injection and at import, every violation reported at once. It
must never repair what it finds, and never recurse: graphs are as deep as they are long.

Records here are the plain dicts of ``fields.NODE_SHAPE`` and ``fields.GRAPH_SHAPE``; positions count from ``first``,
which is the size of the graph that an injection adds to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.limits import GRAPH_TASKS_MAX
from projections.graph.consistency import inconsistencies
from projections.graph.cycles import cycles
from projections.graph.fields import GRAPH_SHAPE, NODE_SHAPE
from projections.graph.rules import Violation

__all__ = ["already_there", "check_fresh", "check_structure", "read_graph", "read_nodes", "refuse"]

Plain = Mapping[str, Any]


def refuse(what: str, found: Sequence[Violation]) -> None:
    """Raise ImportRefused if there is any violation; its message names the first ones, its ``violations`` all."""
    if not found:
        return
    shown = "; ".join(str(violation) for violation in found[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    raise ImportRefused(
        f"{what} breaks {len(found)} rule{'s' if len(found) > 1 else ''}: {shown}{more}",
        [violation.to_json() for violation in found],
        hint="nothing was recorded; details.violations lists every one",
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def _look(data: Any, path: str) -> Any:
    """Return what stands at a path's first key, for a report; itself at no path, None when there is nothing."""
    if not path:
        return data
    name = path.partition(".")[0].partition("[")[0]
    return data.get(name) if isinstance(data, Mapping) else None


def read_nodes(records: Iterable[Any], found: list[Violation], first: int = 0) -> list[dict[str, Any]]:
    """Return the node records, every key present; report each bad value with its node, field and value."""
    nodes = []
    for number, data in enumerate(records, first):
        faults: list[InvalidValue] = []
        nodes.append(NODE_SHAPE.read(data, faults))
        for fault in faults:
            said = f"{fault.problem} ({fault.hint})" if fault.hint else fault.problem
            found.append(Violation(number, fault.path, _look(data, fault.path), "node.field", said))
    return nodes


def read_graph(data: Any, *, max_tasks: int = GRAPH_TASKS_MAX) -> dict[str, Any]:
    """Return a whole graph record, its nodes read and every rule checked. Raises ImportRefused naming each violation.

    The life so far is checked too: a graph that says it failed while a node still runs is refused.
    """
    found: list[Violation] = []
    faults: list[InvalidValue] = []
    record = GRAPH_SHAPE.read(data, faults)
    found += [Violation(None, fault.path, _look(data, fault.path), "graph.field", fault.problem) for fault in faults]
    record["nodes"] = read_nodes(record["nodes"] or [], found)
    check_structure(record["nodes"], found, max_tasks=max_tasks)
    if not found:
        found += inconsistencies(record)
    refuse(f"graph {record['id']!r}", found)
    return record


# -- structure --------------------------------------------------------------------------------------------------------


def check_structure(nodes: Sequence[Plain], found: list[Violation], *, max_tasks: int, first: int = 0) -> None:
    """Report everything wrong with the shape of the graph that ``nodes`` make, or add to one of ``first`` nodes."""
    total = first + len(nodes)
    if not nodes:
        found.append(Violation(None, "nodes", [], "graph.has_nodes", "there is no node: at least one is needed"))
    if total > max_tasks:
        said = f"{total} nodes are more than max_tasks, which is {max_tasks}"
        found.append(Violation(None, "nodes", total, "graph.max_tasks", said))
    for number, node in enumerate(nodes, first):
        if node["id"] != number and node["id"] is not None:
            said = f"the id is not the node's position, which is {number}"
            found.append(Violation(number, "id", node["id"], "node.id_is_position", said))
        _check_dependencies(number, node["depends_on"], total, found)
        _check_recovery(number, node, found)
    _check_routes(nodes, first, found)
    for path in cycles(nodes, first):
        named = " -> ".join(str(node) for node in path)
        said = f"cycle {named}: each waits for the next"
        found.append(Violation(path[0], "depends_on", path, "node.no_cycle", said))


def _check_dependencies(number: int, depends_on: Sequence[int], total: int, found: list[Violation]) -> None:
    seen: set[int] = set()

    def add(rule: str, text: str) -> None:
        found.append(Violation(number, "depends_on", dependency, rule, text))

    for dependency in depends_on:
        if dependency == number:
            add("node.depends_on_other", "the node depends on itself")
        elif dependency >= total:
            add("node.depends_on_known", f"there is no node {dependency} to depend on")
        if dependency in seen:
            add("node.depends_on_once", f"node {dependency} is named twice")
        seen.add(dependency)


def _check_recovery(number: int, node: Plain, found: list[Violation]) -> None:
    recovery = node["recovery"]
    if recovery is None:
        return
    if (recovery["state_injection"] is None) == (recovery["route_to"] is None):
        said = "recovery names exactly one of state_injection and route_to"
        found.append(Violation(number, "recovery", recovery, "node.recovery_one_way", said))
    if node["verify_predicate"] is not None:
        said = "a node with a verify_predicate has no recovery: an injected output would pass by its gate"
        found.append(Violation(number, "recovery", recovery, "node.recovery_no_gate", said))


def _check_routes(nodes: Sequence[Plain], first: int, found: list[Violation]) -> None:
    """Report route_to rules. A fallback must be new with its source: a node already in the graph may have run."""
    sources: dict[int, int] = {}
    total = first + len(nodes)

    def add(rule: str, text: str) -> None:
        found.append(Violation(number, "recovery.route_to", target, rule, text))

    for number, node in enumerate(nodes, first):
        target = None if node["recovery"] is None else node["recovery"]["route_to"]
        if target is None:
            continue
        if target == number:
            add("node.route_other", "the node routes to itself")
            continue
        if target >= total:
            add("node.route_known", f"there is no node {target} to route to")
            continue
        if target < first:
            found.append(already_there(number, target))
            continue
        fallback = nodes[target - first]
        if fallback["depends_on"]:
            add(
                "node.route_free",
                f"fallback {target} has dependencies of its own: only its source's failure may make it ready",
            )
        if fallback["recovery"] is not None and (onward := fallback["recovery"]["route_to"]) is not None:
            add("node.route_no_chain", f"fallback {target} routes on to node {onward}: chains are not allowed")
        if target in sources:
            add(
                "node.route_one_source",
                f"fallback {target} is already that of node {sources[target]}: one source only",
            )
        sources.setdefault(target, number)


def already_there(number: int, target: int) -> Violation:
    """Return the violation of a node that routes to one that may have run."""
    said = f"node {target} is already part of the graph and cannot become a fallback"
    return Violation(number, "recovery.route_to", target, "node.route_new", said)


# -- newness ----------------------------------------------------------------------------------------------------------

_LIFE = ("result", "assigned_agent", "retry_count", "predicate_rerun_count", "predicate_outcome", "routed_from",
         "attempts", "cause", "tainted_by")  # fmt: skip


def check_fresh(nodes: Sequence[Plain], found: list[Violation], first: int = 0) -> None:
    """Report nodes that come with a life behind them: a new node is pending and nothing has happened to it."""
    for number, node in enumerate(nodes, first):
        if node["status"] != "pending":
            found.append(Violation(number, "status", node["status"], "node.is_new", "a new node is pending"))
        found += [
            Violation(number, name, node[name], "node.is_new", "a new node has none yet")
            for name in _LIFE
            if node[name] not in (None, 0, [])
        ]

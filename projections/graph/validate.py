"""The rules that a task graph must keep at creation, at injection and at import, every violation reported at once. It
must never repair what it finds, and never recurse: graphs are as deep as they are long.

Records here are the plain dicts of ``fields.NODE_SHAPE`` and ``fields.GRAPH_SHAPE``; positions count from ``first``,
which is the size of the graph that an injection adds to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from engine.core.errors import ImportRefused, InvalidValue
from engine.core.limits import GRAPH_TASKS_MAX
from projections.graph.consistency import inconsistencies
from projections.graph.cycles import cycles
from projections.graph.fields import GRAPH_SHAPE, NODE_SHAPE

__all__ = ["Violation", "check_fresh", "check_structure", "read_graph", "read_nodes", "refuse"]

Plain = Mapping[str, Any]


class Violation(NamedTuple):
    """One broken rule: the node (None for the graph), the field, the value found there, and the rule in words."""

    node: int | None
    field: str
    value: Any
    rule: str

    def __str__(self) -> str:
        where = "graph" if self.node is None else f"node {self.node}"
        return f"{where}, {self.field}: {self.rule}"

    def to_json(self) -> dict[str, Any]:
        """Return the violation as a plain object."""
        return self._asdict()


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
    """Return what stands at a path's first key, for a report; None when there is nothing."""
    name = path.partition(".")[0].partition("[")[0]
    return data.get(name) if isinstance(data, Mapping) else None


def read_nodes(records: Iterable[Any], found: list[Violation], first: int = 0) -> list[dict[str, Any]]:
    """Return the node records, every key present; report each bad value with its node, field and value."""
    nodes = []
    for number, data in enumerate(records, first):
        faults: list[InvalidValue] = []
        nodes.append(NODE_SHAPE.read(data, faults))
        for fault in faults:
            rule = f"{fault.problem} ({fault.hint})" if fault.hint else fault.problem
            found.append(Violation(number, fault.path, _look(data, fault.path), rule))
    return nodes


def read_graph(data: Any, *, max_tasks: int = GRAPH_TASKS_MAX) -> dict[str, Any]:
    """Return a whole graph record, its nodes read and every rule checked. Raises ImportRefused naming each violation.

    The life so far is checked too: a graph that says it failed while a node still runs is refused.
    """
    found: list[Violation] = []
    faults: list[InvalidValue] = []
    record = GRAPH_SHAPE.read(data, faults)
    found += [Violation(None, fault.path, _look(data, fault.path), fault.problem) for fault in faults]
    record["nodes"] = read_nodes(record["nodes"] or [], found)
    check_structure(record["nodes"], found, max_tasks=max_tasks)
    if not found:
        found += [Violation(*each) for each in inconsistencies(record)]
    refuse(f"graph {record['id']!r}", found)
    return record


# -- structure --------------------------------------------------------------------------------------------------------


def check_structure(nodes: Sequence[Plain], found: list[Violation], *, max_tasks: int, first: int = 0) -> None:
    """Report everything wrong with the shape of the graph that ``nodes`` make, or add to one of ``first`` nodes."""
    total = first + len(nodes)
    if not nodes:
        found.append(Violation(None, "nodes", [], "there is no node: at least one is needed"))
    if total > max_tasks:
        found.append(Violation(None, "nodes", total, f"{total} nodes are more than max_tasks, which is {max_tasks}"))
    for number, node in enumerate(nodes, first):
        if node["id"] != number and node["id"] is not None:
            found.append(Violation(number, "id", node["id"], f"the id is not the node's position, which is {number}"))
        _check_dependencies(number, node["depends_on"], total, found)
        _check_recovery(number, node, found)
    _check_routes(nodes, first, found)
    for path in cycles(nodes, first):
        named = " -> ".join(str(node) for node in path)
        found.append(Violation(path[0], "depends_on", path, f"cycle {named}: each waits for the next"))


def _check_dependencies(number: int, depends_on: Sequence[int], total: int, found: list[Violation]) -> None:
    seen: set[int] = set()
    for dependency in depends_on:
        if dependency == number:
            found.append(Violation(number, "depends_on", dependency, "the node depends on itself"))
        elif dependency >= total:
            found.append(Violation(number, "depends_on", dependency, f"there is no node {dependency} to depend on"))
        if dependency in seen:
            found.append(Violation(number, "depends_on", dependency, f"node {dependency} is named twice"))
        seen.add(dependency)


def _check_recovery(number: int, node: Plain, found: list[Violation]) -> None:
    recovery = node["recovery"]
    if recovery is None:
        return
    if (recovery["state_injection"] is None) == (recovery["route_to"] is None):
        rule = "recovery names exactly one of state_injection and route_to"
        found.append(Violation(number, "recovery", recovery, rule))
    if node["verify_predicate"] is not None:
        rule = "a node with a verify_predicate has no recovery: an injected output would pass by its gate"
        found.append(Violation(number, "recovery", recovery, rule))


def _check_routes(nodes: Sequence[Plain], first: int, found: list[Violation]) -> None:
    """Report route_to rules. A fallback must be new with its source: a node already in the graph may have run."""
    sources: dict[int, int] = {}
    total = first + len(nodes)
    for number, node in enumerate(nodes, first):
        target = None if node["recovery"] is None else node["recovery"]["route_to"]
        if target is None:
            continue
        rule = None
        if target == number:
            rule = "the node routes to itself"
        elif target >= total:
            rule = f"there is no node {target} to route to"
        elif target < first:
            rule = f"node {target} is already part of the graph and cannot become a fallback"
        if rule is not None:
            found.append(Violation(number, "recovery.route_to", target, rule))
            continue
        fallback = nodes[target - first]
        if fallback["depends_on"]:
            rule = f"fallback {target} has dependencies of its own: only its source's failure may make it ready"
            found.append(Violation(number, "recovery.route_to", target, rule))
        if fallback["recovery"] is not None and fallback["recovery"]["route_to"] is not None:
            rule = f"fallback {target} routes on to node {fallback['recovery']['route_to']}: chains are not allowed"
            found.append(Violation(number, "recovery.route_to", target, rule))
        if target in sources:
            rule = f"fallback {target} is already that of node {sources[target]}: one source only"
            found.append(Violation(number, "recovery.route_to", target, rule))
        sources.setdefault(target, number)


# -- newness ----------------------------------------------------------------------------------------------------------

_LIFE = ("result", "assigned_agent", "retry_count", "predicate_rerun_count", "predicate_outcome", "routed_from",
         "attempts", "cause", "tainted_by")  # fmt: skip


def check_fresh(nodes: Sequence[Plain], found: list[Violation], first: int = 0) -> None:
    """Report nodes that come with a life behind them: a new node is pending and nothing has happened to it."""
    for number, node in enumerate(nodes, first):
        if node["status"] != "pending":
            found.append(Violation(number, "status", node["status"], "a new node is pending"))
        found += [
            Violation(number, name, node[name], "a new node has none yet")
            for name in _LIFE
            if node[name] not in (None, 0, [])
        ]

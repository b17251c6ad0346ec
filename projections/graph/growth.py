"""Growing a graph: creation, injection and import, each whole or not at all. Nothing may be emitted before every rule
has been checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from engine.core.errors import Refused
from projections.graph import events as ev
from projections.graph.cascade import settle, strategy_of
from projections.graph.fields import GRAPH_SHAPE, NODE_SHAPE
from projections.graph.left_out import NEWER_KEYS, left_out_of_graph, left_out_of_node
from projections.graph.records import left_out, left_out_of, plain_attempt, plain_graph
from projections.graph.rules import Violation
from projections.graph.scratch import Scratch
from projections.graph.state import AttemptRow, NodeRow
from projections.graph.steps import require_free_tasks, require_graph
from projections.graph.validate import check_fresh, check_structure, read_graph, read_nodes, refuse

__all__ = ["create", "import_graph", "inject"]

Plain = Mapping[str, Any]

_STATIC: Final = NodeRow.__slots__[:-1]
"""What a node is, in the order of ``node.added``, which ends with the unknown keys."""

_LIFE: Final = ("status", "result", "assigned_agent", "retry_count", "predicate_rerun_count", "predicate_outcome",
                "routed_from", "cause", "tainted_by", "attempts")  # fmt: skip
"""How a node fares, in the order of ``node.imported``, which ends with asking."""

_NEW: Final[list[Any]] = ["pending", None, None, 0, 0, None, None, None, [], []]


def _static(node: Plain) -> list[Any]:
    """Return the fields of ``node.added`` after graph and node."""
    return [*(node[name] for name in _STATIC), NODE_SHAPE.extra(node)]


def create(plan: Scratch, graph: str, head: list[Any], records: Sequence[Any], extra: dict[str, Any]) -> None:
    """Make a graph of new nodes. A repetition with the same content changes nothing. Raises ImportRefused.

    ``head`` is the part of ``graph.created`` from goal to predicate_reruns.
    """
    found: list[Violation] = []
    nodes = read_nodes(records, found)
    check_structure(nodes, found, max_tasks=head[3])
    check_fresh(nodes, found)
    refuse(f"graph {graph!r}", found)
    if plan.graphs.get(graph) is not None:
        if _same(plan, graph, head, nodes, extra):
            return
        hint = "take another id, or add nodes with graphs.inject"
        raise Refused(f"graph {graph!r} exists already", hint=hint, graph=graph)
    cause = plan.emit(ev.GRAPH_CREATED, graph, *head, len(nodes), plan.at_ms, extra)
    _add(plan, graph, nodes, 0, cause)


def _same(plan: Scratch, graph: str, head: list[Any], nodes: Sequence[Plain], extra: dict[str, Any]) -> bool:
    """Whether the graph that exists was made with this content, and nothing was added to it since."""
    row = plan.graph(graph)
    held = [row.goal, row.default_failure_strategy, row.default_max_retries, row.max_tasks, row.predicate_reruns]
    if held != head or row.extra != extra or row.missing or plan.index(graph).size != len(nodes):
        return False
    return all(plan.node(graph, number).dump() == _static(node) for number, node in enumerate(nodes))


def _add(plan: Scratch, graph: str, nodes: Sequence[Plain], first: int, cause: int) -> None:
    for number, node in enumerate(nodes, first):
        plan.emit(ev.NODE_ADDED, graph, number, *_static(node), cause=cause)


def inject(plan: Scratch, graph: str, records: Sequence[Any]) -> None:
    """Add new nodes to a graph that is not over; their ids go on from the last one. Raises ImportRefused and leaves the
    graph as it was."""
    row = require_graph(plan, graph, ev.GRAPH_INJECTED)
    first = plan.index(graph).size
    found: list[Violation] = []
    nodes = read_nodes(records, found, first)
    check_structure(nodes, found, max_tasks=row.max_tasks, first=first)
    check_fresh(nodes, found, first)
    refuse(f"injection into graph {graph!r}", found)
    cause = plan.emit(ev.GRAPH_INJECTED, graph, len(nodes), plan.at_ms)
    _add(plan, graph, nodes, first, cause)
    settle(plan, graph, cause)


def import_graph(plan: Scratch, graph: str, record: Any, max_tasks: int, reruns: int) -> None:
    """Take over a whole graph record with the life it has lived, under its own id. Raises ImportRefused.

    A running node that names no attempt gets one, with its agent and no handle, so that it can be ended by number.
    """
    read = read_graph(record, max_tasks=max_tasks)
    del read["outcome"]  # derived, and checked against the nodes
    if read["id"] != graph:
        said = f"the record is of another graph than {graph!r}"
        refuse(f"graph {graph!r}", [Violation(None, "id", read["id"], "graph.id_agrees", said)])
    for node in read["nodes"]:
        if node["status"] == "running" and not node["attempts"]:
            unknown = AttemptRow(None, None, node["assigned_agent"], None, None, None, None, False, {})
            node["attempts"] = [plain_attempt(1, unknown)]
    own, lacking = left_out_of_graph(record), [left_out_of_node(node) for node in record["nodes"]]
    row = plan.graphs.get(graph)
    if row is not None:
        same = left_out_of(plan, graph) == own
        same = same and all(left_out(plan, graph, number) == keys for number, keys in enumerate(lacking))
        if same and plain_graph(plan, graph, row) == read:
            return
        raise Refused(f"graph {graph!r} exists already", hint="import it into another run", graph=graph)
    _emit_import(plan, graph, read, own, lacking, max_tasks, reruns)


Keys: TypeAlias = tuple[str, ...]


def _emit_import(
    plan: Scratch, graph: str, read: Plain, own: Keys | None, lacking: Sequence[Keys], max_tasks: int, reruns: int
) -> None:
    nodes = read["nodes"]
    lives = [(node["id"], [node[name] for name in _LIFE]) for node in nodes]
    lived = [(number, life) for number, life in lives if life != _NEW]
    defaults = (read["default_failure_strategy"], read["default_max_retries"])
    missing = len(nodes) + len(lived) + 1  # its own nodes, their lives, and the graph's
    extra = GRAPH_SHAPE.extra(read)
    cause = plan.emit(
        ev.GRAPH_CREATED, graph, read["goal"], *defaults, max_tasks, reruns, missing, read["created_at"], extra
    )
    _add(plan, graph, nodes, 0, cause)
    paused = read["status"] == "paused"
    for number, life in lived:
        require_free_tasks(plan, life[-1])
        asking = paused and life[0] == "failed" and strategy_of(plan.graph(graph), plan.node(graph, number)) == "ask"
        plan.emit(ev.NODE_IMPORTED, graph, number, *life, asking, cause=cause)
    _note_left_out(plan, graph, own, lacking, cause)
    held = paused and not plan.index(graph).asking
    settle(plan, graph, plan.emit(ev.GRAPH_IMPORTED, graph, read["status"], read["finished_at"], held, cause=cause))


def _note_left_out(plan: Scratch, graph: str, own: Keys | None, lacking: Sequence[Keys], cause: int) -> None:
    """Note what the records lack, once for all nodes that lack the same; what a node made here lacks needs no note."""
    alike: dict[Keys, list[int]] = {}
    for number, keys in enumerate(lacking):
        if keys != NEWER_KEYS:
            alike.setdefault(keys, []).append(number)
    if own is not None:
        plan.emit(ev.GRAPH_KEYS_LEFT_OUT, graph, None, list(own), cause=cause)
    for keys, numbers in alike.items():
        plan.emit(ev.GRAPH_KEYS_LEFT_OUT, graph, numbers, list(keys), cause=cause)

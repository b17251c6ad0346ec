"""The rules that an imported graph's life so far must keep: its statuses must agree with each other. It must never
report on the structure, which ``validate`` has found sound before it comes here.

A runtime that leaves nodes running in a failed graph, or a stale ``finished_at`` on a paused one, is refused by name
here instead of being restored into a state that no history of ours can reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from projections.graph.fields import OVER, TERMINAL
from projections.graph.rules import Violation

__all__ = ["inconsistencies"]

Plain = Mapping[str, Any]


def inconsistencies(graph: Plain) -> Iterator[Violation]:
    """Yield everything in a structurally sound graph record that contradicts itself."""
    status, nodes = graph["status"], graph["nodes"]
    yield from _of_graph(graph)
    sources = {node["recovery"]["route_to"]: node["id"] for node in nodes if node["recovery"] is not None}
    sequential = [n["id"] for n in nodes if n["status"] == "running" and n["execution_mode"] == "sequential"]
    if len(sequential) > 1:
        said = "more than one sequential node is running"
        yield Violation(None, "nodes", sequential, "graph.one_sequential", said)
    yield from _of_tasks(nodes)
    for node in nodes:
        yield from _of_status(node, status)
        yield from _of_attempts(node)
        yield from _of_links(node, nodes, sources)


def _of_graph(graph: Plain) -> Iterator[Violation]:
    status, finished = graph["status"], graph["finished_at"]
    if (finished is not None) != (status in OVER):
        said = f"a graph that is {status} has {'a' if status in OVER else 'no'} finished_at"
        yield Violation(None, "finished_at", finished, "graph.finished_at", said)
    if graph["outcome"] is not None:
        clean = all(
            node["status"] == "completed" or (node["status"] == "skipped" and node["cause"] == "unneeded")
            for node in graph["nodes"]
        )
        expected = "completed_with_failures" if status == "completed" and not clean else status
        if graph["outcome"] != expected:
            said = f"the nodes and the status {status} make the outcome {expected}"
            yield Violation(None, "outcome", graph["outcome"], "graph.outcome", said)


def _of_tasks(nodes: Sequence[Plain]) -> Iterator[Violation]:
    carried: dict[str, int] = {}
    for node in nodes:
        for position, attempt in enumerate(node["attempts"]):
            handle = attempt["handle"]
            if attempt["outcome"] is not None or not isinstance(handle, dict):
                continue
            if handle["task"] in carried:
                said = f"task {handle['task']!r} already carries the live attempt of node {carried[handle['task']]}"
                where = f"attempts[{position}].handle"
                yield Violation(node["id"], where, handle, "node.one_task_one_attempt", said)
            carried[handle["task"]] = node["id"]


def _of_status(node: Plain, graph_status: str) -> Iterator[Violation]:
    number, status = node["id"], node["status"]
    if graph_status == "created" and status != "pending":
        said = "the graph is created, so the node is pending"
        yield Violation(number, "status", status, "node.status_fits_graph", said)
    if graph_status in OVER and status not in TERMINAL:
        said = f"the graph is {graph_status}, so the node cannot be {status}"
        yield Violation(number, "status", status, "node.status_fits_graph", said)
    if status in ("pending", "ready", "dormant", "running") and node["result"] is not None:
        yield Violation(number, "result", None, "node.result_at_end", f"a node that is {status} has no result")
    outcome = node["predicate_outcome"]
    said = ""
    if status == "completed" and outcome is not None and not outcome["passed"]:
        said = "the predicate failed, so the node is ready again or failed"
    if graph_status == "completed" and status == "completed" and node["verify_predicate"] and outcome is None:
        said = "the graph is completed while the node awaits its predicate"
    if said:
        yield Violation(number, "predicate_outcome", outcome, "node.predicate_decides", said)


def _of_attempts(node: Plain) -> Iterator[Violation]:
    number, attempts = node["id"], node["attempts"]
    for position, attempt in enumerate(attempts, 1):
        where = f"attempts[{position - 1}]"
        if attempt["number"] != position:
            said = f"attempts are numbered from 1, so this is {position}"
            yield Violation(number, f"{where}.number", attempt["number"], "node.attempts_numbered", said)
        live = node["status"] == "running" and position == len(attempts)
        if live != (attempt["outcome"] is None):
            said = "the last attempt of a running node is live" if live else "only a running node has a live attempt"
            yield Violation(number, f"{where}.outcome", attempt["outcome"], "node.attempt_live", said)


def _of_links(node: Plain, nodes: Sequence[Plain], sources: Mapping[int, int]) -> Iterator[Violation]:
    number, status = node["id"], node["status"]
    if status == "dormant" and number not in sources:
        said = "no node routes to it, so it is not dormant"
        yield Violation(number, "status", status, "node.dormant_routed", said)
    if node["routed_from"] is not None and sources.get(number) != node["routed_from"]:
        said = f"node {node['routed_from']} does not route to it"
        yield Violation(number, "routed_from", node["routed_from"], "node.routed_from", said)
    if any(other >= len(nodes) for other in node["tainted_by"]):
        said = "names a node that does not exist"
        yield Violation(number, "tainted_by", node["tainted_by"], "node.tainted_by_known", said)
    if status == "ready":
        for other in node["depends_on"]:
            dependency = nodes[other]
            gated = dependency["verify_predicate"] is not None
            outcome = dependency["predicate_outcome"]
            if dependency["status"] != "completed" or (gated and (outcome is None or not outcome["passed"])):
                said = f"it cannot be ready: node {other} has not opened its gate"
                yield Violation(number, "status", status, "node.ready_gates", said)

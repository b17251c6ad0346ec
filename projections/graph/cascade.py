"""What follows from an event: readied and withdrawn nodes, strategies, skipped and canceled dependents, the end of the
graph. It must never wait for a later commit: when a decision ends, nothing more follows from the state it leaves.

Every function plays its events out on the scratch layer and names as their cause the event that made them follow. Each
visits the nodes it changes and their dependents, and no others.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from projections.graph import events as ev
from projections.graph.fields import TERMINAL
from projections.graph.scratch import Scratch
from projections.graph.state import GraphRow, NodeRow

__all__ = [
    "abort", "answer_failure", "cancel_open", "resume_if_answered", "settle", "skip_tree", "strategy_of", "taint",
]  # fmt: skip


def strategy_of(graph: GraphRow, node: NodeRow) -> str:
    """Return the failure strategy that holds for a node."""
    return node.failure_strategy or graph.default_failure_strategy


def retries_of(graph: GraphRow, node: NodeRow) -> int:
    """Return how many extra attempts strategy retry gives a node."""
    return graph.default_max_retries if node.max_retries is None else node.max_retries


# -- after every command ----------------------------------------------------------------------------------------------


def settle(plan: Scratch, graph: str, cause: int) -> None:
    """Ready what may run, withdraw what may not, and end the graph if nothing is left to do or to wait for."""
    if plan.graph(graph).status not in ("running", "paused"):
        return
    index = plan.index(graph)
    for number in sorted(index.stale):
        plan.emit(ev.NODE_WITHDRAWN, graph, number, cause=cause)
    for number in sorted(index.due):
        if number in index.fallback:
            plan.emit(ev.NODE_PARKED, graph, number, cause=cause)
        else:
            plan.emit(ev.NODE_READIED, graph, number, cause=_opener(plan, graph, number) or cause)
    if not index.moving:
        _come_to_rest(plan, graph, cause)


def _opener(plan: Scratch, graph: str, number: int) -> int:
    """Return the latest event of this decision that opened the gate of one of the node's dependencies, or 0."""
    if not plan.opened:
        return 0
    depends_on = plan.node(graph, number).depends_on
    return max((plan.opened.get((graph, dependency), 0) for dependency in depends_on), default=0)


def _come_to_rest(plan: Scratch, graph: str, cause: int) -> None:
    """Nothing is ready, running or awaiting a verdict: complete the graph, ask again, or call it a deadlock."""
    index = plan.index(graph)
    row = plan.graph(graph)
    if row.status == "paused" and index.asking:
        return  # a person's answer will move it
    for number in sorted(index.members["dormant"]):
        if plan.at(graph, index.fallback[number]).status in TERMINAL:
            skip_tree(plan, graph, number, "unneeded", cause)
    left = index.open()
    if not left:
        plan.emit(ev.GRAPH_COMPLETED, graph, plan.at_ms, cause=cause)
    elif row.status == "paused":
        return  # held: a deadlock is for the person who resumes it to see
    elif index.asking:
        plan.emit(ev.GRAPH_PAUSED, graph, "ask", min(index.asking), plan.at_ms, cause=cause)
    else:
        abort(plan, graph, "deadlock", None, cause)


# -- a failure for good -----------------------------------------------------------------------------------------------


def answer_failure(plan: Scratch, graph: str, number: int, cause: int) -> None:
    """Apply what the graph says about a node that has just failed: another attempt, its recovery, or its strategy."""
    row, node, progress = plan.graph(graph), plan.node(graph, number), plan.at(graph, number)
    strategy = strategy_of(row, node)
    if strategy == "retry" and progress.retry_count < retries_of(row, node):
        plan.emit(ev.NODE_RETRIED, graph, number, progress.retry_count + 1, "strategy", cause=cause)
        return
    if node.recovery is not None and _recover(plan, graph, number, node.recovery["state_injection"], cause):
        return
    if node.route_to is not None and node.route_to in plan.index(graph).members["dormant"]:
        plan.emit(ev.NODE_ROUTED, graph, node.route_to, number, cause=cause)
    elif strategy == "skip":
        skip_tree(plan, graph, number, "failure", cause)
    elif strategy == "ask":
        plan.emit(ev.GRAPH_PAUSED, graph, "ask", number, plan.at_ms, cause=cause)
    else:
        abort(plan, graph, "abort", number, cause)


def _recover(plan: Scratch, graph: str, number: int, output: str | None, cause: int) -> bool:
    """Put the injected output in the place of the node's own, if there is one."""
    if output is None:
        return False
    result: dict[str, Any] = {"output": output, "agent_id": None, "agent_def": None, "artifacts": [], "duration_ms": 0}
    plan.opened[graph, number] = plan.emit(ev.NODE_RECOVERED, graph, number, result, cause=cause)
    return True


def abort(plan: Scratch, graph: str, reason: str, number: int | None, cause: int) -> None:
    """Fail the graph and cancel every node that is not terminal."""
    failed = plan.emit(ev.GRAPH_FAILED, graph, reason, number, plan.at_ms, cause=cause)
    cancel_open(plan, graph, reason, failed)


def cancel_open(plan: Scratch, graph: str, why: str, cause: int) -> None:
    """Cancel every node that is not terminal, in order of id."""
    for number in plan.index(graph).open():
        plan.emit(ev.NODE_CANCELED, graph, number, why, plan.at_ms, cause=cause)


def skip_tree(plan: Scratch, graph: str, number: int, why: str, cause: int) -> None:
    """Skip a node and, breadth first, what depends on it and is not terminal; running dependents are canceled."""
    index = plan.index(graph)
    below = why if why == "unneeded" else "dependency"
    queue = deque([(number, plan.emit(ev.NODE_SKIPPED, graph, number, why, cause=cause))])
    while queue:
        parent, handle = queue.popleft()
        for dependent in index.dependents_of(parent):
            status = plan.at(graph, dependent).status
            if status in TERMINAL:
                continue
            if status == "running":
                follows = plan.emit(ev.NODE_CANCELED, graph, dependent, "dependency", plan.at_ms, cause=handle)
            else:
                follows = plan.emit(ev.NODE_SKIPPED, graph, dependent, below, cause=handle)
            queue.append((dependent, follows))


def resume_if_answered(plan: Scratch, graph: str, cause: int) -> None:
    """Let a graph go on that was paused only by questions, when the last one has its answer."""
    if plan.graph(graph).status == "paused" and not plan.graph(graph).held and not plan.index(graph).asking:
        plan.emit(ev.GRAPH_RESUMED, graph, [], plan.at_ms, cause=cause)


# -- a correction -----------------------------------------------------------------------------------------------------


def taint(plan: Scratch, graph: str, source: int, cause: int) -> None:
    """Mark, breadth first, every node that has consumed the output of ``source``, or one made from it."""
    index = plan.index(graph)
    queue = deque([(source, cause)])
    seen = {source}
    while queue:
        parent, handle = queue.popleft()
        for dependent in index.dependents_of(parent):
            progress = plan.at(graph, dependent)
            if dependent in seen or progress.status not in ("running", "completed", "failed"):
                continue
            seen.add(dependent)
            if source not in progress.tainted_by:
                handle = plan.emit(ev.NODE_TAINTED, graph, dependent, source, cause=handle)
            if progress.status == "completed":
                queue.append((dependent, handle))

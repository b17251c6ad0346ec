"""The way out: records of the state as the plain JSON records that ``fields`` describes. It must never hand out
anything that the state still holds, except JSON values, which nobody changes in place."""

from __future__ import annotations

from typing import Any

from projections.graph.fields import in_order
from projections.graph.left_out import NEWER_KEYS
from projections.graph.state import AttemptRow, GraphRow, NodeRow, ProgressRow, Records

__all__ = ["left_out", "left_out_of", "plain_attempt", "plain_graph", "plain_node"]


def left_out_of(records: Records, graph: str) -> tuple[str, ...] | None:
    """Return the optional keys that a graph's own record came without; None for a graph that was made here."""
    row = records.left_out.get(graph)
    return None if row is None else row.keys


def left_out(records: Records, graph: str, number: int) -> tuple[str, ...]:
    """Return the optional keys that are left out of a node's record while they say nothing."""
    row = records.left_out.get((graph, number))
    return NEWER_KEYS if row is None else row.keys


def plain_attempt(number: int, row: AttemptRow) -> dict[str, Any]:
    """Return an attempt as its JSON record."""
    known = {
        "number": number,
        "handle": row.handle if row.task is None else {"task": row.task},
        "agent": row.agent,
        "started_ms": row.started_ms,
        "ended_ms": row.ended_ms,
        "outcome": row.outcome,
        "error": row.error,
    }
    return in_order(row.extra | known)


def plain_node(records: Records, graph: str, number: int) -> dict[str, Any]:
    """Return a node as its JSON record, every key present."""
    node, progress = records.nodes.get((graph, number)), records.progress.get((graph, number))
    assert node is not None and progress is not None
    result = records.results.get((graph, number))
    known = {name: getattr(node, name) for name in NodeRow.__slots__ if name != "extra"}
    known |= {name: getattr(progress, name) for name in ProgressRow.__slots__ if name != "asking"}
    known |= {
        "id": number,
        "depends_on": list(node.depends_on),
        "tainted_by": list(progress.tainted_by),
        "result": None if result is None else result.value,
        "attempts": _attempts(records, graph, number, progress.attempts),
    }
    return in_order(node.extra | known)


def _attempts(records: Records, graph: str, number: int, count: int) -> list[dict[str, Any]]:
    found = []
    for attempt in range(1, count + 1):
        row = records.attempts.get((graph, number, attempt))
        if row is None:  # each has one, unless the count is one that no event gave
            break
        found.append(plain_attempt(attempt, row))
    return found


def plain_graph(records: Records, graph: str, row: GraphRow) -> dict[str, Any]:
    """Return a graph as its JSON record without the derived outcome, every other key present."""
    known = {
        "id": graph,
        "goal": row.goal,
        "nodes": [plain_node(records, graph, number) for number in range(records.index(graph).size)],
        "status": row.status,
        "default_failure_strategy": row.default_failure_strategy,
        "default_max_retries": row.default_max_retries,
        "created_at": row.created_at,
        "finished_at": row.finished_at,
    }
    return in_order(row.extra | known)

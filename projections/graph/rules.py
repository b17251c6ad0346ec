"""The rules that a task graph can break, each by its stable name, and what a violation says. It must never check
anything; ``validate``, ``consistency`` and ``growth`` do.

``refold explain`` has a page for each of them; a violation names the rule and says in words how it was broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["RULE_TEXTS", "Violation"]

RULE_TEXTS: Final[Mapping[str, str]] = {
    "graph.field": "every field of a graph has its type, and those without a default are there",
    "graph.id_agrees": "a record is imported under its own id",
    "graph.has_nodes": "a graph, and an injection, has at least one node",
    "graph.max_tasks": "a graph has no more nodes than its max_tasks",
    "graph.one_sequential": "at most one sequential node runs",
    "graph.finished_at": "a graph has a finished_at exactly when it is over",
    "graph.outcome": "the outcome is the one that the nodes make",
    "node.field": "every field of a node has its type, and those without a default are there",
    "node.id_is_position": "a node's id is its position in the graph",
    "node.is_new": "a node that is created or injected is pending, and nothing has happened to it",
    "node.depends_on_known": "a node depends on nodes of its graph",
    "node.depends_on_other": "a node does not depend on itself",
    "node.depends_on_once": "a node names each dependency once",
    "node.no_cycle": "no node waits for itself by way of others",
    "node.recovery_one_way": "a recovery names exactly one of state_injection and route_to",
    "node.recovery_no_gate": "a node with a verify_predicate has no recovery",
    "node.route_known": "a node routes to a node of its graph",
    "node.route_other": "a node does not route to itself",
    "node.route_new": "a fallback is not yet part of the graph when its source joins it",
    "node.route_free": "a fallback depends on nothing: its source's failure alone makes it ready",
    "node.route_no_chain": "a fallback does not route on",
    "node.route_one_source": "a fallback has one source",
    "node.one_task_one_attempt": "a task of the run carries the live attempt of one node",
    "node.status_fits_graph": "a node's status is one that a graph of this status can hold",
    "node.result_at_end": "a node has a result only when it has ended",
    "node.predicate_decides": "a completed node has passed its predicate, once there is a verdict or the graph is over",
    "node.attempts_numbered": "attempts are numbered from 1, in order",
    "node.attempt_live": "exactly the last attempt of a running node has no outcome",
    "node.dormant_routed": "a node is dormant only when another routes to it",
    "node.routed_from": "routed_from names the node that routes here",
    "node.tainted_by_known": "tainted_by names nodes of the graph",
    "node.ready_gates": "a ready node's dependencies have completed and passed their predicates",
    "node.left_out": "a partial import leaves out whatever depends on a node that it left out",
}
"""Every rule by its stable name."""


class Violation(NamedTuple):
    """One broken rule: the node (None for the graph), the field, the value found there, the rule's name, and in words
    how it was broken."""

    node: int | None
    field: str
    value: Any
    rule: str
    text: str

    def __str__(self) -> str:
        where = "graph" if self.node is None else f"node {self.node}"
        return f"{where}, {self.field}: {self.text} [{self.rule}]"

    def to_json(self) -> dict[str, Any]:
        """Return the violation as a plain object."""
        return self._asdict()

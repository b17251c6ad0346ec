"""The life cycles of a node and of a graph, as data: everything that says which status may follow which is in this
file. It must never hold a condition; the deciders read ``note`` as prose and check the guard themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.core.transition import Transition

__all__ = ["GRAPH", "GRAPH_STEPS", "NODE", "NODE_STEPS", "NODE_TARGET", "Steps"]

NODE: Final[tuple[Transition, ...]] = (
    Transition(None, "pending", "node.added"),
    Transition("pending", "ready", "node.readied", "all dependencies completed, gates passed"),
    Transition("pending", "dormant", "node.parked", "it is another node's fallback"),
    Transition("pending", "skipped", "node.skipped", "a dependency was skipped, or by a person"),
    Transition("pending", "canceled", "node.canceled"),
    Transition("ready", "running", "node.dispatched", "one sequential node at a time"),
    Transition("ready", "pending", "node.withdrawn", "a dependency is no longer completed"),
    Transition("ready", "skipped", "node.skipped"),
    Transition("ready", "canceled", "node.canceled"),
    Transition("running", "running", "node.attempt_started", "the task it follows began to run"),
    Transition("running", "completed", "node.completed", "by the live attempt"),
    Transition("running", "failed", "node.failed", "by the live attempt"),
    Transition("running", "ready", "node.deferred", "consumes no retry"),
    Transition("running", "ready", "node.requeued", "after a crash"),
    Transition("running", "canceled", "node.canceled"),
    Transition("completed", "completed", "node.predicate_recorded", "once a completion"),
    Transition("completed", "ready", "node.rerun", "predicate failed, budget left"),
    Transition("completed", "failed", "node.rejected", "predicate failed, budget spent"),
    Transition("completed", "failed", "node.corrected"),
    Transition("failed", "ready", "node.retried", "strategy retry, or by a person"),
    Transition("failed", "completed", "node.recovered", "state injection"),
    Transition("failed", "skipped", "node.skipped", "strategy skip, or by a person"),
    Transition("failed", "pending", "node.reset", "graph retried"),
    Transition("dormant", "ready", "node.routed", "its source failed for good"),
    Transition("dormant", "skipped", "node.skipped", "its source did not fail"),
    Transition("dormant", "canceled", "node.canceled"),
    Transition("skipped", "pending", "node.reset", "graph retried"),
    Transition("canceled", "pending", "node.reset", "graph retried"),
)

GRAPH: Final[tuple[Transition, ...]] = (
    Transition(None, "created", "graph.created"),
    Transition("created", "running", "graph.started"),
    Transition("created", "created", "graph.injected"),
    Transition("created", "canceled", "graph.canceled"),
    Transition("running", "running", "graph.injected"),
    Transition("running", "running", "graph.recovered", "after a crash"),
    Transition("running", "paused", "graph.paused", "strategy ask, or by a person"),
    Transition("running", "completed", "graph.completed", "every node terminal"),
    Transition("running", "failed", "graph.failed", "abort or deadlock"),
    Transition("running", "canceled", "graph.canceled"),
    Transition("paused", "running", "graph.resumed"),
    Transition("paused", "running", "graph.retried"),
    Transition("paused", "paused", "graph.paused"),
    Transition("paused", "paused", "graph.injected"),
    Transition("paused", "paused", "graph.recovered"),
    Transition("paused", "completed", "graph.completed"),
    Transition("paused", "failed", "graph.failed"),
    Transition("paused", "canceled", "graph.canceled"),
    Transition("completed", "running", "graph.retried", "something failed or was skipped"),
    Transition("failed", "running", "graph.retried"),
    Transition("canceled", "running", "graph.retried"),
)

Steps = Mapping[tuple[str | None, str], str]


def _steps(table: Iterable[Transition]) -> Steps:
    """Return (source, event) -> target."""
    return {(step.source, step.event): step.target for step in table}


NODE_STEPS: Final = _steps(NODE)
GRAPH_STEPS: Final = _steps(GRAPH)
NODE_TARGET: Final[Mapping[str, str]] = {step.event: step.target for step in NODE}
"""Where an event takes a node, whatever its status was; every event of the table has one target."""

assert all(NODE_TARGET[step.event] == step.target for step in NODE)

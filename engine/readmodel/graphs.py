"""The tables of task graphs: graphs, their nodes and every attempt on a node. A step of one node must never cost the
rows of its neighbours."""

from __future__ import annotations

from typing import Any, Final

from engine.core.envelope import Event
from engine.core.table import Table
from engine.readmodel.rows import Rows
from engine.readmodel.shape import Column, Foreign, Index, SqlTable
from engine.readmodel.values import as_json, json_or_null
from projections.graph import GraphState
from projections.graph.queries import outcome

__all__ = ["ATTEMPTS", "GRAPHS", "NODES", "GraphCollector"]

GRAPHS: Final = SqlTable(
    "graphs",
    "Every task graph, without its nodes.",
    (
        Column("run", "text", "the run"),
        Column("graph", "text", "the graph"),
        Column("goal", "text", "what its nodes are to reach"),
        Column("status", "text", "created, running, paused, completed, failed or canceled"),
        Column("outcome", "text", "how it ended; completed_with_failures hides nothing", null=True),
        Column("held", "bool", "whether a person paused it: nothing is dispatched"),
        Column("default_failure_strategy", "text", "abort, retry, skip or ask"),
        Column("default_max_retries", "whole", "extra attempts, for nodes that name none"),
        Column("max_tasks", "whole", "the most nodes it may ever hold"),
        Column("predicate_reruns", "whole", "re-runs after failed predicates that it allows, over all nodes"),
        Column("created_ms", "whole", "when it was made, Unix milliseconds"),
        Column("finished_ms", "whole", "when it was over", null=True),
        Column("extra", "json", "keys of its record that refold does not know", null=True),
        Column("changed_seq", "whole", "the last event of the graph or of a node of it"),
    ),
    ("run", "graph"),
    (Foreign(("run",), "runs"), Foreign(("run", "changed_seq"), "events")),
    (Index(("run", "status")),),
)

NODES: Final = SqlTable(
    "nodes",
    "Every node of every graph: what it is and how it fares.",
    (
        Column("run", "text", "the run"),
        Column("graph", "text", "the graph"),
        Column("node", "whole", "the node, by its position from 0"),
        Column("title", "text", "its title"),
        Column("description", "text", "what is to be done"),
        Column("status", "text", "pending, ready, running, completed, failed, skipped, canceled or dormant"),
        Column("cause", "text", "why it is failed, skipped, canceled or recovered", null=True),
        Column("depends_on", "json", "the nodes that must complete first"),
        Column("asking", "bool", "whether it failed and waits for a person's answer"),
        Column("attempt_count", "whole", "how often it was dispatched"),
        Column("assigned_agent", "text", "the agent of the latest attempt", null=True),
        Column("agent_hint", "text", "the agent it asks for", null=True),
        Column("result", "json", "what it delivered: output, artifacts, duration_ms, ...", null=True),
        Column("retry_count", "whole", "retries consumed"),
        Column("max_retries", "whole", "retries allowed; NULL: as the graph says", null=True),
        Column("failure_strategy", "text", "abort, retry, skip or ask; NULL: as the graph says", null=True),
        Column("execution_mode", "text", "parallel or sequential"),
        Column("verify_predicate", "json", "what its output must meet before others use it", null=True),
        Column("predicate_outcome", "json", "the verdict: passed, confidence, reason", null=True),
        Column("predicate_passed", "bool", "whether that verdict let it pass; NULL without one", null=True),
        Column("predicate_rerun_count", "whole", "re-runs after failed verdicts"),
        Column(
            "recovery", "json", "what takes its place when it fails for good: state_injection or route_to", null=True
        ),
        Column("route_to", "whole", "the node that takes its place then", null=True),
        Column("routed_from", "whole", "the failed node whose place it took", null=True),
        Column("tainted_by", "json", "nodes corrected after it had used their output"),
        Column("timeout", "json", "run_timeout_secs and idle_timeout_secs", null=True),
        Column("execution_environment", "text", "where it runs", null=True),
        Column("token_budget_cents", "real", "what it may cost", null=True),
        Column("network_scope", "text", "inherit, allow or deny", null=True),
        Column("asset_sensitivity", "text", "public, internal or confidential", null=True),
        Column("extra", "json", "keys of its record that refold does not know", null=True),
        Column("changed_seq", "whole", "the last event that changed the node or an attempt on it"),
    ),
    ("run", "graph", "node"),
    (Foreign(("run", "graph"), "graphs"), Foreign(("run", "changed_seq"), "events")),
    (Index(("run", "status")),),
)

ATTEMPTS: Final = SqlTable(
    "attempts",
    "Every dispatch of a node, one row each: a retry overwrites nothing.",
    (
        Column("run", "text", "the run"),
        Column("graph", "text", "the graph"),
        Column("node", "whole", "the node"),
        Column("number", "whole", "the attempt, from 1"),
        Column("handle", "text", "the host's name for it", null=True),
        Column("task_id", "text", "the task of this run that it follows", null=True),
        Column("agent", "text", "the agent that was assigned", null=True),
        Column("started_ms", "whole", "when it was dispatched, or its task began to run", null=True),
        Column("ended_ms", "whole", "when it ended", null=True),
        Column("outcome", "text", "how it ended; NULL while it is live", null=True),
        Column("error", "text", "what went wrong", null=True),
        Column("extra", "json", "keys of its record that refold does not know", null=True),
    ),
    ("run", "graph", "node", "number"),
    (Foreign(("run", "graph", "node"), "nodes"),),
    (Index(("run", "task_id"), sparse=True),),
)


class GraphCollector:
    """Follows the task graphs by the records that each event touched."""

    def __init__(self, run_id: str, state: GraphState) -> None:
        self._run = run_id
        self._state = state
        self._graphs: dict[str, int] = {}
        self._nodes: dict[tuple[str, int], int] = {}
        self._attempts: dict[tuple[str, int, int], None] = {}

    def before(self) -> None:
        """Nothing to remember: what changed is in the tables afterwards."""

    def after(self, event: Event) -> None:
        state, seq = self._state, event.seq
        state.graphs.changed.clear()  # nobody takes checkpoints of this state
        for graph, node, attempt in _taken(state.attempts):
            self._attempts[graph, node, attempt] = None
            self._nodes[graph, node] = seq
        for table in (state.nodes, state.progress, state.results):
            for graph, node in _taken(table):
                self._nodes[graph, node] = seq
        self._graphs[event.data["graph"]] = seq  # its outcome is drawn from its nodes

    def write(self, rows: Rows) -> None:
        rows.upsert(GRAPHS, (self._graph(graph, seq) for graph, seq in self._graphs.items()))
        rows.upsert(NODES, (self._node(*key, seq) for key, seq in self._nodes.items()))
        rows.upsert(ATTEMPTS, (self._attempt(*key) for key in self._attempts))
        self._graphs, self._nodes, self._attempts = {}, {}, {}

    def _graph(self, graph: str, changed: int) -> tuple[Any, ...]:
        row = self._state.graphs.rows[graph]
        return (
            self._run,
            graph,
            row.goal,
            row.status,
            outcome(self._state, graph),
            row.held,
            row.default_failure_strategy,
            row.default_max_retries,
            row.max_tasks,
            row.predicate_reruns,
            row.created_at,
            row.finished_at,
            json_or_null(row.extra or None),
            changed,
        )

    def _node(self, graph: str, number: int, changed: int) -> tuple[Any, ...]:
        state, key = self._state, (graph, number)
        node, progress = state.nodes.rows[key], state.progress.rows[key]
        result = state.results.get(key)
        return (
            self._run,
            graph,
            number,
            node.title,
            node.description,
            progress.status,
            progress.cause,
            as_json(node.depends_on),
            progress.asking,
            progress.attempts,
            progress.assigned_agent,
            node.agent_hint,
            None if result is None else json_or_null(result.value),
            progress.retry_count,
            node.max_retries,
            node.failure_strategy,
            node.execution_mode,
            json_or_null(node.verify_predicate),
            json_or_null(progress.predicate_outcome),
            None if progress.predicate_outcome is None else progress.predicate_outcome["passed"],
            progress.predicate_rerun_count,
            json_or_null(node.recovery),
            node.route_to,
            progress.routed_from,
            as_json(progress.tainted_by),
            json_or_null(node.timeout),
            node.execution_environment,
            node.token_budget_cents,
            node.network_scope,
            node.asset_sensitivity,
            json_or_null(node.extra or None),
            changed,
        )

    def _attempt(self, graph: str, node: int, number: int) -> tuple[Any, ...]:
        row = self._state.attempts.rows[graph, node, number]
        return (
            self._run,
            graph,
            node,
            number,
            row.handle,
            row.task,
            row.agent,
            row.started_ms,
            row.ended_ms,
            row.outcome,
            row.error,
            json_or_null(row.extra or None),
        )


def _taken(table: Table[Any]) -> list[tuple[Any, ...]]:
    """Return the keys that an event touched, and forget them."""
    keys = [key for key in table.changed if isinstance(key, tuple)]
    table.changed.clear()
    return keys

"""The events of task graphs: numbers 80 to 119, past tense. A field table must never change under its version; a new
meaning is a new version with an upcast.

Every event names its graph first and, when it is about a node, the node second. Times are fields, because the time at
which an event was recorded is not part of the state.
"""

from __future__ import annotations

from typing import Final

from engine.core.catalog import EventType
from engine.core.fields import (
    BOOL,
    ID,
    JSON_OBJECT,
    TEXT,
    TIME_MS,
    U32,
    Field,
    list_of,
    one_of,
    optional,
)
from projections.graph.fields import (
    ATTEMPT,
    BUDGET,
    CAUSE,
    FAIL_CAUSE,
    FAILURE_STRATEGY,
    GRAPH_STATUS,
    MODE,
    NETWORK_SCOPE,
    NODE_STATUS,
    OUTCOME,
    PREDICATE,
    RECOVERY,
    RECOVERY_POLICIES,
    RESULT,
    SENSITIVITY,
    TIMEOUT,
)

__all__ = ["EVENTS"]

_GRAPH = Field("graph", ID, "the graph")
_NODE = Field("node", U32, "the node, by its position")
_AT = Field("at_ms", TIME_MS, "when, by the shell's clock")
_ATTEMPT = Field("attempt", U32, "the attempt's number, from 1")
_EXTRA = Field("extra", JSON_OBJECT, "keys of the record that this version does not know")

_BOUND: list[EventType] = []


def _event(number: int, name: str, doc: str, *fields: Field) -> EventType:
    event_type = EventType(name, (_GRAPH, *fields), doc, number=number)
    _BOUND.append(event_type)
    return event_type


# -- the graph's shape ------------------------------------------------------------------------------------------------

GRAPH_CREATED: Final = _event(
    80,
    "graph.created",
    "A graph exists; it can be commanded when the events that complete it have followed.",
    Field("goal", TEXT, "what the nodes are to reach"),
    Field("default_failure_strategy", FAILURE_STRATEGY, "for nodes that name none"),
    Field("default_max_retries", U32, "extra attempts, for nodes that name none"),
    Field("max_tasks", U32, "the most nodes it may ever hold"),
    Field("predicate_reruns", U32, "re-runs after failed predicates, over all its nodes"),
    Field("missing", U32, "how many node and import events complete it"),
    _AT,
    _EXTRA,
)
NODE_ADDED: Final = _event(
    81,
    "node.added",
    "A node stands at the next position, pending.",
    _NODE,
    Field("title", TEXT),
    Field("description", TEXT),
    Field("depends_on", list_of(U32), "nodes that must complete first"),
    Field("agent_hint", optional(TEXT)),
    Field("failure_strategy", optional(FAILURE_STRATEGY)),
    Field("max_retries", optional(U32)),
    Field("execution_mode", MODE),
    Field("verify_predicate", optional(PREDICATE)),
    Field("execution_environment", optional(TEXT)),
    Field("token_budget_cents", optional(BUDGET)),
    Field("network_scope", optional(NETWORK_SCOPE)),
    Field("asset_sensitivity", optional(SENSITIVITY)),
    Field("timeout", optional(TIMEOUT)),
    Field("recovery", optional(RECOVERY)),
    _EXTRA,
)
GRAPH_INJECTED: Final = _event(
    82, "graph.injected", "Nodes are being added to the graph.", Field("missing", U32, "how many follow"), _AT
)
NODE_IMPORTED: Final = _event(
    83,
    "node.imported",
    "A node came with a life lived elsewhere.",
    _NODE,
    Field("status", NODE_STATUS),
    Field("result", optional(RESULT)),
    Field("assigned_agent", optional(TEXT)),
    Field("retry_count", U32),
    Field("predicate_rerun_count", U32),
    Field("predicate_outcome", optional(OUTCOME)),
    Field("routed_from", optional(U32)),
    Field("cause", optional(CAUSE)),
    Field("tainted_by", list_of(U32)),
    Field("attempts", list_of(ATTEMPT)),
    Field("asking", BOOL, "whether it failed and waits for a person's answer"),
)
GRAPH_IMPORTED: Final = _event(
    84,
    "graph.imported",
    "A graph came with a life lived elsewhere; completes its creation.",
    Field("status", GRAPH_STATUS),
    Field("finished_at", optional(TIME_MS)),
    Field("held", BOOL, "whether a person paused it"),
)

# -- the graph's life -------------------------------------------------------------------------------------------------

GRAPH_STARTED: Final = _event(85, "graph.started", "Nodes may be dispatched.", _AT)
GRAPH_PAUSED: Final = _event(
    86,
    "graph.paused",
    "The graph waits for a person: held (nothing is dispatched), or asked about a failed node (the others go on).",
    Field("reason", one_of("reason of pause", ("person", "ask"))),
    Field("node", optional(U32), "the failed node, for ask"),
    _AT,
)
GRAPH_RESUMED: Final = _event(
    87,
    "graph.resumed",
    "The graph goes on; nothing is run again by that.",
    Field("blocked_by", list_of(U32), "failed nodes that still wait for an answer"),
    _AT,
)
GRAPH_COMPLETED: Final = _event(88, "graph.completed", "Every node is terminal.", _AT)
GRAPH_FAILED: Final = _event(
    89,
    "graph.failed",
    "The graph is over without its goal; every node that was not terminal is canceled in the same commit.",
    Field("reason", one_of("reason of failure", ("abort", "deadlock"))),
    Field("node", optional(U32), "the node whose failure aborted it"),
    _AT,
)
GRAPH_CANCELED: Final = _event(90, "graph.canceled", "A person ended the graph.", _AT)
GRAPH_RETRIED: Final = _event(91, "graph.retried", "A person took the graph up again.", _AT)
GRAPH_RECOVERED: Final = _event(
    92,
    "graph.recovered",
    "After a crash, it was said what becomes of the running nodes.",
    Field("policy", one_of("recovery policy", RECOVERY_POLICIES)),
    _AT,
)

# -- a node's way to an attempt ---------------------------------------------------------------------------------------

NODE_READIED: Final = _event(95, "node.readied", "Its dependencies are completed and their gates open.", _NODE)
NODE_PARKED: Final = _event(96, "node.parked", "It is a fallback and sleeps until its source fails for good.", _NODE)
NODE_WITHDRAWN: Final = _event(97, "node.withdrawn", "It was ready, and a dependency is no longer completed.", _NODE)
NODE_ROUTED: Final = _event(
    98, "node.routed", "A fallback woke: its source failed for good.", _NODE, Field("source", U32, "the failed node")
)
NODE_DISPATCHED: Final = _event(
    99,
    "node.dispatched",
    "An attempt began.",
    _NODE,
    _ATTEMPT,
    Field("handle", optional(TEXT), "the host's name for the attempt"),
    Field("task", optional(ID), "the task of this run that the attempt follows"),
    Field("agent", optional(TEXT), "the agent that was assigned"),
    _AT,
)
NODE_ATTEMPT_STARTED: Final = _event(
    100, "node.attempt_started", "The task that the attempt follows began to run.", _NODE, _ATTEMPT, _AT
)
NODE_DEFERRED: Final = _event(
    101, "node.deferred", "The attempt was given back; no retry is consumed.", _NODE, _ATTEMPT,
    Field("reason", optional(TEXT)), _AT,
)  # fmt: skip
NODE_REQUEUED: Final = _event(
    102, "node.requeued", "The attempt was lost in a crash; the node is ready again.", _NODE, _ATTEMPT, _AT
)

# -- how an attempt ends, and what follows ----------------------------------------------------------------------------

NODE_COMPLETED: Final = _event(
    103, "node.completed", "The live attempt delivered.", _NODE, _ATTEMPT, Field("result", RESULT), _AT
)
NODE_FAILED: Final = _event(
    104,
    "node.failed",
    "The live attempt failed.",
    _NODE,
    _ATTEMPT,
    Field("cause", FAIL_CAUSE),
    Field("error", optional(TEXT)),
    _AT,
)
NODE_PREDICATE_RECORDED: Final = _event(
    105,
    "node.predicate_recorded",
    "The output was judged; only a passed verdict opens the gate.",
    _NODE,
    _ATTEMPT,
    Field("outcome", OUTCOME),
    _AT,
)
NODE_RERUN: Final = _event(
    106,
    "node.rerun",
    "The predicate failed and the graph's budget allows another run; result and verdict are cleared.",
    _NODE,
    Field("predicate_rerun_count", U32, "re-runs of this node so far, this one included"),
)
NODE_RETRIED: Final = _event(
    107,
    "node.retried",
    "A failed node is ready again.",
    _NODE,
    Field("retry_count", U32, "retries consumed so far; 0 when a person retried"),
    Field("by", one_of("retrier", ("strategy", "person"))),
)
NODE_RECOVERED: Final = _event(
    108,
    "node.recovered",
    "A failed node is completed with the output that its recovery injects.",
    _NODE,
    Field("result", RESULT),
)
NODE_SKIPPED: Final = _event(
    109, "node.skipped", "It will not run, and the graph goes on.", _NODE, Field("cause", CAUSE)
)
NODE_CANCELED: Final = _event(110, "node.canceled", "It was stopped.", _NODE, Field("cause", CAUSE), _AT)
NODE_CORRECTED: Final = _event(
    111, "node.corrected", "A completed node turned out wrong.", _NODE, Field("reason", TEXT), _AT
)
NODE_TAINTED: Final = _event(
    112,
    "node.tainted",
    "It had consumed an output that was corrected.",
    _NODE,
    Field("source", U32, "the corrected node"),
)
NODE_REJECTED: Final = _event(
    114,
    "node.rejected",
    "The output did not pass its predicate and the graph allows no further run: the node failed.",
    _NODE,
    _ATTEMPT,
    Field("reason", TEXT, "the verdict's"),
)
GRAPH_KEYS_LEFT_OUT: Final = _event(
    115,
    "graph.keys_left_out",
    "Optional keys that an imported record does not have: they stay out of it while they hold their default.",
    Field("nodes", optional(list_of(U32, unique=True)), "the nodes whose records they are; null: the graph's own"),
    Field("keys", list_of(TEXT, unique=True), "paths in such a record, recovery.route_to; exactly these are left out"),
)
NODE_RESET: Final = _event(113, "node.reset", "The graph was retried; the node starts over.", _NODE)

EVENTS: Final[tuple[EventType, ...]] = tuple(_BOUND)

"""The views: what people ask of a store all the time, each under a name. A view must never say more than the rows do,
and says the same as the query of the same meaning in Python."""

from __future__ import annotations

from typing import Final

from engine.readmodel.shape import Column, SqlView
from projections.contexts.context_state import COMPACT_AT

__all__ = ["VIEWS"]

_RUN: Final = Column("run", "text", "the run")
_TASK: Final = Column("task_id", "text", "the task")
_WHEN: Final = (
    Column("recorded_at_ms", "whole", "when, Unix milliseconds"),
    Column("type", "text", "the event's type"),
    Column("actor", "text", "by whom", null=True),
    Column("command_id", "text", "by which command", null=True),
    Column("cause_seq", "whole", "because of which event", null=True),
    Column("cause", "text", "because of what, when that is no event", null=True),
)

RUN_SUMMARIES: Final = SqlView(
    "run_summaries",
    "Each run in one row.",
    (
        _RUN,
        Column("position", "whole", "its last event here"),
        Column("origin_run", "text", "for a fork, what it left", null=True),
        Column("origin_position", "whole", "for a fork, where it left", null=True),
        Column("first_ms", "whole", "when its first event was recorded", null=True),
        Column("last_ms", "whole", "when its last event was recorded", null=True),
        Column("tasks", "whole", "its tasks"),
        Column("live_tasks", "whole", "those that are not done"),
        Column("contexts", "whole", "its conversations"),
        Column("graphs", "whole", "its task graphs"),
        Column("open_escalations", "whole", "requests for help that are open"),
        Column("fault", "text", "why it could not be read further, if so", null=True),
    ),
    """
SELECT r.run, r.position, r.origin_run, r.origin_position,
       (SELECT e.recorded_at_ms FROM events e WHERE e.run = r.run AND e.seq = 1) AS first_ms,
       (SELECT e.recorded_at_ms FROM events e WHERE e.run = r.run AND e.seq = r.position) AS last_ms,
       (SELECT count(*) FROM tasks t WHERE t.run = r.run) AS tasks,
       (SELECT count(*) FROM tasks t WHERE t.run = r.run AND t.lifecycle <> 'done') AS live_tasks,
       (SELECT count(*) FROM contexts c WHERE c.run = r.run) AS contexts,
       (SELECT count(*) FROM graphs g WHERE g.run = r.run) AS graphs,
       (SELECT count(*) FROM escalations x WHERE x.run = r.run AND x.cleared_seq IS NULL) AS open_escalations,
       r.fault
FROM runs r""",
)

LIVE_TASKS: Final = SqlView(
    "live_tasks",
    "The tasks that are not done.",
    (
        _RUN,
        _TASK,
        Column("parent_task_id", "text", "its parent", null=True),
        Column("role", "text", "its role", null=True),
        Column("lifecycle", "text", "what it is"),
        Column("wait", "text", "what it waits for", null=True),
        Column("attempt", "whole", "the live attempt"),
        Column("tokens_used", "whole", "tokens it used itself"),
        Column("turns_used", "whole", "turns it used itself"),
        Column("since_seq", "whole", "the event that made it so"),
        Column("since_ms", "whole", "when that was recorded"),
    ),
    """
SELECT t.run, t.task_id, t.parent_task_id, t.role, t.lifecycle, t.wait, t.attempt, t.tokens_used, t.turns_used,
       (SELECT max(s.seq) FROM task_transitions s WHERE s.run = t.run AND s.task_id = t.task_id) AS since_seq,
       (SELECT e.recorded_at_ms FROM events e WHERE e.run = t.run AND e.seq = (
          SELECT max(s.seq) FROM task_transitions s WHERE s.run = t.run AND s.task_id = t.task_id)) AS since_ms
FROM tasks t
WHERE t.lifecycle <> 'done'""",
)

WAITING_TASKS: Final = SqlView(
    "waiting_tasks",
    "The suspended tasks, what they wait for, and on whom: a row for each child that a join still waits on.",
    (
        _RUN,
        _TASK,
        Column("wait", "text", "what it waits for"),
        Column("awaited", "text", "the name of what is awaited", null=True),
        Column("due_ms", "whole", "when that is due", null=True),
        Column("waiting_on", "text", "a child that it waits on", null=True),
        Column("waiting_on_lifecycle", "text", "what that child is", null=True),
        Column("since_seq", "whole", "the event that suspended it"),
        Column("since_ms", "whole", "when that was recorded"),
    ),
    """
SELECT t.run, t.task_id, t.wait, t.awaited, t.due_ms, w.value AS waiting_on, c.lifecycle AS waiting_on_lifecycle,
       l.since_seq, l.since_ms
FROM tasks t
JOIN live_tasks l ON l.run = t.run AND l.task_id = t.task_id
LEFT JOIN json_each(t.waiting_on) w
LEFT JOIN tasks c ON c.run = t.run AND c.task_id = w.value
WHERE t.lifecycle = 'suspended'""",
)

TASK_HISTORY: Final = SqlView(
    "task_history",
    "Every step of every task's life cycle, with when, by whom and because of what.",
    (
        _RUN,
        _TASK,
        Column("seq", "whole", "the event"),
        Column("from_lifecycle", "text", "where it was", null=True),
        Column("to_lifecycle", "text", "where it is since"),
        Column("termination", "text", "how it ended", null=True),
        Column("wait", "text", "what it waits for", null=True),
        Column("attempt", "whole", "the attempt that was live"),
        *_WHEN,
    ),
    """
SELECT s.run, s.task_id, s.seq, s.from_lifecycle, s.to_lifecycle, s.termination, s.wait, s.attempt,
       e.recorded_at_ms, e.type, e.actor, e.command_id, e.cause_seq, e.cause
FROM task_transitions s JOIN events e ON e.run = s.run AND e.seq = s.seq""",
)

LAST_CHANGES: Final = SqlView(
    "last_changes",
    "The last event that changed each task, with when, by whom and because of what.",
    (
        _RUN,
        _TASK,
        Column("lifecycle", "text", "what the task is"),
        Column("seq", "whole", "the event"),
        Column("from_lifecycle", "text", "where the task was, if that event moved it", null=True),
        *_WHEN,
    ),
    """
SELECT t.run, t.task_id, t.lifecycle, e.seq, s.from_lifecycle,
       e.recorded_at_ms, e.type, e.actor, e.command_id, e.cause_seq, e.cause
FROM tasks t
JOIN events e ON e.run = t.run AND e.seq = t.changed_seq
LEFT JOIN task_transitions s ON s.run = t.run AND s.seq = t.changed_seq AND s.task_id = t.task_id""",
)

SUBTREE_USAGE: Final = SqlView(
    "subtree_usage",
    "What each task and everything under it has used. Costs a row for each task and each task above it; for one task "
    "the question usage_under is cheaper.",
    (
        _RUN,
        _TASK,
        Column("tasks", "whole", "the tasks it counts, itself among them"),
        Column("tokens_used", "whole", "their tokens; above 2^63-1 a float that is about right"),
        Column("turns_used", "whole", "their turns"),
    ),
    """
WITH RECURSIVE under (run, top, task_id) AS (
  SELECT run, task_id, task_id FROM tasks
  UNION ALL
  SELECT u.run, u.top, t.task_id FROM under u JOIN tasks t ON t.run = u.run AND t.parent_task_id = u.task_id
)
SELECT u.run, u.top AS task_id, count(*) AS tasks,
       sum(t.tokens_used / 1000000000) * 1000000000 + sum(t.tokens_used % 1000000000) AS tokens_used,
       sum(t.turns_used) AS turns_used
FROM under u JOIN tasks t ON t.run = u.run AND t.task_id = u.task_id
GROUP BY u.run, u.top""",
)

CONTEXTS_OVER_WINDOW: Final = SqlView(
    "contexts_over_window",
    f"The conversations that want to be compacted: above {COMPACT_AT:g} of a window that is known.",
    (
        _RUN,
        Column("context", "text", "the conversation"),
        Column("est_tokens", "whole", "about how many tokens a turn reads"),
        Column("model_window", "whole", "how many the model takes"),
        Column("share", "real", "the one over the other"),
        Column("message_count", "whole", "its live messages"),
    ),
    f"""
SELECT run, context, est_tokens, model_window, 1.0 * est_tokens / model_window AS share, message_count
FROM contexts WHERE model_window > 0 AND est_tokens > {COMPACT_AT!r} * model_window""",
)

NODE_DEPENDENCIES: Final = SqlView(
    "node_dependencies",
    "Who depends on whom in a graph, and whether the dependency is met.",
    (
        _RUN,
        Column("graph", "text", "the graph"),
        Column("node", "whole", "a node"),
        Column("depends_on", "whole", "a node that must complete before it"),
        Column("status", "text", "what that one is; NULL when it is still to come", null=True),
        Column("met", "bool", "whether it is completed and its predicate, if any, has passed"),
    ),
    """
SELECT n.run, n.graph, n.node, d.value AS depends_on, o.status,
       coalesce(o.status = 'completed'
                AND (o.verify_predicate IS NULL OR o.predicate_passed IS 1), 0) AS met
FROM nodes n
JOIN json_each(n.depends_on) d
LEFT JOIN nodes o ON o.run = n.run AND o.graph = n.graph AND o.node = d.value""",
)

BLOCKED_NODES: Final = SqlView(
    "blocked_nodes",
    "Every reason why a node that is neither running nor over does not run.",
    (
        _RUN,
        Column("graph", "text", "the graph"),
        Column("node", "whole", "the node"),
        Column("blocked_by", "whole", "the node it waits for; NULL when the graph itself holds it", null=True),
        Column("reason", "text", "why, in words"),
    ),
    """
WITH idle AS (
  SELECT n.*, g.status AS graph_status, g.held
  FROM nodes n JOIN graphs g ON g.run = n.run AND g.graph = n.graph
  WHERE n.status IN ('pending', 'ready', 'dormant')
)
SELECT run, graph, node, NULL AS blocked_by,
       CASE WHEN graph_status = 'created' THEN 'the graph is not started'
            ELSE 'the graph is paused by a person' END AS reason
FROM idle WHERE graph_status = 'created' OR held
UNION ALL
SELECT i.run, i.graph, i.node, s.node, 'fallback: node ' || s.node || ' has not failed for good'
FROM idle i
JOIN nodes s ON s.run = i.run AND s.graph = i.graph AND s.route_to = i.node
WHERE i.status IN ('pending', 'dormant')
UNION ALL
SELECT i.run, i.graph, i.node, d.depends_on,
       'node ' || d.depends_on || CASE
         WHEN o.node IS NULL THEN ' is still to come'
         WHEN o.status = 'completed' AND o.verify_predicate IS NOT NULL AND o.predicate_outcome IS NULL
           THEN ' is completed and awaits its predicate'
         WHEN o.asking THEN ' failed and waits for a person''s answer'
         WHEN o.status IN ('failed', 'skipped', 'canceled') THEN ' is ' || o.status || ', which never unblocks'
         ELSE ' is ' || o.status END
FROM idle i
JOIN node_dependencies d ON d.run = i.run AND d.graph = i.graph AND d.node = i.node AND NOT d.met
LEFT JOIN nodes o ON o.run = d.run AND o.graph = d.graph AND o.node = d.depends_on
UNION ALL
SELECT i.run, i.graph, i.node, min(o.node), 'sequential node ' || min(o.node) || ' is running'
FROM idle i
JOIN nodes o ON o.run = i.run AND o.graph = i.graph AND o.status = 'running' AND o.execution_mode = 'sequential'
WHERE i.status = 'ready' AND i.execution_mode = 'sequential'
GROUP BY i.run, i.graph, i.node""",
)

LIVE_ATTEMPTS: Final = SqlView(
    "live_attempts",
    "The attempts that run: what to attach to again after a crash.",
    (
        _RUN,
        Column("graph", "text", "the graph"),
        Column("node", "whole", "the node"),
        Column("title", "text", "its title"),
        Column("number", "whole", "the attempt"),
        Column("handle", "text", "the host's name for it", null=True),
        Column("task_id", "text", "the task that it follows", null=True),
        Column("agent", "text", "the agent that was assigned", null=True),
        Column("started_ms", "whole", "when it began", null=True),
    ),
    """
SELECT a.run, a.graph, a.node, n.title, a.number, a.handle, a.task_id, a.agent, a.started_ms
FROM attempts a JOIN nodes n ON n.run = a.run AND n.graph = a.graph AND n.node = a.node
WHERE a.outcome IS NULL AND n.status = 'running' AND a.number = n.attempt_count""",
)

OPEN_ESCALATIONS: Final = SqlView(
    "open_escalations",
    "The requests for help that nobody has settled, the oldest first by number.",
    (
        _RUN,
        Column("number", "whole", "its number in the order of raising"),
        Column("worker", "whole", "whose it is"),
        Column("reason", "text", "why"),
        Column("detail", "json", "what goes with the reason", null=True),
        Column("context", "text", "what the raiser added", null=True),
        Column("raised_at_tick", "whole", "the tick then"),
        Column("attempts", "whole", "how often it was raised again"),
        Column("since_seq", "whole", "the event that raised it"),
        Column("since_ms", "whole", "when that was recorded"),
    ),
    """
SELECT x.run, x.number, x.worker, x.reason, x.detail, x.context, x.raised_at_tick, x.attempts,
       x.raised_seq AS since_seq, e.recorded_at_ms AS since_ms
FROM escalations x JOIN events e ON e.run = x.run AND e.seq = x.raised_seq
WHERE x.cleared_seq IS NULL""",
)

VIEWS: Final = (
    RUN_SUMMARIES,
    LIVE_TASKS,
    WAITING_TASKS,
    TASK_HISTORY,
    LAST_CHANGES,
    SUBTREE_USAGE,
    CONTEXTS_OVER_WINDOW,
    NODE_DEPENDENCIES,
    BLOCKED_NODES,
    LIVE_ATTEMPTS,
    OPEN_ESCALATIONS,
)
"""In the order of making: a view may use those before it."""

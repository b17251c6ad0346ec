"""The views of task graphs: who depends on whom, what does not run and why, and what runs. They must say what the
queries of the same meaning say in Python, in the same words."""

from __future__ import annotations

from typing import Final

from engine.readmodel.shape import Column, SqlView

__all__ = ["BLOCKED_NODES", "LIVE_ATTEMPTS", "NODE_DEPENDENCIES"]

_RUN: Final = Column("run", "text", "the run")

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

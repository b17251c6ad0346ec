"""The views of tasks: which live, wait on whom, changed last, and what they used. They must say what the queries of the
same meaning say in Python."""

from __future__ import annotations

from typing import Final

from engine.readmodel.shape import Column, SqlView

__all__ = ["LAST_CHANGES", "LIVE_TASKS", "SUBTREE_USAGE", "TASK_HISTORY", "WAITING_TASKS"]

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
  UNION
  SELECT u.run, u.top, t.task_id FROM under u JOIN tasks t ON t.run = u.run AND t.parent_task_id = u.task_id
)
SELECT u.run, u.top AS task_id, count(*) AS tasks,
       sum(t.tokens_used / 1000000000) * 1000000000 + sum(t.tokens_used % 1000000000) AS tokens_used,
       sum(t.turns_used) AS turns_used
FROM under u JOIN tasks t ON t.run = u.run AND t.task_id = u.task_id
GROUP BY u.run, u.top""",
)

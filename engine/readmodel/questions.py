"""The documented questions: SQL to copy, to learn from and to run by name. Every one of them must run as it stands; the
tests run them all."""

from __future__ import annotations

from typing import Final

from sqlite_utils.db import quote_identifier

from engine.readmodel.schema import BY_NAME
from engine.readmodel.shape import Question

__all__ = ["QUESTIONS", "statement_of"]

_R: Final = {"run": "the run"}

QUESTIONS: Final = (
    Question(
        "who_changed",
        "Who changed a task last, when, and because of what?",
        """
SELECT lifecycle, seq, datetime(recorded_at_ms / 1000, 'unixepoch') AS at, type, actor, command_id, cause_seq, cause
FROM last_changes WHERE run = :run AND task_id = :task""",
        {**_R, "task": "the task"},
    ),
    Question(
        "waiting_at",
        "What was a task at a moment, and if it was suspended, what did it wait for?",
        """
SELECT h.seq, h.to_lifecycle AS lifecycle, h.wait, json_extract(e.data, '$.waiting_on') AS waiting_on,
       json_extract(e.data, '$.awaited') AS awaited, h.actor
FROM task_history h JOIN events e ON e.run = h.run AND e.seq = h.seq
WHERE h.run = :run AND h.task_id = :task AND h.recorded_at_ms <= CAST(:at_ms AS INTEGER)
ORDER BY h.seq DESC LIMIT 1""",
        {**_R, "task": "the task", "at_ms": "the moment, Unix milliseconds"},
    ),
    Question(
        "usage_under",
        "What have a task and everything under it used?",
        """
WITH RECURSIVE under (task_id) AS (
  SELECT task_id FROM tasks WHERE run = :run AND task_id = :task
  UNION
  SELECT t.task_id FROM under u JOIN tasks t ON t.run = :run AND t.parent_task_id = u.task_id
)
SELECT count(*) AS tasks,
       sum(t.tokens_used / 1000000000) * 1000000000 + sum(t.tokens_used % 1000000000) AS tokens_used,
       sum(t.turns_used) AS turns_used
FROM under u JOIN tasks t ON t.run = :run AND t.task_id = u.task_id""",
        {**_R, "task": "the task at the top"},
    ),
    Question(
        "task_durations",
        "How long did each task that is done take, and how did it end?",
        """
SELECT last.task_id, t.role, last.termination, last.recorded_at_ms - first.recorded_at_ms AS took_ms, t.tokens_used
FROM task_history last
JOIN task_history first ON first.run = last.run AND first.task_id = last.task_id AND first.from_lifecycle IS NULL
JOIN tasks t ON t.run = last.run AND t.task_id = last.task_id
WHERE last.run = :run AND last.to_lifecycle = 'done'
ORDER BY took_ms DESC""",
        _R,
    ),
    Question(
        "failures",
        "How many tasks ended in which way, over all runs? What ended before a fork left counts for its origin alone.",
        """
SELECT coalesce(t.role, 'root') AS role, t.termination, count(*) AS tasks
FROM tasks t
JOIN task_transitions ended ON ended.run = t.run AND ended.task_id = t.task_id AND ended.to_lifecycle = 'done'
JOIN runs r ON r.run = t.run
WHERE ended.seq > coalesce(r.origin_position, 0)
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2""",
    ),
    Question(
        "own_events",
        "How many events did each run record itself, and how many does it share with the run it left?",
        """
SELECT run, position - coalesce(origin_position, 0) AS own, coalesce(origin_position, 0) AS shared, origin_run
FROM runs ORDER BY run""",
    ),
    Question(
        "consequences",
        "What followed from an event, and from what followed from it?",
        """
WITH RECURSIVE chain (seq, depth) AS (
  SELECT CAST(:seq AS INTEGER), 0
  UNION
  SELECT e.seq, c.depth + 1 FROM chain c JOIN events e ON e.run = :run AND e.cause_seq = c.seq
)
SELECT c.depth, e.seq, e.type, e.actor, e.data FROM chain c JOIN events e ON e.run = :run AND e.seq = c.seq
ORDER BY e.seq""",
        {**_R, "seq": "the event"},
    ),
    Question(
        "task_events",
        "Which events name a task, in any role?",
        """
SELECT e.seq, datetime(e.recorded_at_ms / 1000, 'unixepoch') AS at, e.type, e.actor, e.command_id, e.data
FROM event_tasks n JOIN events e ON e.run = n.run AND e.seq = n.seq
WHERE n.run = :run AND n.task_id = :task ORDER BY e.seq""",
        {**_R, "task": "the task"},
    ),
    Question(
        "said",
        "Where was something said, in any conversation, folded messages included?",
        """
SELECT m.run, m.context, m.place, m.role, snippet(messages_fts, -1, '[', ']', '...', 12) AS found,
       m.folded_seq IS NULL AS live
FROM messages_fts JOIN messages m ON m.id = messages_fts.rowid
WHERE messages_fts MATCH :words ORDER BY messages_fts.rank, m.run, m.context, m.place""",
        {"words": "words, or a query of SQLite's FTS5"},
    ),
    Question(
        "conversation",
        "What does a conversation hold now?",
        """
SELECT place, role, coalesce(text, content) AS said, tool_calls, tool_name
FROM messages WHERE run = :run AND context = :context AND folded_seq IS NULL ORDER BY place""",
        {**_R, "context": "the conversation"},
    ),
    Question(
        "why_not_ready",
        "Why does a node not run?",
        "SELECT blocked_by, reason FROM blocked_nodes WHERE run = :run AND graph = :graph AND node = :node",
        {**_R, "graph": "the graph", "node": "the node"},
    ),
    Question(
        "retried_nodes",
        "Which nodes needed more than one attempt, and what went wrong?",
        """
SELECT a.run, a.graph, a.node, n.title, a.number, a.outcome, a.error, a.ended_ms - a.started_ms AS took_ms
FROM attempts a JOIN nodes n ON n.run = a.run AND n.graph = a.graph AND n.node = a.node
WHERE n.attempt_count > 1 ORDER BY a.run, a.graph, a.node, a.number""",
    ),
    Question(
        "failing_workers",
        "Which workers fail again and again, and is help asked for?",
        """
SELECT w.run, w.worker, w.phase, w.consecutive_failures, w.last_action, w.last_output, x.reason, x.attempts
FROM workers w LEFT JOIN open_escalations x ON x.run = w.run AND x.worker = w.worker
WHERE w.consecutive_failures > 0 ORDER BY w.consecutive_failures DESC, w.run, w.worker""",
    ),
    Question(
        "metadata_at",
        "Which runs have a value at a path in their metadata?",
        """
SELECT run, key, json_extract(value, :path) AS found FROM metadata
WHERE key = :key AND json_type(value, :path) IS NOT NULL ORDER BY run""",
        {"key": "the key", "path": 'a JSON path from the value, such as $.region."zone a"[0]'},
    ),
    Question(
        "between",
        "What happened between two moments?",
        """
SELECT seq, type, actor, command_id, data FROM events
WHERE run = :run AND recorded_at_ms BETWEEN CAST(:from_ms AS INTEGER) AND CAST(:to_ms AS INTEGER) ORDER BY seq""",
        {**_R, "from_ms": "from, Unix milliseconds", "to_ms": "to, Unix milliseconds"},
    ),
    Question(
        "differs_from_origin",
        "In which tasks does a fork differ from the run it left?",
        """
SELECT f.task_id, o.lifecycle AS origin_lifecycle, f.lifecycle, o.tokens_used AS origin_tokens, f.tokens_used
FROM runs r
JOIN tasks f ON f.run = r.run
LEFT JOIN tasks o ON o.run = r.origin_run AND o.task_id = f.task_id
WHERE r.run = :fork AND (o.lifecycle, o.termination, o.wait, o.tokens_used)
      IS NOT (f.lifecycle, f.termination, f.wait, f.tokens_used)
ORDER BY f.number""",
        {"fork": "the fork"},
    ),
)

_BY_NAME: Final = {question.name: question.sql for question in QUESTIONS}


def statement_of(query: str) -> str:
    """Return the statement that a query stands for: the name of a question, a table or a view, which is no SQL by
    itself, for its rows; anything else for itself."""
    name = query.strip()
    if name in BY_NAME:
        return f"SELECT * FROM {quote_identifier(BY_NAME[name].name)}"
    return _BY_NAME.get(name, query)

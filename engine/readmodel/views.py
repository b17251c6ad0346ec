"""The views: what people ask of a store all the time, each under a name. A view must never say more than the rows do,
and says the same as the query of the same meaning in Python."""

from __future__ import annotations

from typing import Final

from engine.readmodel.graph_views import BLOCKED_NODES, LIVE_ATTEMPTS, NODE_DEPENDENCIES
from engine.readmodel.shape import Column, SqlView
from engine.readmodel.task_views import LAST_CHANGES, LIVE_TASKS, SUBTREE_USAGE, TASK_HISTORY, WAITING_TASKS
from projections.contexts.context_state import COMPACT_AT

__all__ = ["VIEWS"]

_RUN: Final = Column("run", "text", "the run")

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

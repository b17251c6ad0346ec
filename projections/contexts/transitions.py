"""The life cycles of a context, as data: what must be there before each event, and what is there after it. Nothing here
may decide; decide, admit, the tests and the diagrams read these tables.

A context has no end of its own. What comes and goes is its plan, its task and its first caller, and the status of each
plan item; one table each.
"""

from __future__ import annotations

from typing import Final

from engine.core.transition import Transition

__all__ = [
    "BIND_STATUS",
    "CONTEXT_STEPS",
    "ITEM_MARKS",
    "ITEM_STATUSES",
    "ITEM_STEPS",
    "PLAN_STEPS",
    "PRINCIPAL_STEPS",
    "SETTLED",
    "TASK_STEPS",
]

CONTEXT_STEPS: Final = (
    Transition(None, "open", "context.created"),
    Transition(None, "open", "context.imported"),
    Transition("open", "open", "context.messages_appended"),
    Transition("open", "open", "context.touched"),
    Transition("open", "open", "context.turn_begun"),
    Transition("open", "open", "context.skill_loaded", "a loaded name, or below the limit"),
    Transition("open", "open", "context.skill_unloaded", "a loaded name"),
    Transition("open", "open", "context.plan_created"),
    Transition("open", "open", "context.plan_updated", "with a plan"),
    Transition("open", "open", "context.plan_items_settled", "with a plan"),
    Transition("open", "open", "context.plan_cleared", "with a plan"),
    Transition("open", "open", "context.preflight_set"),
    Transition("open", "open", "context.principal_set", "the first caller"),
    Transition("open", "open", "context.task_attached", "a known task"),
    Transition("open", "open", "context.task_detached"),
    Transition("open", "open", "context.window_changed"),
    Transition("open", "open", "context.compacted", "at the version it was planned at"),
)

PLAN_STEPS: Final = (
    Transition(None, "drawn", "context.plan_created"),
    Transition(None, "drawn", "context.imported"),
    Transition("drawn", "drawn", "context.plan_created", "takes the place of the old one"),
    Transition("drawn", "drawn", "context.plan_updated"),
    Transition("drawn", "drawn", "context.plan_items_settled"),
    Transition("drawn", "cleared", "context.plan_cleared"),
    Transition("cleared", "drawn", "context.plan_created"),
)

TASK_STEPS: Final = (
    Transition(None, "attached", "context.task_attached"),
    Transition(None, "attached", "context.imported"),
    Transition("attached", "attached", "context.task_attached", "another task"),
    Transition("attached", "free", "context.task_detached"),
    Transition("free", "attached", "context.task_attached"),
)

PRINCIPAL_STEPS: Final = (
    Transition(None, "known", "context.created"),
    Transition(None, "known", "context.imported"),
    Transition(None, "known", "context.principal_set"),
)

ITEM_STATUSES: Final = ("pending", "in_progress", "done", "blocked", "skipped")
ITEM_MARKS: Final = {"pending": "[ ]", "in_progress": "[~]", "done": "[x]", "blocked": "[!]", "skipped": "[-]"}

SETTLED: Final = frozenset({"done", "blocked", "skipped"})
"""Statuses that a binding's outcome leaves alone; a caller may still move out of them."""

BIND_STATUS: Final = {"pending": "in_progress"}
"""What binding an item makes of its status; any other stays."""

ITEM_STEPS: Final = (
    Transition(None, "pending", "context.plan_created"),
    Transition(None, "pending", "context.plan_updated", "insert"),
    *(
        Transition(source, target, "context.plan_updated", "by the caller")
        for source in ITEM_STATUSES
        for target in ITEM_STATUSES
    ),
    *(
        Transition(source, target, "context.plan_items_settled", outcome)
        for source in ITEM_STATUSES
        if source not in SETTLED
        for target, outcome in (("done", "it went well"), ("blocked", "it failed"))
    ),
)

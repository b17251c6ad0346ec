"""The events of contexts: names, numbers and field tables. An event must say what happened and when; what follows from
it is the fold's business.

Every event but ``context.imported`` carries the time that becomes the record's ``updated``.
"""

from __future__ import annotations

from typing import Final

from engine.core.catalog import EventType
from engine.core.fields import BOOL, ID, JSON, JSON_OBJECT, TEXT, TIME_MS, U32, U64, Field, list_of, one_of, optional
from projections.contexts.context_state import KINDS
from projections.contexts.message import MESSAGE
from projections.contexts.plan import PLAN, PLAN_ITEM
from projections.contexts.summary import SKILL, SUMMARY

__all__ = [
    "COMPACTED",
    "CREATED",
    "EVENTS",
    "IMPORTED",
    "MESSAGES_AT",
    "MESSAGES_APPENDED",
    "PLAN_CLEARED",
    "PLAN_CREATED",
    "PLAN_ITEMS_SETTLED",
    "PLAN_UPDATED",
    "PREFLIGHT_SET",
    "PRINCIPAL_SET",
    "SKILL_LOADED",
    "SKILL_UNLOADED",
    "TASK_ATTACHED",
    "TASK_DETACHED",
    "TOUCHED",
    "TURN_BEGUN",
    "WINDOW_CHANGED",
]

_CONTEXT: Final = Field("context", ID, "The conversation.")
_AT: Final = Field("at_ms", TIME_MS, "When; becomes the record's updated.")
_KIND: Final = Field("kind", one_of("kind", KINDS))
_WINDOW: Final = Field("model_window", U64, "Tokens that the model takes; 0 is unknown.")

CREATED: Final = EventType(
    "context.created",
    (_CONTEXT, _AT, _KIND, _WINDOW, Field("principal", optional(TEXT), "The first caller, if known.")),
    "A conversation began.",
    number=40,
)
MESSAGES_APPENDED: Final = EventType(
    "context.messages_appended",
    (_CONTEXT, _AT, Field("messages", list_of(MESSAGE), "In order; a null ts is the event's time.")),
    "Messages were added at the end.",
    number=41,
)
TOUCHED: Final = EventType("context.touched", (_CONTEXT, _AT), "The record was touched and nothing else.", number=42)
SKILL_LOADED: Final = EventType(
    "context.skill_loaded",
    (_CONTEXT, _AT, Field("name", TEXT), Field("hash", TEXT)),
    "A skill was loaded, or a loaded one got another hash in its place.",
    number=43,
)
SKILL_UNLOADED: Final = EventType(
    "context.skill_unloaded", (_CONTEXT, _AT, Field("name", TEXT)), "A loaded skill was unloaded.", number=44
)
PLAN_CREATED: Final = EventType(
    "context.plan_created",
    (_CONTEXT, _AT, Field("plan", PLAN, "The whole plan.")),
    "A plan was made; it takes the place of an earlier one.",
    number=45,
)
PLAN_UPDATED: Final = EventType(
    "context.plan_updated",
    (
        _CONTEXT,
        _AT,
        Field("items", list_of(PLAN_ITEM), "New items and those that changed, by id; new ones go to the end."),
        Field("order", optional(list_of(U32, unique=True)), "Every id in its new order, null when only the end grew."),
        Field("next_id", U32),
    ),
    "The plan changed in one step: insert, reorder, edit.",
    number=46,
)
PLAN_CLEARED: Final = EventType("context.plan_cleared", (_CONTEXT, _AT), "The plan was dropped.", number=47)
PLAN_ITEMS_SETTLED: Final = EventType(
    "context.plan_items_settled",
    (
        _CONTEXT,
        _AT,
        Field("items", list_of(U32, unique=True), "Ids of the items that were bound to it and still open."),
        Field("ok", BOOL, "True makes them done, false blocked."),
        Field("note", optional(TEXT), "Their new note; null keeps the old one."),
    ),
    "What plan items were bound to came to its end.",
    number=48,
)
PREFLIGHT_SET: Final = EventType(
    "context.preflight_set",
    (_CONTEXT, _AT, Field("value", JSON, "The verdict; null for none.")),
    "The preflight verdict was set or taken away.",
    number=49,
)
PRINCIPAL_SET: Final = EventType(
    "context.principal_set",
    (_CONTEXT, _AT, Field("principal", TEXT)),
    "The first caller became known; it stays.",
    number=50,
)
TASK_ATTACHED: Final = EventType(
    "context.task_attached", (_CONTEXT, _AT, Field("task", ID)), "The current work was attached to a task.", number=51
)
TASK_DETACHED: Final = EventType("context.task_detached", (_CONTEXT, _AT), "The task was let go.", number=52)
TURN_BEGUN: Final = EventType("context.turn_begun", (_CONTEXT, _AT), "A turn began.", number=53)
WINDOW_CHANGED: Final = EventType(
    "context.window_changed", (_CONTEXT, _AT, _WINDOW), "Another window holds from now on.", number=54
)
COMPACTED: Final = EventType(
    "context.compacted",
    (
        _CONTEXT,
        _AT,
        Field("fold", U64, "How many of the oldest live messages were folded."),
        Field("verdict", SUMMARY, "What they came to; merged into the summary."),
        Field("fallback", BOOL, "True when no summariser was at hand."),
    ),
    "Old messages were folded into the summary; the version went up by one.",
    number=55,
)
IMPORTED: Final = EventType(
    "context.imported",
    (
        _CONTEXT,
        Field("at_ms", TIME_MS, "When it was imported; the record keeps its own times."),
        _KIND,
        Field("version", U64),
        Field("summary", SUMMARY),
        Field("messages", list_of(MESSAGE)),
        Field("skills", list_of(SKILL)),
        Field("plan", optional(PLAN)),
        Field("preflight", JSON),
        _WINDOW,
        Field("principal", optional(TEXT)),
        Field("task", optional(ID)),
        Field("turns", U64),
        Field("created", U64),
        Field("updated", U64),
        Field("extra", optional(JSON_OBJECT), "Keys of the record that this version does not know."),
        Field("lost", list_of(JSON_OBJECT), "What was malformed and left out: path and problem of each."),
    ),
    "A record of another runtime was taken in.",
    number=56,
)

EVENTS: Final = (
    CREATED,
    MESSAGES_APPENDED,
    TOUCHED,
    SKILL_LOADED,
    SKILL_UNLOADED,
    PLAN_CREATED,
    PLAN_UPDATED,
    PLAN_CLEARED,
    PLAN_ITEMS_SETTLED,
    PREFLIGHT_SET,
    PRINCIPAL_SET,
    TASK_ATTACHED,
    TASK_DETACHED,
    TURN_BEGUN,
    WINDOW_CHANGED,
    COMPACTED,
    IMPORTED,
)

MESSAGES_AT: Final = {MESSAGES_APPENDED.tag: 4, IMPORTED.tag: 7}
"""Where the messages stand in the wire list of an event that holds some."""

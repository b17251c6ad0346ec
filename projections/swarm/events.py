"""The events of a swarm, numbers 120 to 149. An event may only say what happened; nothing here decides whether it may.

Guidances, actions and records travel in their JSON form (``props`` as base64), so an event reads the same everywhere.
"""

from __future__ import annotations

from typing import Final

from engine.core.catalog import EventType
from engine.core.fields import BOOL, JSON, TEXT, U32, U64, Field, list_of, one_of, optional
from projections.swarm.actions import ACTIONS_CONFIG
from projections.swarm.escalation import REASON
from projections.swarm.guidance import GUIDANCE
from projections.swarm.record import IMPORTABLE
from projections.swarm.shape import field_of

__all__ = [
    "ACTIONS_CONFIGURED",
    "ACTION_COMPLETED",
    "ACTION_KINDS",
    "ESCALATION_ATTEMPTED",
    "ESCALATION_CLEARED",
    "ESCALATION_RAISED",
    "EVENTS",
    "EXPLORATION_UPDATED",
    "GUIDANCE_ISSUED",
    "IMPORTED",
    "METADATA_REMOVED",
    "METADATA_SET",
    "STARTED",
    "TICK_ADVANCED",
    "VERDICT_RECORDED",
    "WORKER_FINISHED",
    "WORKER_IDLED",
]

ACTION_KINDS: Final = ("worker", "llm", "manager")

_WORKER: Final = Field("worker", U64, "the worker's number")
_GUIDANCE: Final = field_of("guidance", GUIDANCE)
_ESCALATION: Final = (
    _WORKER,
    Field("reason", field_of("escalation reason", REASON), "why, in its JSON form"),
    Field("tick", U64, "the tick at which it was raised"),
    Field("context", optional(TEXT), "what the raiser added"),
)

STARTED: Final = EventType(
    "swarm.started",
    (
        Field("worker_count", U64, "workers are numbered from 0"),
        Field("max_ticks", U64, "0: unlimited"),
        Field("failure_threshold", U32, "failures in a row that raise an escalation; 0: never"),
        Field("task", JSON, "what the swarm is for, or null"),
    ),
    "A swarm began its work at tick 0.",
    number=120,
)
IMPORTED: Final = EventType(
    "swarm.imported",
    (
        Field("record", IMPORTABLE, "the whole situation as one JSON record"),
        Field("visits", optional(U64), "the counters behind success_rate, when they are known"),
        Field("successes", optional(U64), "the counters behind success_rate, when they are known"),
        Field("max_ticks", optional(U64), "the limit behind progress, when it is known; 0: unlimited"),
        Field("failure_threshold", U32, "as in swarm.started"),
        Field("task", JSON, "as in swarm.started"),
    ),
    "A swarm that another runtime had led so far was taken over.",
    number=121,
)
ACTIONS_CONFIGURED: Final = EventType(
    "swarm.actions_configured",
    (Field("config", field_of("actions config", ACTIONS_CONFIG), "all actions and groups; replaces what was there"),),
    "The available actions were set.",
    number=122,
)
TICK_ADVANCED: Final = EventType(
    "swarm.tick_advanced", (Field("tick", U64, "the tick from now on"),), "The clock of the swarm moved on.", number=123
)
ACTION_COMPLETED: Final = EventType(
    "swarm.action_completed",
    (
        _WORKER,
        Field("action", TEXT, "the action's name"),
        Field("target", optional(TEXT), "what it was aimed at"),
        Field("success", BOOL, "whether it succeeded"),
        Field("output", optional(TEXT), "what it gave"),
        Field("error", optional(TEXT), "why it failed"),
        Field("duration_ms", U64, "how long it took"),
        Field("kind", one_of("action kind", ACTION_KINDS), "llm and manager actions never count in the rates"),
    ),
    "A worker's action ended.",
    number=124,
)
WORKER_IDLED: Final = EventType("swarm.worker_idled", (_WORKER,), "A worker did nothing in this tick.", number=125)
ESCALATION_RAISED: Final = EventType("swarm.escalation_raised", _ESCALATION, "A worker asked for help.", number=126)
ESCALATION_ATTEMPTED: Final = EventType(
    "swarm.escalation_attempted", _ESCALATION, "A worker asked again while its first request was open.", number=127
)
ESCALATION_CLEARED: Final = EventType(
    "swarm.escalation_cleared", (_WORKER,), "A worker's request for help was settled.", number=128
)
WORKER_FINISHED: Final = EventType(
    "swarm.worker_finished",
    (_WORKER, Field("success", BOOL, "whether it met its goal"), Field("message", optional(TEXT), "what it said last")),
    "A worker was done.",
    number=129,
)
GUIDANCE_ISSUED: Final = EventType(
    "swarm.guidance_issued",
    (_WORKER, Field("guidance", _GUIDANCE, "what to do next")),
    "A manager told a worker what to do next.",
    number=130,
)
EXPLORATION_UPDATED: Final = EventType(
    "swarm.exploration_updated",
    (
        Field("excluded_actions", list_of(TEXT), "actions to leave out; replaces what was there"),
        Field("v2_guidances", optional(list_of(_GUIDANCE)), "null: no exploration, which is not the empty list"),
    ),
    "The exploration of the search space moved on.",
    number=131,
)
METADATA_SET: Final = EventType(
    "swarm.metadata_set", (Field("key", TEXT), Field("value", JSON)), "A metadata value was set.", number=132
)
METADATA_REMOVED: Final = EventType(
    "swarm.metadata_removed", (Field("key", TEXT),), "A metadata value was removed.", number=133
)
VERDICT_RECORDED: Final = EventType(
    "swarm.verdict_recorded",
    (
        Field("success", BOOL, "whether the swarm met its goal"),
        Field("reason", optional(TEXT), "why"),
        Field("details", JSON, "anything beside it, or null"),
    ),
    "The swarm was judged.",
    number=134,
)

EVENTS: Final = (
    STARTED,
    IMPORTED,
    ACTIONS_CONFIGURED,
    TICK_ADVANCED,
    ACTION_COMPLETED,
    WORKER_IDLED,
    ESCALATION_RAISED,
    ESCALATION_ATTEMPTED,
    ESCALATION_CLEARED,
    WORKER_FINISHED,
    GUIDANCE_ISSUED,
    EXPLORATION_UPDATED,
    METADATA_SET,
    METADATA_REMOVED,
    VERDICT_RECORDED,
)

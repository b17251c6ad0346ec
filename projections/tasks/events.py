"""The events of the task table: what each records, field by field. It must never hold a rule; numbers are never reused.

``wakes`` names the parent that the same event resumes, because its last awaited child has left: so the table is valid
at every position, also inside a commit.
"""

from __future__ import annotations

from typing import Any, Final

from engine.core.catalog import EventType
from engine.core.codec import normalise
from engine.core.errors import InvalidValue
from engine.core.fields import ID, JSON, TEXT, TIME_MS, U32, U64, Checked, Field, list_of, one_of, optional
from projections.tasks.transitions import (
    INHERITANCES,
    ISOLATIONS,
    RELAUNCH_MODES,
    ROLES,
    TERMINATIONS,
    WAIT_ENDINGS,
    WAITS,
)

__all__ = ["EVENTS"]


def _result(value: Any) -> dict[str, Any]:
    """Return a child's result, one level shallower than other JSON: the row wraps it as ``{agent_id, result}``."""
    if type(value) is not dict:
        raise InvalidValue(
            "", f"expected an object, found {type(value).__name__}", hint='pass {"final_message": ...} and further keys'
        )
    checked: dict[str, Any] = normalise(value, depth=1)
    return checked


ATTEMPT: Final = optional(U32)
CAPABILITIES: Final = list_of(TEXT, unique=True)
INHERITANCE: Final = one_of("context inheritance", INHERITANCES)
ISOLATION: Final = one_of("isolation", ISOLATIONS)
MODE: Final = one_of("relaunch mode", RELAUNCH_MODES)
RESULT: Final = optional(Checked("json object", _result))
ROLE: Final = one_of("role", ROLES)
TASKS: Final = list_of(ID, unique=True)
TERMINATION: Final = one_of("termination", TERMINATIONS)
WAIT: Final = one_of("wait", WAITS)
WAIT_ENDING: Final = one_of("end of a wait", WAIT_ENDINGS)

_TASK = Field("task_id", ID, "the task it happened to")
_ATTEMPT = Field("attempt", ATTEMPT, "the live attempt; filled in when the root's is left out")
_TOKEN = Field("launch_token", optional(ID), "minted from run, position, task and attempt when left out")
_WAKES = Field("wakes", optional(ID), "the parent that is running again because this was its last awaited child")

ROOT_OPENED: Final = EventType(
    "task.root_opened",
    (_TASK, Field("capability_ids", CAPABILITIES)),
    "The run's one root task exists, ready.",
    number=10,
)
SPAWNED: Final = EventType(
    "task.spawned",
    (
        _TASK,
        Field("parent_task_id", ID),
        Field("role", ROLE),
        Field("isolation", ISOLATION),
        Field("context_inheritance", INHERITANCE),
        Field("capability_ids", CAPABILITIES),
        Field("attempt", ATTEMPT, "always 1"),
        _TOKEN,
    ),
    "A child task exists, its launch pending.",
    number=11,
)
LAUNCH_PUBLISHED: Final = EventType(
    "task.launch_published", (_TASK, _ATTEMPT), "The launch was handed to the host.", number=12
)
LAUNCH_ACKNOWLEDGED: Final = EventType(
    "task.launch_acknowledged", (_TASK, _ATTEMPT), "The host says that the attempt runs.", number=13
)
LAUNCH_FAILED: Final = EventType(
    "task.launch_failed",
    (_TASK, _ATTEMPT, Field("reason", optional(TEXT)), _WAKES),
    "The attempt never ran; the task is done with an error.",
    number=14,
)
STARTED: Final = EventType("task.started", (_TASK,), "A ready task runs (again).", number=15)
YIELDED: Final = EventType("task.yielded", (_TASK,), "A running task went back to the scheduler's queue.", number=16)
SUSPENDED: Final = EventType(
    "task.suspended",
    (
        _TASK,
        Field("wait", WAIT),
        Field("waiting_on", TASKS, "own live children, for a join; empty otherwise"),
        Field("awaited", optional(TEXT), "the name of what is awaited: a signal, a request"),
        Field("due_ms", optional(TIME_MS), "when a timer elapses, or until when the wait is worth it"),
    ),
    "A task waits.",
    number=17,
)
JOIN_EXTENDED: Final = EventType(
    "task.join_extended",
    (_TASK, Field("waiting_on", TASKS, "the further children")),
    "A join waits on more children.",
    number=18,
)
WAIT_ENDED: Final = EventType(
    "task.wait_ended",
    (_TASK, Field("how", WAIT_ENDING), Field("awaited", optional(TEXT)), Field("payload", optional(JSON))),
    "What a task waited for has come, or will not; the task is running.",
    number=19,
)
FINISHED: Final = EventType(
    "task.finished",
    (
        _TASK,
        Field("termination", TERMINATION),
        _ATTEMPT,
        Field("result", RESULT, "what a join reads: termination, final_message, turns_used, total_tokens_used, ..."),
        _WAKES,
        Field("because", optional(ID), "the task whose end brought this about, when a cascade did"),
    ),
    "A task is done.",
    number=20,
)
RELAUNCHED: Final = EventType(
    "task.relaunched",
    (_TASK, Field("mode", MODE, "restart zeroes the usage, retry keeps it"), _ATTEMPT, _TOKEN),
    "The task's next attempt is pending; the one before is dead.",
    number=21,
)
USAGE_REPORTED: Final = EventType(
    "task.usage_reported",
    (_TASK, Field("tokens", U64, "more tokens used"), Field("turns", U32, "more turns used")),
    "A task used tokens and turns.",
    number=22,
)
CAPABILITIES_GRANTED: Final = EventType(
    "task.capabilities_granted", (_TASK, Field("capability_ids", CAPABILITIES)), "A task may do more.", number=23
)
CAPABILITIES_REVOKED: Final = EventType(
    "task.capabilities_revoked", (_TASK, Field("capability_ids", CAPABILITIES)), "A task may do less.", number=24
)
DETACHED: Final = EventType(
    "task.detached",
    (_TASK, Field("parent_task_id", ID, "the new parent: the old one's parent"), _WAKES),
    "A live child goes on under its parent's parent.",
    number=25,
)

EVENTS: Final = (
    ROOT_OPENED,
    SPAWNED,
    LAUNCH_PUBLISHED,
    LAUNCH_ACKNOWLEDGED,
    LAUNCH_FAILED,
    STARTED,
    YIELDED,
    SUSPENDED,
    JOIN_EXTENDED,
    WAIT_ENDED,
    FINISHED,
    RELAUNCHED,
    USAGE_REPORTED,
    CAPABILITIES_GRANTED,
    CAPABILITIES_REVOKED,
    DETACHED,
)

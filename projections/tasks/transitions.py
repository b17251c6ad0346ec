"""The life cycle of a task, as data: labels, steps, and which event ends which wait. It must never hold code that
decides; everything that may happen to a task's lifecycle is in this file.

Decide, admit, the tests and the diagram read the same tuples. A guard that needs more than the lifecycle (a live
attempt, live children) is said in the step's note and enforced by :mod:`projections.tasks.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.core.transition import Transition

__all__ = [
    "DIAGRAM",
    "LIFECYCLE",
    "LIFECYCLES",
    "REPEATS",
    "SOURCES",
    "TERMINATIONS",
    "UPKEEP",
    "WAITS",
    "WAIT_ENDS",
    "WOKEN",
]

PENDING_LAUNCH: Final = "pending_launch"
STARTING: Final = "starting"
READY: Final = "ready"
RUNNING: Final = "running"
SUSPENDED: Final = "suspended"
DONE: Final = "done"

LIFECYCLES: Final = (PENDING_LAUNCH, STARTING, READY, RUNNING, SUSPENDED, DONE)
LIVE: Final = LIFECYCLES[:-1]
"""Every lifecycle but ``done``, which is absorbing."""

TERMINATIONS: Final = (
    "completed",
    "max_turns",
    "token_budget",
    "timeout",
    "user_abort",
    "error",
    "milestone_exceeded",
    "context_overflow",
    "no_progress",
)

JOIN: Final = "sub_agent_join"
WAIT_ENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "approval": ("approved", "denied", "timed_out"),
    JOIN: (),
    "timer": ("elapsed",),
    "signal": ("delivered", "timed_out"),
    "message": ("delivered", "timed_out"),
    "external": ("delivered", "timed_out"),
}
"""How each kind of wait may end by ``task.wait_ended``. A join ends only with its last child (:data:`WOKEN`)."""

WAITS: Final = tuple(WAIT_ENDS)
WAIT_ENDINGS: Final = tuple(dict.fromkeys(how for ends in WAIT_ENDS.values() for how in ends))

ROLES: Final = ("explore", "plan", "implement", "verify", "custom")
ISOLATIONS: Final = ("shared", "read_only", "worktree", "remote")
INHERITANCES: Final = ("none", "system_only", "full")
RELAUNCH_MODES: Final = ("restart", "retry")

LIFECYCLE: Final = (
    Transition(None, READY, "task.root_opened", "exactly one root"),
    Transition(None, PENDING_LAUNCH, "task.spawned", "parent not done"),
    Transition(PENDING_LAUNCH, STARTING, "task.launch_published"),
    Transition(STARTING, RUNNING, "task.launch_acknowledged", "live attempt"),
    Transition(PENDING_LAUNCH, DONE, "task.launch_failed", "live attempt"),
    Transition(STARTING, DONE, "task.launch_failed", "live attempt"),
    Transition(RUNNING, PENDING_LAUNCH, "task.relaunched", "next attempt"),
    Transition(SUSPENDED, PENDING_LAUNCH, "task.relaunched", "next attempt"),
    Transition(READY, RUNNING, "task.started"),
    Transition(RUNNING, READY, "task.yielded"),
    Transition(RUNNING, SUSPENDED, "task.suspended"),
    Transition(READY, SUSPENDED, "task.suspended"),
    Transition(SUSPENDED, RUNNING, "task.wait_ended", "not a join"),
    *(Transition(state, DONE, "task.finished", "live attempt, no live children") for state in LIVE),
)
"""Section 2 of the contract, a step a row: what an event does to the task that it names."""

WOKEN: Final = (
    Transition(SUSPENDED, RUNNING, "task.finished", "last awaited child"),
    Transition(SUSPENDED, RUNNING, "task.launch_failed", "last awaited child"),
    Transition(SUSPENDED, RUNNING, "task.detached", "last awaited child"),
)
"""What a child's event does to the parent that waited for nothing but that child; the event names it in ``wakes``."""

UPKEEP: Final = (
    *(Transition(state, state, "task.usage_reported") for state in LIVE),
    *(Transition(state, state, "task.capabilities_granted") for state in LIVE),
    *(Transition(state, state, "task.capabilities_revoked") for state in LIVE),
    *(Transition(state, state, "task.detached", "to the parent's parent") for state in LIVE),
    Transition(SUSPENDED, SUSPENDED, "task.join_extended", "only a join"),
)
"""Events that change a task and leave its lifecycle alone: where each is legal."""

DIAGRAM: Final = LIFECYCLE + WOKEN
"""What the diagram in the documents shows."""

REPEATS: Final[Mapping[str, str]] = {
    "task.launch_published": STARTING,
    "task.launch_acknowledged": RUNNING,
    "task.started": RUNNING,
    "task.yielded": READY,
}
"""Where an event with the same values repeats what already is, and adds nothing. Events whose values must be compared
with more than the lifecycle (spawned, suspended, finished, ...) are compared in the rules."""

SOURCES: Final[Mapping[str, frozenset[str | None]]] = {
    event: frozenset(step.source for step in LIFECYCLE + UPKEEP if step.event == event)
    for event in dict.fromkeys(step.event for step in LIFECYCLE + UPKEEP)
}
"""Event name -> the lifecycles in which it is legal, compiled from the tables above."""
